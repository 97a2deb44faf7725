"""From what went wrong on the other side to the error that the caller sees. Specified in runtime.md, section 5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..errors import (
    InvalidJournalError,
    JournalConflictError,
    JournalCorruptError,
    JournalNotFoundError,
    JournalStoreError,
    ProtocolError,
    RuntimeCrashedError,
    RuntimeTimeoutError,
    RuntimeUnavailableError,
    StoreUnavailableError,
    TurnBusyError,
    TurnJournalError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .child import Exit

#: The core's name of an error class → ours. An unknown one becomes the root class and keeps its kind.
ERROR_CLASSES: Final[dict[str, type[TurnJournalError]]] = {
    "InvalidJournal": InvalidJournalError,
    "JournalConflict": JournalConflictError,
    "JournalNotFound": JournalNotFoundError,
    "JournalCorrupt": JournalCorruptError,
    "StoreFailure": JournalStoreError,
    "StoreUnavailable": StoreUnavailableError,
    "TurnBusy": TurnBusyError,
    "InvalidParams": InvalidJournalError,
    "ParseError": ProtocolError,
    "InvalidEnvelope": ProtocolError,
    "MethodNotFound": ProtocolError,
    "InternalError": TurnJournalError,
}


def error_of(wire: Any) -> TurnJournalError:
    """The error that an error object of the core stands for, however odd the object."""
    wire = wire if isinstance(wire, dict) else {}
    data = wire.get("data")
    data = data if isinstance(data, dict) else {}
    name, kind, details, message = data.get("error"), data.get("kind"), data.get("details"), wire.get("message")
    error = ERROR_CLASSES.get(name, TurnJournalError) if isinstance(name, str) else TurnJournalError
    return error(
        message if isinstance(message, str) else "The core answered with an error that says nothing.",
        kind=kind if isinstance(kind, str) else None,
        details=details if isinstance(details, dict) else {"code": wire.get("code")},
    )


class Lost(NamedTuple):
    """Why a process is gone: an outcome for every call that it still owed an answer."""

    error: type[TurnJournalError]
    kind: str
    message: str
    details: dict[str, Any]
    #: Whether a call that may be sent twice may be tried on a fresh process.
    may_retry: bool = False

    @property
    def is_crash(self) -> bool:
        """Whether a process was started and died of itself."""
        return self.kind in _CRASHES

    def exception(self) -> TurnJournalError:
        """A fresh error, one for each caller."""
        return self.error(self.message, kind=self.kind, details=self.details)

    @classmethod
    def of(cls, error: TurnJournalError) -> Lost:
        """The same for an error that was met before anything was sent."""
        return cls(type(error), error.kind, error.message, error.details)


_CRASHES: Final = {"runtime_crashed", "runtime_start_failed"}


#: The outcome of a call whose time was up while it waited for room among the open calls.
NO_ROOM: Final = Lost(RuntimeTimeoutError, "runtime_timeout", "As many calls are open as may be.", {})


def crashed(exit_: Exit, last_lines: Sequence[str], pid: int) -> Lost:
    """The process died with calls in flight."""
    return Lost(
        RuntimeCrashedError,
        "runtime_crashed",
        f"The runtime (process {pid}) died with the call in flight: {exit_}. Whether the call took effect is not known."
        + _quoted(last_lines),
        {**_exit_details(exit_, last_lines), "pid": pid},
        may_retry=True,
    )


def not_started(why: str, exit_: Exit, last_lines: Sequence[str]) -> Lost:
    """The process ended, or was ended, before it said that it is ready."""
    return Lost(
        RuntimeUnavailableError,
        "runtime_start_failed",
        f"The runtime did not start: {why} ({exit_}). Nothing was sent." + _quoted(last_lines),
        _exit_details(exit_, last_lines),
    )


def exhausted(error: Exception) -> RuntimeUnavailableError:
    """This process has no descriptor, no thread or no memory left to start another one with."""
    return RuntimeUnavailableError(
        f"The runtime cannot be started from this process: {error}. Nothing was sent. Free what it has used up, "
        "such as open files or threads, or raise its limits.",
        details={"reason": str(error)},
    )


def closed() -> Lost:
    """The client was closed by its owner."""
    return Lost(
        RuntimeUnavailableError,
        "client_closed",
        "The client is closed: open a new one.",
        {},
    )


def crash_loop(crashes: int, last: Lost, wait: float) -> RuntimeUnavailableError:
    """Too many deaths in a row: no more starts for a while."""
    return RuntimeUnavailableError(
        f"The runtime died {crashes} times in a row without an answer; it is tried again in {wait:.0f} s. "
        f"The last time: {last.message}",
        kind="runtime_crash_loop",
        details={**last.details, "crashes": crashes, "retry_after": round(wait, 3)},
    )


def timed_out(method: str, timeout: float, *, sent: bool) -> RuntimeTimeoutError:
    """No answer within the deadline."""
    known = "whether the core did the work is not known" if sent else "nothing was sent"
    return RuntimeTimeoutError(
        f"No answer to {method} within {timeout:g} s; {known}. Give it more time with `timeout=`.",
        details={"method": method, "timeout": timeout, "sent": sent},
    )


def _exit_details(exit_: Exit, last_lines: Sequence[str]) -> dict[str, Any]:
    return {
        "exit_code": exit_.code,
        "signal": exit_.signal,
        "stderr": list(last_lines),
    }


def _quoted(last_lines: Sequence[str]) -> str:
    return " Its last words:\n" + "\n".join(f"  {line}" for line in last_lines) if last_lines else ""
