"""Turns for sync callers; `turns.aio` has the same for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..bridge import default_client
from ..flow import run
from ..observability import observed_turn
from .acknowledgement import acknowledge_flow
from .executor import turn_flow
from .giving_up import GivenUpTurn, give_up_flow, key_of
from .parts import MAX_RECOVERIES, MAX_RESULT_BYTES, turn_parts
from .plan import plan_turn

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from ..bridge import RuntimeClient
    from ..run_journal import RunJournal
    from ..session_recovery import SessionBindingResolver
    from .host import HostAdapter
    from .outcome import TurnResult
    from .providers import Provider
from .recovery import RecoverableTurn, recoverable_flow
from .root import open_root


def run_turn(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str,
    agent_id: str,
    todo_id: str,
    host: HostAdapter,
    validate: Callable[[dict[str, Any]], Any] | None = None,
    writeback: Provider | Callable[..., Any] | None = None,
    spend: Provider | Callable[..., Any] | None = None,
    scheduler: Provider | Callable[..., Any] | None = None,
    retry_failed: bool = False,
    session_binding_resolver: SessionBindingResolver | None = None,
    turn_instance_id: str | None = None,
    host_input: Any = None,
    session: Mapping[str, Any] | None = None,
    max_recoveries: int = MAX_RECOVERIES,
    max_result_bytes: int = MAX_RESULT_BYTES,
    run_journal: RunJournal | None = None,
    take_over: bool = False,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> TurnResult:
    """Drives one turn to its end, or from wherever an earlier drive was killed; calling it again is resuming.

    All callables may be sync or async. A turn that is over is returned as it stands.

    Args:
        runtime_root: The folder that holds all turns, or the database: `postgresql://…`.
        goal_id: The goal.
        agent_id: The agent that does the turn.
        todo_id: The work of the turn.
        host: Does the work and returns one JSON object with `result_kind`.
        validate: Called with the result; False, a reason, a `Refusal`, or a raised `ValueError` or `AssertionError`
            refuses it. Any other exception is raised, and decides nothing.
        writeback: Writes the result back; a `Provider` or a callable `(effect_ref, payload)`.
        spend: Accounts for it.
        scheduler: Arranges what comes next; it may answer `"action_required"` and call `acknowledge_turn` later.
        retry_failed: Whether a failed turn is tried again.
        session_binding_resolver: Answers with the binding of the host's live session; by default the session that was
            noted under the root.
        turn_instance_id: Tells several turns for the same todo apart.
        host_input: Handed to the host and kept in no journal, such as the prompt.
        session: How the host's session is planned; `{"action": "start_new"}` by default.
        max_recoveries: How often the turn may be recovered; each is counted before it starts.
        max_result_bytes: How large the host's result may be, as JSON.
        run_journal: Where the host's steps are recorded; `runs/journal.db` under the root by default.
        take_over: Take the turn also from a driver that is alive; what that one writes afterwards is refused.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for each answer of the core; the setting's default when None.

    Returns:
        How the turn stands: also a failed one, and one that waits for its scheduler; `ok` and `owed` tell.

    Raises:
        TurnBusyError: Another driver has the turn; `details` names it.
        TurnRecoveryBlockedError: The turn may not go on; `decision` says why.
        JournalConflictError: `turn_lease_lost`: another driver has taken the turn over.
        TurnSuspended: The host waits for a decision, or until `details["due_at"]`; run the turn again after that.
        UncertainEffectError: A step of the host is in doubt; run the turn again after it was settled.
        InvalidJournalError: An argument is not acceptable; nothing was done.

    Specified in session-recovery.md, section 3.
    """
    plan = plan_turn(
        goal_id=goal_id, agent_id=agent_id, todo_id=todo_id, turn_instance_id=turn_instance_id, session=session
    )
    parts = turn_parts(
        host=host,
        host_input=host_input,
        validate=validate,
        writeback=writeback,
        spend=spend,
        scheduler=scheduler,
        retry_failed=retry_failed,
        session_binding_resolver=session_binding_resolver,
        max_recoveries=max_recoveries,
        max_result_bytes=max_result_bytes,
        run_journal=run_journal,
        take_over=take_over,
    )
    client = client or default_client()
    root = open_root(runtime_root, client)
    flow = observed_turn(
        turn_flow(root, plan, parts),
        goal_id=goal_id,
        agent_id=agent_id,
        turn_key=plan.turn_key,
    )
    return run(flow, client, timeout)


def acknowledge_turn(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str,
    agent_id: str,
    turn_key: str,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> TurnResult:
    """Commits a turn that waits for its scheduler; one that is committed already stays as it is.

    Args:
        runtime_root: The folder that holds all turns, or the database: `postgresql://…`.
        goal_id: The goal of the turn.
        agent_id: The agent that owns it.
        turn_key: The key of the turn, as the scheduler got it.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for each answer of the core; the setting's default when None.

    Raises:
        JournalNotFoundError: No such turn is stored.
        JournalConflictError: It waits for no acknowledgement.
        TurnBusyError: Another driver has the turn.
        TurnRecoveryBlockedError: It is not that agent's, or not consistent.

    Specified in session-recovery.md, section 3.
    """
    client = client or default_client()
    root = open_root(runtime_root, client)
    flow = acknowledge_flow(root, goal_id=goal_id, agent_id=agent_id, turn_key=turn_key)
    return run(flow, client, timeout)


def give_up_turn(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str,
    agent_id: str,
    turn_key: str | None = None,
    todo_id: str | None = None,
    turn_instance_id: str | None = None,
    reason: str,
    by: str,
    take_over: bool = False,
    run_journal: RunJournal | None = None,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> GivenUpTurn:
    """Ends a turn that shall not go on: it fails where it stands, its run is closed, and nothing tries it again.

    A turn that had failed is not tried again from now on; one that is over stays as it is. Again is harmless, and
    finishes what a kill left half done. `run_turn` with `retry_failed=True` takes it up again where it stood,
    unless it was pruned since.

    Args:
        runtime_root: The folder that holds all turns, or the database: `postgresql://…`.
        goal_id: The goal of the turn.
        agent_id: The agent that owns it.
        turn_key: The key of the turn; or
        todo_id: its work, and
        turn_instance_id: which of several turns for that work it is, as for `run_turn`.
        reason: Why, in at most 500 characters; kept in the journal.
        by: Who says so.
        take_over: Take the turn also from a driver that is alive. That one can record nothing more: it stops before
            its next step or effect, and a host that can be ended is ended where it hears of it, in a database.
        run_journal: Where its host's steps are recorded; `runs/journal.db` under the root by default.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for each answer of the core; the setting's default when None.

    Returns:
        How the turn stands: `in_doubt` names what may have happened, `owed` what is still due.

    Raises:
        JournalNotFoundError: No such turn is stored.
        TurnBusyError: Somebody drives it; `details` names the process. Nothing was changed.
        JournalConflictError: Everything of it is done, and it waits for its scheduler's acknowledgement.
        TurnRecoveryBlockedError: It is not that agent's, or not consistent.
        InvalidJournalError: An argument is not acceptable.

    Specified in turn-journal.md, sections 5 and 6, and session-recovery.md, section 4.
    """
    key = key_of(goal_id, agent_id, turn_key, todo_id, turn_instance_id)
    client = client or default_client()
    flow = give_up_flow(
        open_root(runtime_root, client),
        goal_id=goal_id,
        agent_id=agent_id,
        turn_key=key,
        reason=reason,
        by=by,
        take_over=take_over,
        run_journal=run_journal,
    )
    return run(flow, client, timeout)


def recoverable_turns(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str | None = None,
    retry_failed: bool = True,
    now: float | None = None,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> list[RecoverableTurn]:
    """The turns that stopped and may go on now: open ones without a driver, failed ones whose back-off has passed.

    Args:
        runtime_root: The folder that holds all turns, or the database: `postgresql://…`.
        goal_id: Only the turns of this goal.
        retry_failed: Whether failed turns are listed; those that somebody gave up are not.
        now: The time to compare back-offs with, in seconds since the epoch; the clock's when None.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for each answer of the core; the setting's default when None.

    Returns:
        The turns, with the `names` to give to `run_turn`. One that cannot be read has `damage`, and stops no other.

    Specified in session-recovery.md, section 3, and turn-journal.md, section 8.
    """
    client = client or default_client()
    root = open_root(runtime_root, client)
    flow = recoverable_flow(root, goal_id=goal_id, retry_failed=retry_failed, now=now)
    return run(flow, client, timeout)
