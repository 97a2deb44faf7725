"""The public names, frozen: a name that comes or goes is a decision, and changes this list and the CHANGELOG."""

from __future__ import annotations

import importlib
import inspect

import pytest

import turn_journal_runtime
from turn_journal_runtime import aio

#: What `from turn_journal_runtime import …` may rely on.
ROOT = {
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
    "GivenUpTurn",
    "HostAdapter",
    "HostFailedError",
    "HostRequest",
    "InvalidJournalError",
    "JournalConflictError",
    "JournalCorruptError",
    "JournalEvent",
    "JournalNotFoundError",
    "JournalStoreError",
    "KIND_APPROVAL",
    "KIND_ITERATION",
    "KIND_MODEL_DECISION",
    "KIND_TOOL_CALL",
    "KIND_TOOL_RESULT",
    "KIND_VERIFICATION",
    "LOOPX_TURN_JOURNAL_SCHEMA_VERSION",
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
    "RunEndedError",
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
    "TURN_JOURNAL_INSPECTION_SCHEMA_VERSION",
    "TurnBusyError",
    "TurnContext",
    "TurnJournalError",
    "TurnRecoveryBlockedError",
    "TurnResult",
    "TurnSuspended",
    "UNSET",
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
}

#: What `turn_journal_runtime.aio` has.
AIO = {
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
}

#: What `turn_journal_runtime.worker` has, with its extra.
WORKER = {"Summary", "defer_turn", "run_worker"}


def test_the_root_exports_exactly_these_names() -> None:
    assert set(turn_journal_runtime.__all__) == ROOT
    assert len(turn_journal_runtime.__all__) == len(ROOT)


def test_the_async_module_exports_exactly_these_names() -> None:
    assert set(aio.__all__) == AIO


def test_the_workers_export_exactly_these_names_and_defer_in_both_forms_alike() -> None:
    from turn_journal_runtime import worker
    from turn_journal_runtime.worker import aio as worker_aio

    assert set(worker.__all__) == WORKER
    assert set(worker_aio.__all__) == {"defer_turn"}
    forms = [list(inspect.signature(one.defer_turn).parameters) for one in (worker, worker_aio)]
    assert forms[0] == forms[1]


@pytest.mark.parametrize("name", sorted(ROOT))
def test_a_public_name_is_there_and_says_what_it_promises(name: str) -> None:
    value = getattr(turn_journal_runtime, name)
    assert name in dir(turn_journal_runtime)
    if inspect.isclass(value) or inspect.isfunction(value):
        assert inspect.getdoc(value)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        turn_journal_runtime.no_such_name  # noqa: B018


def test_every_sync_function_that_asks_the_core_has_its_async_twin() -> None:
    asking = {
        name
        for name in ROOT
        if inspect.isfunction(value := getattr(turn_journal_runtime, name))
        and "client" in inspect.signature(value).parameters
    }
    assert asking <= AIO
    for name in asking:
        twin = getattr(aio, name)
        answers = str(inspect.signature(twin).return_annotation)
        assert inspect.iscoroutinefunction(twin) or answers.startswith("AsyncIterator"), name
        sync = getattr(turn_journal_runtime, name)
        assert list(inspect.signature(twin).parameters) == list(inspect.signature(sync).parameters), name


@pytest.mark.parametrize("room", ["journal", "session_recovery", "run_journal", "turns", "hosts", "chat", "bridge"])
def test_the_root_only_passes_on_what_its_rooms_export(room: str) -> None:
    module = importlib.import_module(f"turn_journal_runtime.{room}")
    for name in set(getattr(module, "__all__", ())) & ROOT:
        assert getattr(turn_journal_runtime, name) is getattr(module, name)
