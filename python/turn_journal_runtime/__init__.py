"""Durable turns for AI agents: kill an agent anywhere, start it again, and no tool runs twice.

`turn_journal_runtime.aio` has the same functions for asyncio.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from .bridge import AsyncRuntimeClient, RuntimeClient
from .documents import LOOPX_TURN_JOURNAL_SCHEMA_VERSION, TURN_JOURNAL_INSPECTION_SCHEMA_VERSION
from .errors import (
    InvalidJournalError,
    JournalConflictError,
    JournalCorruptError,
    JournalNotFoundError,
    JournalStoreError,
    ProtocolError,
    RecordedToolError,
    ReplayDivergenceError,
    ResumeBudgetExhaustedError,
    RunNotFoundError,
    RuntimeCrashedError,
    RuntimeTimeoutError,
    RuntimeUnavailableError,
    StoreUnavailableError,
    TurnBusyError,
    TurnJournalError,
    TurnSuspended,
    UncertainEffectError,
)
from .journal import (
    UNSET,
    inspect_loopx_turn_journal,
    inspect_turn_journal,
    interpret_turn_journal_projection,
    load_turn_journal,
    turn_journal_path,
    write_turn_journal,
)
from .session_recovery import (
    FailedTurnSessionRecoveryError,
    SessionBindingResolver,
    assess_failed_turn_retry_request,
    build_host_failure_record,
    build_host_recovery_record,
    reconcile_failed_turn_retry_request,
    reconcile_failed_turn_session_request,
)
from .store import (
    find_settlement,
    list_turn_journals,
    prune_turn_journals,
    recoverable_turn_journals,
    repair_turn_journal,
    turn_heads,
    turn_history,
    verify_turn_journal,
)

if TYPE_CHECKING:
    from .chat import ChatRuntime, ChatSession, ChatTurn, SessionNotFoundError, SessionStore, SubmittedTurn
    from .hosts import CallableHost, ClaudeCliHost, CodexCliHost, SubprocessHost
    from .replay_check import ReplayCheck, check_replay
    from .run_journal import (
        KIND_APPROVAL,
        KIND_ITERATION,
        KIND_MODEL_DECISION,
        KIND_TOOL_CALL,
        KIND_TOOL_RESULT,
        KIND_VERIFICATION,
        Absent,
        AsyncDurableRun,
        AsyncTurnContext,
        Checkpoints,
        Committed,
        DurableRun,
        GitCheckpoints,
        JournalEvent,
        PendingApproval,
        PendingSleep,
        RunDifference,
        RunJournal,
        RunMeta,
        TurnContext,
        UncertainStep,
        Unknown,
        current_idempotency_key,
    )
    from .store_copy import copy_store
    from .turns import (
        DueTurn,
        HostAdapter,
        HostFailedError,
        HostRequest,
        Owed,
        Provider,
        RecoverableTurn,
        Refusal,
        TurnRecoveryBlockedError,
        TurnResult,
        acknowledge_turn,
        recoverable_turns,
        run_turn,
    )

__all__ = [
    "KIND_APPROVAL",
    "KIND_ITERATION",
    "KIND_MODEL_DECISION",
    "KIND_TOOL_CALL",
    "KIND_TOOL_RESULT",
    "KIND_VERIFICATION",
    "LOOPX_TURN_JOURNAL_SCHEMA_VERSION",
    "TURN_JOURNAL_INSPECTION_SCHEMA_VERSION",
    "UNSET",
    "Absent",
    "AsyncDurableRun",
    "AsyncRuntimeClient",
    "AsyncTurnContext",
    "CallableHost",
    "ChatRuntime",
    "ChatSession",
    "ChatTurn",
    "Checkpoints",
    "ClaudeCliHost",
    "CodexCliHost",
    "Committed",
    "DueTurn",
    "DurableRun",
    "FailedTurnSessionRecoveryError",
    "GitCheckpoints",
    "HostAdapter",
    "HostFailedError",
    "HostRequest",
    "InvalidJournalError",
    "JournalConflictError",
    "JournalCorruptError",
    "JournalEvent",
    "JournalNotFoundError",
    "JournalStoreError",
    "Owed",
    "PendingApproval",
    "PendingSleep",
    "ProtocolError",
    "Provider",
    "RecordedToolError",
    "RecoverableTurn",
    "Refusal",
    "ReplayCheck",
    "ReplayDivergenceError",
    "ResumeBudgetExhaustedError",
    "RunDifference",
    "RunJournal",
    "RunMeta",
    "RunNotFoundError",
    "RuntimeClient",
    "RuntimeCrashedError",
    "RuntimeTimeoutError",
    "RuntimeUnavailableError",
    "SessionBindingResolver",
    "SessionNotFoundError",
    "SessionStore",
    "StoreUnavailableError",
    "SubmittedTurn",
    "SubprocessHost",
    "TurnBusyError",
    "TurnContext",
    "TurnJournalError",
    "TurnRecoveryBlockedError",
    "TurnResult",
    "TurnSuspended",
    "UncertainEffectError",
    "UncertainStep",
    "Unknown",
    "acknowledge_turn",
    "assess_failed_turn_retry_request",
    "build_host_failure_record",
    "build_host_recovery_record",
    "check_replay",
    "copy_store",
    "current_idempotency_key",
    "find_settlement",
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

#: Rooms that are opened when a name of theirs is first used, so that importing the package stays quick.
_ROOM_OF: dict[str, str] = {
    "ChatRuntime": "chat",
    "ChatSession": "chat",
    "ChatTurn": "chat",
    "SessionNotFoundError": "chat",
    "SessionStore": "chat",
    "SubmittedTurn": "chat",
    "CallableHost": "hosts",
    "ClaudeCliHost": "hosts",
    "CodexCliHost": "hosts",
    "SubprocessHost": "hosts",
    "KIND_APPROVAL": "run_journal",
    "KIND_ITERATION": "run_journal",
    "KIND_MODEL_DECISION": "run_journal",
    "KIND_TOOL_CALL": "run_journal",
    "KIND_TOOL_RESULT": "run_journal",
    "KIND_VERIFICATION": "run_journal",
    "Absent": "run_journal",
    "AsyncDurableRun": "run_journal",
    "AsyncTurnContext": "run_journal",
    "Checkpoints": "run_journal",
    "Committed": "run_journal",
    "DurableRun": "run_journal",
    "GitCheckpoints": "run_journal",
    "JournalEvent": "run_journal",
    "PendingApproval": "run_journal",
    "PendingSleep": "run_journal",
    "RunDifference": "run_journal",
    "RunJournal": "run_journal",
    "RunMeta": "run_journal",
    "TurnContext": "run_journal",
    "UncertainStep": "run_journal",
    "Unknown": "run_journal",
    "current_idempotency_key": "run_journal",
    "ReplayCheck": "replay_check",
    "check_replay": "replay_check",
    "copy_store": "store_copy",
    "HostAdapter": "turns",
    "HostFailedError": "turns",
    "HostRequest": "turns",
    "DueTurn": "turns",
    "Owed": "turns",
    "Provider": "turns",
    "RecoverableTurn": "turns",
    "Refusal": "turns",
    "TurnRecoveryBlockedError": "turns",
    "TurnResult": "turns",
    "acknowledge_turn": "turns",
    "recoverable_turns": "turns",
    "run_turn": "turns",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("turn-journal-runtime")
    room = _ROOM_OF.get(name)
    if room is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f".{room}", __name__), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_ROOM_OF, "__version__"})
