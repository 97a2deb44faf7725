"""The public functions for asyncio: the same names, arguments, results and errors as in the package itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import journal_flows, store_flows
from . import session_recovery as sessions
from .address import turn_journal_path
from .bridge import default_async_client
from .flow import Ask, ask_async, run_async
from .journal_flows import UNSET, Unset

if TYPE_CHECKING:
    import os
    from collections.abc import AsyncIterator, Callable, Mapping

    from .bridge import AsyncRuntimeClient
    from .documents import (
        CopiedItem,
        CopyReport,
        Inspection,
        Journal,
        ListedTurn,
        PrunedTurn,
        RecoverableJournal,
        RecoveryCheck,
        RepairResult,
        TurnHead,
        TurnTransition,
        VerifiedTurn,
        VerifyReport,
        WriteResult,
    )
    from .replay_check import Loop, ReplayCheck
    from .run_journal import RunJournal
    from .turns.aio import acknowledge_turn, give_up_turn, recoverable_turns, run_turn

__all__ = [
    "UNSET",
    "acknowledge_turn",
    "assess_failed_turn_retry_request",
    "build_host_failure_record",
    "check_replay",
    "copy_store",
    "find_settlement",
    "give_up_turn",
    "inspect_loopx_turn_journal",
    "inspect_turn_journal",
    "interpret_turn_journal_projection",
    "list_turn_journals",
    "load_turn_journal",
    "prune_turn_journals",
    "reconcile_failed_turn_retry_request",
    "reconcile_failed_turn_session_request",
    "recoverable_turn_journals",
    "recoverable_turns",
    "repair_turn_journal",
    "run_turn",
    "turn_heads",
    "turn_history",
    "turn_journal_path",
    "verify_turn_journal",
    "write_turn_journal",
]


def __getattr__(name: str) -> Any:
    # Turns bring SQLite and the hosts along: they are opened when one is first driven.
    if name in ("acknowledge_turn", "give_up_turn", "recoverable_turns", "run_turn"):
        from .turns import aio

        return getattr(aio, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


async def interpret_turn_journal_projection(
    journal: Any,
    *,
    goal_id: str,
    agent_id: str,
    turn_key: str,
    retry_failed: bool = False,
    session_recovery_check: RecoveryCheck | None = None,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> Inspection:
    """Says of a journal whether it may be replayed, and from where its turn may go on; see `turn_journal_runtime`."""
    flow = journal_flows.interpret(
        journal,
        goal_id=goal_id,
        agent_id=agent_id,
        turn_key=turn_key,
        retry_failed=retry_failed,
        session_recovery_check=session_recovery_check,
    )
    return await run_async(flow, client or default_async_client(), timeout)


async def write_turn_journal(
    path: str | os.PathLike[str],
    journal: Journal,
    *,
    expected_effect_id: str | None = None,
    expected_previous: str | Unset | None = UNSET,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> WriteResult:
    """Commits one transition of a turn, or refuses it and changes nothing; see `turn_journal_runtime`."""
    flow = journal_flows.write(
        path, journal, expected_effect_id=expected_effect_id, expected_previous=expected_previous
    )
    return await run_async(flow, client or default_async_client(), timeout)


async def load_turn_journal(
    path: str | os.PathLike[str],
    *,
    at: int | None = None,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> Journal:
    """Reads a stored journal, as it is or as it was; see `turn_journal_runtime`."""
    return await run_async(journal_flows.load(path, at), client or default_async_client(), timeout)


async def inspect_turn_journal(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str,
    agent_id: str,
    turn_key: str,
    retry_failed: bool = False,
    session_binding_resolver: sessions.SessionBindingResolver | None = None,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> Inspection:
    """Says of a stored turn whether it may be replayed, and from where it may go on; see `turn_journal_runtime`."""
    flow = journal_flows.inspect(
        runtime_root,
        turn_journal_path(runtime_root, goal_id=goal_id, turn_key=turn_key),
        goal_id=goal_id,
        agent_id=agent_id,
        turn_key=turn_key,
        retry_failed=retry_failed,
        session_binding_resolver=session_binding_resolver,
    )
    return await run_async(flow, client or default_async_client(), timeout)


inspect_loopx_turn_journal = inspect_turn_journal


async def assess_failed_turn_retry_request(
    request: Mapping[str, Any],
    journal: Mapping[str, Any],
    *,
    session_binding_resolver: sessions.SessionBindingResolver | None,
    client: AsyncRuntimeClient | None = None,
) -> sessions.Assessment:
    """Whether a failed turn may be tried again in its session; see `turn_journal_runtime`."""
    flow = sessions.assessment_flow(request, journal, session_binding_resolver=session_binding_resolver)
    return await run_async(flow, client or default_async_client())


async def reconcile_failed_turn_retry_request(
    request: Mapping[str, Any],
    journal: Mapping[str, Any],
    *,
    session_binding_resolver: sessions.SessionBindingResolver | None,
    client: AsyncRuntimeClient | None = None,
) -> dict[str, Any]:
    """The request that tries a failed turn again in its session; see `turn_journal_runtime`."""
    return sessions.resolved_request(
        await assess_failed_turn_retry_request(
            request, journal, session_binding_resolver=session_binding_resolver, client=client
        )
    )


async def reconcile_failed_turn_session_request(
    request: Mapping[str, Any],
    *,
    session_binding: Mapping[str, Any] | None,
    client: AsyncRuntimeClient | None = None,
) -> dict[str, Any]:
    """The request that resumes a live session, once its binding is the turn's; see `turn_journal_runtime`."""
    flow = sessions.reconciliation_flow(request, session_binding)
    return sessions.resolved_request(await run_async(flow, client or default_async_client()))


