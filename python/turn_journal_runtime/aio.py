"""The public functions for asyncio: the same names, arguments, results and errors as in the package itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import journal_flows
from . import session_recovery as sessions
from .address import turn_journal_path
from .bridge import default_async_client
from .flow import run_async
from .journal_flows import UNSET, Unset

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from .bridge import AsyncRuntimeClient
    from .documents import Inspection, Journal, RecoveryCheck, WriteResult

__all__ = [
    "UNSET",
    "assess_failed_turn_retry_request",
    "build_host_failure_record",
    "inspect_loopx_turn_journal",
    "inspect_turn_journal",
    "interpret_turn_journal_projection",
    "load_turn_journal",
    "reconcile_failed_turn_retry_request",
    "reconcile_failed_turn_session_request",
    "turn_journal_path",
    "write_turn_journal",
]


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
