"""A whole store of turns for sync callers: list, verify, prune. `turn_journal_runtime.aio` has the same for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import store_flows
from .bridge import default_client
from .flow import run

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

    from .bridge import RuntimeClient
    from .documents import (
        ListedTurn,
        PrunedTurn,
        RecoverableJournal,
        RepairResult,
        TurnHead,
        TurnTransition,
        VerifiedTurn,
        VerifyReport,
    )
    from .run_journal import RunJournal

__all__ = [
    "find_settlement",
    "list_turn_journals",
    "prune_turn_journals",
    "recoverable_turn_journals",
    "repair_turn_journal",
    "turn_heads",
    "turn_history",
    "verify_turn_journal",
]


def _items(listing: store_flows.Listing, client: RuntimeClient | None, timeout: float | None) -> Iterator[Any]:
    client = client or default_client()
    after = None
    while True:
        page = client.call(*listing.page(after), timeout=timeout)
        yield from page[listing.field]
        after = page["next"]
        if after is None:
            return


def turn_history(
    path: str | os.PathLike[str], *, client: RuntimeClient | None = None, timeout: float | None = None
) -> list[TurnTransition]:
    """The transitions of a turn, in order; `load_turn_journal(path, at=seq)` gives the journal as it was at one.

    Args:
        path: Where the turn lives, from `turn_journal_path`.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for each page; the setting's default when None.

    Raises:
        JournalNotFoundError: Nothing is stored there.
        JournalCorruptError: The history is damaged.

    Specified in runtime.md, section 6.
    """
    return run(store_flows.history(path), client or default_client(), timeout)


def verify_turn_journal(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str | None = None,
    turn_key: str | None = None,
    heads: list[TurnHead] | None = None,
    progress: Callable[[VerifiedTurn], None] | None = None,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> VerifyReport:
    """Proves one turn, one goal or a whole root against its histories, and names the first place that was changed.

    A history cannot see that its end was cut together with its snapshot: pass `heads` that were exported earlier.

    Args:
        runtime_root: The folder that holds all turns.
        goal_id: Only the turns of this goal.
        turn_key: Only this turn of that goal.
        heads: Heads from `turn_heads`; just their turns are verified, and against them.
        progress: Called with each turn that was verified.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for each page; the setting's default when None.

    Specified in runtime.md, section 6.
    """
    flow = store_flows.verify(runtime_root, goal_id=goal_id, turn_key=turn_key, heads=heads, progress=progress)
    return run(flow, client or default_client(), timeout)


def turn_heads(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str | None = None,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> Iterator[TurnHead]:
    """The end of every history, to be kept elsewhere for `verify_turn_journal`; turns that are damaged have none.

    Args:
        runtime_root: The folder that holds all turns.
        goal_id: Only the turns of this goal.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for each page; the setting's default when None.

    Specified in runtime.md, section 6.
    """
    return _items(store_flows.heads(runtime_root, goal_id), client, timeout)


def list_turn_journals(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str | None = None,
    status: str | None = None,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> Iterator[ListedTurn]:
    """Every stored turn, one by one; a damaged one is listed as damaged and stops nothing.

    Args:
        runtime_root: The folder that holds all turns.
        goal_id: Only the turns of this goal.
        status: Only the turns of this status.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for each page; the setting's default when None.

    Specified in turn-journal.md, section 8.
    """
    return _items(store_flows.turns(runtime_root, goal_id, status), client, timeout)


def recoverable_turn_journals(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str | None = None,
    retry_failed: bool = False,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> Iterator[RecoverableJournal]:
    """The open turns that may go on, and failed ones when a retry is asked for; damaged ones are listed as damaged.

    Args:
        runtime_root: The folder that holds all turns.
        goal_id: Only the turns of this goal.
        retry_failed: Whether failed turns are to be tried again; those that somebody gave up are among them, which
            `recoverable_turns` leaves out.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for each page; the setting's default when None.

    Specified in turn-journal.md, section 8.
    """
    return _items(store_flows.recoverable(runtime_root, goal_id, retry_failed), client, timeout)


def find_settlement(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str,
    agent_id: str,
    todo_id: str,
    turn_instance_id: str,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> str | None:
    """The key of the one stored turn with that settlement identity, or None.

    Args:
        runtime_root: The folder that holds all turns.
        goal_id: The goal of the settlement.
        agent_id: Its agent.
        todo_id: The todo it is bound to.
        turn_instance_id: Its turn instance.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for the answer; the setting's default when None.

    Raises:
        JournalConflictError: `journal_readback_conflict`: two turns match, or a file cannot be read. Unknown history
            never authorises a fresh turn.

    Specified in turn-journal.md, section 8.
    """
    flow = store_flows.find_settlement(
        runtime_root, goal_id=goal_id, agent_id=agent_id, todo_id=todo_id, turn_instance_id=turn_instance_id
    )
    return run(flow, client or default_client(), timeout)


def prune_turn_journals(
    runtime_root: str | os.PathLike[str],
    *,
    older_than: float,
    keep: int | None = None,
    goal_id: str | None = None,
    given_up: bool = False,
    dry_run: bool = False,
    run_journal: RunJournal | None = None,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> list[PrunedTurn]:
    """Removes the history, the bulk and the runs of terminal turns; a tombstone stays that still inspects the same.

    A turn that failed stays as long as it may be retried, unless it was given up and that is asked for. The run of a
    turn that may go on stays, and so does one that is driven, or has an effect whose outcome is not known.

    Args:
        runtime_root: The folder that holds all turns, or the database: `postgresql://…`.
        older_than: Seconds since a turn was written last.
        keep: How many turns of each goal stay as they are, the latest ones.
        goal_id: Only the turns of this goal.
        given_up: Also failed turns that somebody gave up. `run_turn` can take those up no more: begin another one then.
        dry_run: Only say what would be pruned.
        run_journal: The journal that `run_turn` was given for these turns; the root's own by default.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for each page; the setting's default when None.

    Returns:
        The turns, each with the `runs` of it that were removed and the `runs_left`. One that was pruned before, and
        whose runs are removed only now, has no `operation_id`; one that is left alone has `damage`.

    Raises:
        TurnJournalError: The runs cannot be reached; nothing was pruned.

    Specified in runtime.md, section 6.
    """
    from .turns.retention import prune_flow
    from .turns.root import open_root

    client = client or default_client()
    flow = prune_flow(
        open_root(runtime_root, client),
        run_journal,
        older_than=older_than,
        keep=keep,
        goal_id=goal_id,
        given_up=given_up,
        dry_run=dry_run,
    )
    return run(flow, client, timeout)


def repair_turn_journal(
    path: str | os.PathLike[str],
    *,
    plan: str | None = None,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> RepairResult:
    """Says what repairing a damaged turn would cut; with the `plan` of that answer, cuts it.

    Args:
        path: Where the turn lives, from `turn_journal_path`.
        plan: The plan of an earlier answer; refused when the turn is no longer as it was then.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for the answer; the setting's default when None.

    Specified in runtime.md, section 6.
    """
    return run(store_flows.repair(path, plan), client or default_client(), timeout)