async def build_host_failure_record(
    kind: str, *, attempt: int, client: AsyncRuntimeClient | None = None
) -> dict[str, Any]:
    """The `host_failure` of a journal, with what the retry policy says of it; see `turn_journal_runtime`."""
    return await run_async(sessions.host_failure_flow(kind, attempt), client or default_async_client())


async def _items(
    listing: store_flows.Listing,
    client: AsyncRuntimeClient | None,
    timeout: float | None,  # noqa: ASYNC109
) -> AsyncIterator[Any]:
    client = client or default_async_client()
    after = None
    while True:
        page = await client.call(*listing.page(after), timeout=timeout)
        for item in page[listing.field]:
            yield item
        after = page["next"]
        if after is None:
            return


async def turn_history(
    path: str | os.PathLike[str],
    *,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> list[TurnTransition]:
    """The transitions of a turn, in order; see `turn_journal_runtime`."""
    return await run_async(store_flows.history(path), client or default_async_client(), timeout)


async def verify_turn_journal(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str | None = None,
    turn_key: str | None = None,
    heads: list[TurnHead] | None = None,
    progress: Callable[[VerifiedTurn], None] | None = None,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> VerifyReport:
    """Proves turns against their histories; see `turn_journal_runtime`."""
    flow = store_flows.verify(runtime_root, goal_id=goal_id, turn_key=turn_key, heads=heads, progress=progress)
    return await run_async(flow, client or default_async_client(), timeout)


def turn_heads(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str | None = None,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,
) -> AsyncIterator[TurnHead]:
    """The end of every history, to be kept elsewhere; see `turn_journal_runtime`."""
    return _items(store_flows.heads(runtime_root, goal_id), client, timeout)


def list_turn_journals(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str | None = None,
    status: str | None = None,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,
) -> AsyncIterator[ListedTurn]:
    """Every stored turn, one by one; see `turn_journal_runtime`."""
    return _items(store_flows.turns(runtime_root, goal_id, status), client, timeout)


def recoverable_turn_journals(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str | None = None,
    retry_failed: bool = False,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,
) -> AsyncIterator[RecoverableJournal]:
    """The turns that may go on; see `turn_journal_runtime`."""
    return _items(store_flows.recoverable(runtime_root, goal_id, retry_failed), client, timeout)


async def find_settlement(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str,
    agent_id: str,
    todo_id: str,
    turn_instance_id: str,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> str | None:
    """The key of the one stored turn with that settlement identity, or None; see `turn_journal_runtime`."""
    flow = store_flows.find_settlement(
        runtime_root, goal_id=goal_id, agent_id=agent_id, todo_id=todo_id, turn_instance_id=turn_instance_id
    )
    return await run_async(flow, client or default_async_client(), timeout)


async def prune_turn_journals(
    runtime_root: str | os.PathLike[str],
    *,
    older_than: float,
    keep: int | None = None,
    goal_id: str | None = None,
    given_up: bool = False,
    dry_run: bool = False,
    run_journal: RunJournal | None = None,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> list[PrunedTurn]:
    """Removes the history, the bulk and the runs of terminal turns; see `turn_journal_runtime`."""
    from .turns.retention import prune_flow
    from .turns.root import open_root

    client = client or default_async_client()
    flow = prune_flow(
        open_root(runtime_root, client.for_threads),
        run_journal,
        older_than=older_than,
        keep=keep,
        goal_id=goal_id,
        given_up=given_up,
        dry_run=dry_run,
    )
    return await run_async(flow, client, timeout)


async def copy_store(
    source_root: str | os.PathLike[str],
    target_root: str | os.PathLike[str],
    *,
    goal_id: str | None = None,
    verify_only: bool = False,
    progress: Callable[[CopiedItem], None] | None = None,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> CopyReport:
    """Copies a root to another one, and sees that the copy is the same; see `turn_journal_runtime`."""
    from .store_copy import copy_flow

    flow = copy_flow(source_root, target_root, goal_id=goal_id, verify_only=verify_only, progress=progress)
    return await run_async(flow, client or default_async_client(), timeout)


async def check_replay(journal: RunJournal, run_id: str, loop: Loop) -> ReplayCheck:
    """Replays a stored run against a loop without running anything new; see `turn_journal_runtime`."""
    from asyncio import to_thread

    from .run_journal.rehearsal import Rehearsal

    rehearsal = await to_thread(Rehearsal, journal, run_id)
    with rehearsal:
        await ask_async(Ask(loop, (rehearsal.journal, run_id)))
    return rehearsal.verdict()


async def repair_turn_journal(
    path: str | os.PathLike[str],
    *,
    plan: str | None = None,
    client: AsyncRuntimeClient | None = None,
    timeout: float | None = None,  # noqa: ASYNC109
) -> RepairResult:
    """Says what repairing a damaged turn would cut; with a plan, cuts it; see `turn_journal_runtime`."""
    return await run_async(store_flows.repair(path, plan), client or default_async_client(), timeout)
