"""The errors that more than one module here raises, each worded once."""

from __future__ import annotations

import builtins
import sys
from typing import Any

from ..errors import InvalidJournalError, JournalCorruptError, RecordedToolError, RunNotFoundError
from .payload import DamagedPayload, decode

__all__ = ["check_run_id", "decode_row", "decode_stored", "name_of", "recorded_failure", "unknown_run"]


def check_run_id(run_id: object) -> None:
    """Refuses an id that is no text."""
    if type(run_id) is not str or not run_id:
        raise InvalidJournalError(f"A run id is a text that is not empty, not {run_id!r:.80}.", kind="invalid_request")


def unknown_run(run_id: str) -> RunNotFoundError:
    """The error for a run that is not there."""
    return RunNotFoundError(
        f"No run {run_id!r} is recorded here: `turn-journal runs` lists those that are, `open_run` begins one.",
        details={"run_id": run_id},
    )


def decode_row(run_id: str, seq: int, kind: str, stored: bytes) -> dict[str, Any]:
    """The payload of one row, an object.

    Raises:
        JournalCorruptError: It is damaged; the row is named.
    """
    payload = decode_stored(run_id, seq, kind, stored)
    if not isinstance(payload, dict):
        raise _damaged_row(run_id, seq, kind, TypeError("not an object"))
    return payload


def decode_stored(run_id: str, seq: int, kind: str, stored: bytes) -> Any:
    """The payload of one row, whatever it is.

    Raises:
        JournalCorruptError: It is damaged; the row is named.
    """
    try:
        return decode(stored)
    except DamagedPayload as error:
        raise _damaged_row(run_id, seq, kind, error) from None


def _damaged_row(run_id: str, seq: int, kind: str, cause: Exception) -> JournalCorruptError:
    return JournalCorruptError(
        f"The payload of run {run_id!r}, step {seq}, {kind} is damaged: {cause}. It was left as it is: restore a "
        "backup.",
        details={"run_id": run_id, "seq": seq, "kind": kind},
    )


def name_of(error: BaseException) -> str:
    """The name under which an error's type is recorded: bare for those of Python, else with its module."""
    kind = type(error)
    return kind.__qualname__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def recorded_failure(error_type: str, message: str, run_id: str, seq: int) -> RecordedToolError:
    """The error of a step whose failure is on record, also of the type that it had, so that a loop which caught it then
    catches it now."""
    details = {"run_id": run_id, "seq": seq, "error_type": error_type, "message": message}
    original = _known_type(error_type)
    if original is not None and not issubclass(original, RecordedToolError):
        body = {"__str__": Exception.__str__, "__reduce__": _reduce, "__module__": RecordedToolError.__module__}
        try:
            kind = type(RecordedToolError.__name__, (RecordedToolError, original), body)
            error: RecordedToolError = kind(message, details=details)
        except Exception:  # noqa: S110 - a type that wants other arguments, or cannot be combined: it says so in any way
            pass
        else:
            return error
    return RecordedToolError(message, details=details)


def _reduce(error: RecordedToolError) -> tuple[Any, ...]:
    details = error.details
    return recorded_failure, (details["error_type"], details["message"], details["run_id"], details["seq"])


def _known_type(name: str) -> type[Exception] | None:
    """An exception type that this process has already loaded; nothing is imported for a name in a journal."""
    module, _, attribute = name.rpartition(".")
    found = getattr(sys.modules.get(module) if module else builtins, attribute, None)
    return found if isinstance(found, type) and issubclass(found, Exception) else None
