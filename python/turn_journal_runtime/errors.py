"""Every error this package raises.

    TurnJournalError
    ├── InvalidJournalError (ValueError)   what was handed in is not acceptable; nothing was sent or changed
    ├── JournalConflictError               acceptable by itself, not after what is stored; nothing was changed
    │   └── RunEndedError                  the run has ended, and the step is not on record
    ├── JournalNotFoundError               nothing is stored at that address
    │   ├── RunNotFoundError (KeyError)    no such run, or no such step of it
    │   └── SessionNotFoundError (KeyError)  no such conversation, or a closed one
    ├── JournalCorruptError                what is stored is damaged; it was left as it is
    ├── JournalStoreError                  the store refused: permission, full disk, a file system without locks
    │   └── StoreUnavailableError          the database does not answer; the same call may be made again
    ├── TurnBusyError                      somebody else drives the turn or the run
    ├── UncertainEffectError               a tool may have run; somebody has to say what became of it
    ├── ReplayDivergenceError (RuntimeError)  a replayed step is not the recorded one; nothing was run or changed
    ├── RecordedToolError                  the recorded failure of a step, raised again on replay
    ├── TurnSuspended                      a recorded question waits for its answer, or a sleep for its time
    ├── ResumeBudgetExhaustedError         the run was resumed too often; nothing was run
    ├── RuntimeUnavailableError            no Node, a Node that is too old, or a core that cannot start
    ├── RuntimeTimeoutError                no answer within the deadline; the outcome is not known
    ├── RuntimeCrashedError                the core died with the call in flight; the outcome is not known
    ├── ProtocolError                      a response that breaks its schema
    ├── FailedTurnSessionRecoveryError (ValueError)  a failed turn may not be tried again in its session
    ├── TurnRecoveryBlockedError           a turn may not go on; its decision says why
    └── HostFailedError                    a host failed, by the kinds of the contract

Those of sessions, turns and hosts live in the rooms that raise them.

`kind` is the stable name of the case, `details` its fields. Messages say what is wrong and what to do, and carry no
journal bodies. All errors can be pickled. Specified in runtime.md, section 5.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "InvalidJournalError",
    "JournalConflictError",
    "JournalCorruptError",
    "JournalNotFoundError",
    "JournalStoreError",
    "ProtocolError",
    "RecordedToolError",
    "ReplayDivergenceError",
    "ResumeBudgetExhaustedError",
    "RunEndedError",
    "RunNotFoundError",
    "RuntimeCrashedError",
    "RuntimeTimeoutError",
    "RuntimeUnavailableError",
    "StoreUnavailableError",
    "TurnBusyError",
    "TurnJournalError",
    "TurnSuspended",
    "UncertainEffectError",
]


class TurnJournalError(Exception):
    """The root of the tree.

    Args:
        message: What is wrong and what to do.
        kind: The stable name of the case; each class has a default.
        details: The fields of the case, JSON values only.
    """

    default_kind: ClassVar[str] = "turn_journal_error"
    #: Whether the same call may succeed later, unchanged, without the risk of doing something twice.
    is_retryable: ClassVar[bool] = False

    def __init__(self, message: str, *, kind: str | None = None, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.kind: str = kind or self.default_kind
        self.details: dict[str, Any] = dict(details or {})

    @property
    def message(self) -> str:
        """The text of the error."""
        return str(self.args[0])

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.message, self.kind, self.details)


def _rebuild(error: type[TurnJournalError], message: str, kind: str, details: dict[str, Any]) -> TurnJournalError:
    return error(message, kind=kind, details=details)


class InvalidJournalError(TurnJournalError, ValueError):
    """What was handed in is not acceptable; nothing was changed."""

    default_kind = "journal_snapshot_invalid"


class JournalConflictError(TurnJournalError):
    """The write does not follow from what is stored; nothing was changed."""

    default_kind = "journal_transition_conflict"


class RunEndedError(JournalConflictError):
    """The run has ended: its record is replayed, and the step that is not on record was not taken. `details` has
    `run_id`. Specified in run-journal.md, section 4."""

    default_kind = "run_ended"


class JournalNotFoundError(TurnJournalError):
    """No journal stands at that address."""

    default_kind = "journal_not_found"


class RunNotFoundError(JournalNotFoundError, KeyError):
    """No run of that id is recorded, or no such step of it."""

    default_kind = "run_not_found"

    def __str__(self) -> str:
        return self.message  # a KeyError would show the message quoted


class JournalCorruptError(TurnJournalError):
    """What is stored is damaged; it was left as it is."""

    default_kind = "journal_corrupt"


class JournalStoreError(TurnJournalError):
    """The store itself refused: a permission, a full disk, a file system that cannot hold locks."""

    default_kind = "store_io_failed"


class StoreUnavailableError(JournalStoreError):
    """The database did not answer in time. With kind `store_outcome_unknown` it was lost while it committed: the same
    call finds out what became of it, and does nothing twice."""

    default_kind = "store_unavailable"
    is_retryable = True


class TurnBusyError(TurnJournalError):
    """Somebody else holds the turn or drives the run; `details` names the holder where it is known."""

    default_kind = "turn_busy"
    is_retryable = True


class UncertainEffectError(TurnJournalError):
    """A tool may have run and nothing tells whether it did; `details` has `run_id`, `seq`, `tool`, `idempotency_key`
    and `choices`. Specified in run-journal.md, section 3."""

    default_kind = "effect_uncertain"


class ReplayDivergenceError(TurnJournalError, RuntimeError):
    """A replayed step is not the recorded one; nothing was run, and the record is untouched. `details` has `run_id`,
    `seq`, `recorded`, `issued` and `fields`. Specified in run-journal.md, section 4."""

    default_kind = "replay_divergence"


class RecordedToolError(TurnJournalError):
    """A step that failed when it ran, and whose loop went on, fails again on replay without running; `details` has
    `run_id`, `seq`, `error_type` and `message`. Specified in run-journal.md, section 4."""

    default_kind = "tool_failed"


class TurnSuspended(TurnJournalError):
    """The run waits in no process, for a decision or for its time. `details` has `run_id` and `seq`; `question` and
    `binds`, drive it again after `RunJournal.approve`; or `due_at`, in seconds since the epoch, drive it again then.
    Specified in run-journal.md, section 4."""

    default_kind = "turn_suspended"


class ResumeBudgetExhaustedError(TurnJournalError):
    """The run has been resumed `max_resumes` times without an end; nothing was run. `details` has `run_id`, `resumes`
    and `max_resumes`. Specified in run-journal.md, section 4."""

    default_kind = "resume_budget_exhausted"


class RuntimeUnavailableError(TurnJournalError):
    """The core cannot be started; nothing was sent."""

    default_kind = "runtime_unavailable"


class RuntimeTimeoutError(TurnJournalError):
    """No answer came within the deadline; whether the core did the work is not known."""

    default_kind = "runtime_timeout"


class RuntimeCrashedError(TurnJournalError):
    """The core died with the call in flight; `details` has its exit code or signal and its last stderr lines."""

    default_kind = "runtime_crashed"
    is_retryable = True


class ProtocolError(TurnJournalError):
    """The core answered with something that its schema does not allow."""

    default_kind = "protocol_error"
