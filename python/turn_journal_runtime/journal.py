"""Turn journals for sync callers: inspect, write, read. `turn_journal_runtime.aio` has the same for asyncio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import journal_flows
from .address import turn_journal_path
from .bridge import default_client
from .flow import run
from .journal_flows import UNSET, Unset

if TYPE_CHECKING:
    import os

    from .bridge import RuntimeClient
    from .documents import Inspection, Journal, RecoveryCheck, WriteResult
    from .session_recovery import SessionBindingResolver

__all__ = [
    "UNSET",
    "inspect_loopx_turn_journal",
    "inspect_turn_journal",
    "interpret_turn_journal_projection",
    "load_turn_journal",
    "turn_journal_path",
    "write_turn_journal",
]


def interpret_turn_journal_projection(
    journal: Any,
    *,
    goal_id: str,
    agent_id: str,
    turn_key: str,
    retry_failed: bool = False,
    session_recovery_check: RecoveryCheck | None = None,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> Inspection:
    """Says of a journal whether it may be replayed as a record, and whether and from where its turn may go on.

    Args:
        journal: The journal as a dict; what is wrong with it is reported as violations.
        goal_id: The goal that the turn is expected to be of.
        agent_id: The agent that is expected to own it.
        turn_key: The turn that it is expected to be.
        retry_failed: Whether a failed turn is to be tried again.
        session_recovery_check: What is known of the host's session.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for the answer; the setting's default when None.

    Raises:
        InvalidJournalError: The journal is not JSON within the limits; `details["path"]` is the place.
        RuntimeUnavailableError, RuntimeTimeoutError, RuntimeCrashedError, ProtocolError: The core did not answer.

    Specified in turn-journal.md, sections 3 to 5.
    """
    flow = journal_flows.interpret(
        journal,
        goal_id=goal_id,
        agent_id=agent_id,
        turn_key=turn_key,
        retry_failed=retry_failed,
        session_recovery_check=session_recovery_check,
    )
    return run(flow, client or default_client(), timeout)


def write_turn_journal(
    path: str | os.PathLike[str],
    journal: Journal,
    *,
    expected_effect_id: str | None = None,
    expected_previous: str | Unset | None = UNSET,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> WriteResult:
    """Commits one transition of a turn, atomically and durably, or refuses it and changes nothing.

    Args:
        path: Where the turn lives, from `turn_journal_path`.
        journal: The whole journal as it is to stand.
        expected_effect_id: The effect id that the journal must have; None expects nothing.
        expected_previous: The operation id of the stored journal that this one follows, None for "nothing is stored";
            not given: not checked.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for the answer; the setting's default when None.

    Returns:
        `appended` and `replayed` (it stood already), the turn's `effect_id` and the journal's `operation_id`.

    Raises:
        InvalidJournalError: The journal, its path or the expected effect is not acceptable.
        JournalConflictError: The journal does not follow from what is stored.
        JournalCorruptError: What is stored is damaged.
        TurnBusyError: Another writer holds the turn.
        JournalStoreError: The disk refused.

    Specified in turn-journal.md, section 6.
    """
    flow = journal_flows.write(
        path, journal, expected_effect_id=expected_effect_id, expected_previous=expected_previous
    )
    return run(flow, client or default_client(), timeout)


def load_turn_journal(
    path: str | os.PathLike[str],
    *,
    at: int | None = None,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> Journal:
    """Reads a stored journal, as it is or as it was.

    Args:
        path: Where the turn lives, from `turn_journal_path`.
        at: The number of a transition of its history; None: as it is.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for the answer; the setting's default when None.

    Raises:
        JournalNotFoundError: Nothing is stored there.
        JournalCorruptError: What is stored is damaged.

    Specified in runtime.md, section 6.
    """
    return run(journal_flows.load(path, at), client or default_client(), timeout)


def inspect_turn_journal(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str,
    agent_id: str,
    turn_key: str,
    retry_failed: bool = False,
    session_binding_resolver: SessionBindingResolver | None = None,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> Inspection:
    """Says of a stored turn what `interpret_turn_journal_projection` says of a journal; nothing is written.

    Args:
        runtime_root: The folder that holds all turns.
        goal_id: The goal of the turn.
        agent_id: The agent that is expected to own it.
        turn_key: The key of the turn.
        retry_failed: Whether a failed turn is to be tried again.
        session_binding_resolver: Asked for the live session's binding when a failed host's session outlived it.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for each answer; the setting's default when None.

    Raises:
        InvalidJournalError: The address names no turn.
        JournalNotFoundError: No such turn is stored.
        JournalCorruptError: What is stored is damaged.

    Specified in turn-journal.md, sections 3 to 5, and session-recovery.md, section 2.
    """
    flow = journal_flows.inspect(
        runtime_root,
        turn_journal_path(runtime_root, goal_id=goal_id, turn_key=turn_key),
        goal_id=goal_id,
        agent_id=agent_id,
        turn_key=turn_key,
        retry_failed=retry_failed,
        session_binding_resolver=session_binding_resolver,
    )
    return run(flow, client or default_client(), timeout)


#: The name under which LoopX has it.
inspect_loopx_turn_journal = inspect_turn_journal
