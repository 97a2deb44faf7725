"""Turns for asyncio: the same names, arguments, results and errors as in `turns`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..bridge import default_async_client
from ..flow import run_async
from ..observability import observed_turn
from .acknowledgement import acknowledge_flow
from .executor import turn_flow
from .giving_up import GivenUpTurn, give_up_flow, key_of
from .parts import MAX_RECOVERIES, MAX_RESULT_BYTES, turn_parts
from .plan import plan_turn

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Mapping

    from ..bridge import AsyncRuntimeClient
    from ..run_journal import RunJournal
    from ..session_recovery import SessionBindingResolver
    from .host import HostAdapter
    from .outcome import TurnResult
    from .providers import Provider
from .recovery import RecoverableTurn, recoverable_flow
from .root import open_root

__all__ = ["acknowledge_turn", "give_up_turn", "recoverable_turns", "run_turn"]


async def run_turn(
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
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> TurnResult:
    """Drives one turn to its end, or from wherever an earlier drive was killed; see `turn_journal_runtime`.

    Cancelling the task ends a host that can be ended, waits for callables that run in a thread, and leaves the turn to
    be resumed.
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
    client = client or default_async_client()
    root = open_root(runtime_root, client.for_threads)
    flow = observed_turn(
        turn_flow(root, plan, parts),
        goal_id=goal_id,
        agent_id=agent_id,
        turn_key=plan.turn_key,
    )
    return await run_async(flow, client, timeout)


async def acknowledge_turn(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str,
    agent_id: str,
    turn_key: str,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> TurnResult:
    """Commits a turn that waits for its scheduler; see `turn_journal_runtime`."""
    client = client or default_async_client()
    root = open_root(runtime_root, client.for_threads)
    flow = acknowledge_flow(root, goal_id=goal_id, agent_id=agent_id, turn_key=turn_key)
    return await run_async(flow, client, timeout)


async def give_up_turn(
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
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> GivenUpTurn:
    """Ends a turn that shall not go on; see `turn_journal_runtime`."""
    key = key_of(goal_id, agent_id, turn_key, todo_id, turn_instance_id)
    client = client or default_async_client()
    flow = give_up_flow(
        open_root(runtime_root, client.for_threads),
        goal_id=goal_id,
        agent_id=agent_id,
        turn_key=key,
        reason=reason,
        by=by,
        take_over=take_over,
        run_journal=run_journal,
    )
    return await run_async(flow, client, timeout)


async def recoverable_turns(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str | None = None,
    retry_failed: bool = True,
    now: float | None = None,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> list[RecoverableTurn]:
    """The turns that stopped and may go on now; see `turn_journal_runtime`."""
    client = client or default_async_client()
    root = open_root(runtime_root, client.for_threads)
    flow = recoverable_flow(root, goal_id=goal_id, retry_failed=retry_failed, now=now)
    return await run_async(flow, client, timeout)
