"""Tool calls whose outcome is not known, and how they are settled.

A `tool_call` without a `tool_result` says that the tool may have run. What its attempts came to stands in a log of its
own (`step_attempts`), because a failed attempt is not an outcome. Specified in run-journal.md, section 3.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from ..errors import InvalidJournalError, JournalConflictError, RunNotFoundError
from .events import KIND_TOOL_CALL
from .faults import decode_row, unknown_run
from .payload import decode, same

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping

    from .database import Database

__all__ = [
    "UNSET",
    "Absent",
    "Attempt",
    "Committed",
    "Readback",
    "State",
    "UncertainStep",
    "Unknown",
    "Unset",
    "add_attempt",
    "is_taken",
    "kept_failure",
    "must_be_recorded",
    "open_calls",
    "read_attempts",
    "read_last_seq",
    "settle",
    "uncertain",
    "went_on",
]


class Unset(Enum):
    """The absence of an argument where None is a value."""

    UNSET = "unset"


UNSET: Final = Unset.UNSET


@dataclass(frozen=True, slots=True)
class Committed:
    """A readback's answer: the effect happened, and this is its result."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Absent:
    """A readback's answer: the effect did not happen."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A readback's answer: it cannot tell."""


Readback: TypeAlias = Committed | Absent | Unknown


@dataclass(frozen=True, slots=True)
class UncertainStep:
    """A tool call that may have happened.

    Args:
        run_id: The run.
        seq: The step's number.
        tool: The tool's name.
        args: What it was called with.
        idempotency_key: The key it was given.
        created_at: When it was recorded, in seconds since the epoch.
        error_type: The type of the error that the last attempt ended with; None when nothing is known.
        message: The message of that error.

    Specified in run-journal.md, section 3.
    """

    run_id: str
    seq: int
    tool: str
    args: Any
    idempotency_key: str
    created_at: float
    error_type: str | None = None
    message: str | None = None


#: What may have become of an attempt.
State: TypeAlias = Literal["failed", "absent", "again"]


class Attempt(NamedTuple):
    """What the last attempt at a step came to."""

    #: The kind of event that the step was to record first.
    kind: str
    state: State
    error_type: str | None = None
    message: str | None = None
    #: The number that the next step would have got when the loop could know; None before that.
    next_seq: int | None = None


_ATTEMPTS: Final = (
    "SELECT seq, kind, state, error_type, message, next_seq FROM step_attempts WHERE run_id = ? ORDER BY seq, attempt"
)
_ADD_ATTEMPT: Final = (
    "INSERT INTO step_attempts (run_id, seq, attempt, kind, state, error_type, message, next_seq, created_at) "
    "SELECT ?1, ?2, (SELECT COALESCE(MAX(attempt), 0) + 1 FROM step_attempts WHERE run_id = ?1 AND seq = ?2), "
    "?3, ?4, ?5, ?6, ?7, ?8"
)
_LAST_SEQ: Final = (
    "SELECT MAX(seq) FROM (SELECT MAX(seq) AS seq FROM journal WHERE run_id = ?1 "
    "UNION ALL SELECT MAX(seq) FROM step_attempts WHERE run_id = ?1) AS issued"
)
_OPEN_CALLS: Final = (
    "SELECT call.seq, CAST(call.payload AS BLOB), call.created_at FROM journal AS call WHERE call.run_id = ?1 "
    "AND call.kind = 'tool_call' AND NOT EXISTS (SELECT 1 FROM journal WHERE run_id = ?1 AND seq = call.seq "
    "AND kind = 'tool_result') ORDER BY call.seq"
)


def kept_failure(shown: Mapping[str, Any]) -> tuple[str, str]:
    """The type and message of a failure, as `redact` lets them be kept."""
    return str(shown.get("error_type", "Exception")), str(shown.get("message", ""))


def read_attempts(cursor: sqlite3.Cursor, run_id: str) -> dict[int, Attempt]:
    """The last attempt of each step of a run."""
    # Of one step's rows the last one stays.
    return {seq: Attempt(*attempt) for seq, *attempt in cursor.execute(_ATTEMPTS, (run_id,)).fetchall()}


def read_last_seq(cursor: sqlite3.Cursor, run_id: str) -> int:
    """The highest number that a run has issued, as far as the record shows; -1 when it has none."""
    (last_seq,) = cursor.execute(_LAST_SEQ, (run_id,)).fetchone()
    return -1 if last_seq is None else int(last_seq)


def add_attempt(cursor: sqlite3.Cursor, run_id: str, seq: int, attempt: Attempt) -> None:
    """Adds to a step's log."""
    cursor.execute(_ADD_ATTEMPT, (run_id, seq, *attempt, time.time()))


def went_on(attempt: Attempt | None, last_seq: int) -> bool:
    """Whether a step failed and its loop issued another one after that: then the failure is part of the record."""
    return attempt is not None and attempt.next_seq is not None and attempt.next_seq <= last_seq


def open_calls(cursor: sqlite3.Cursor, run_id: str) -> list[tuple[int, bytes, float, Attempt | None]]:
    """The calls of a run that have no outcome and that nobody has settled: number, payload, time, last attempt."""
    calls = cursor.execute(_OPEN_CALLS, (run_id,)).fetchall()
    if not calls:
        return []
    attempts = read_attempts(cursor, run_id)
    last_seq = read_last_seq(cursor, run_id)
    found = []
    for seq, stored, created_at in calls:
        attempt = attempts.get(seq)
        if not (attempt is not None and attempt.state == "absent") and not went_on(attempt, last_seq):
            found.append((seq, stored, created_at, attempt))
    return found


def uncertain(database: Database, run_id: str) -> list[UncertainStep]:
    """The open calls of a run that nobody has settled."""
    with database.snapshot() as cursor:
        calls = open_calls(cursor, run_id)
    found = []
    for seq, stored, created_at, attempt in calls:
        call = decode_row(run_id, seq, "tool_call", stored)
        found.append(
            UncertainStep(
                run_id,
                seq,
                str(call.get("name", "")),
                call.get("args"),
                str(call.get("idempotency_key", "")),
                created_at,
                attempt.error_type if attempt else None,
                attempt.message if attempt else None,
            )
        )
    return found


def must_be_recorded(cursor: sqlite3.Cursor, run_id: str) -> None:
    """Raises `RunNotFoundError` when there is no such run."""
    if cursor.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
        raise unknown_run(run_id)


def is_taken(cursor: sqlite3.Cursor, run_id: str) -> bool:
    """Whether anything is stored under an id; events may be without a run."""
    known = "SELECT 1 FROM runs WHERE run_id = ?1 UNION ALL SELECT 1 FROM journal WHERE run_id = ?1 LIMIT 1"
    return cursor.execute(known, (run_id,)).fetchone() is not None


def settle(
    database: Database,
    stored: Callable[[Mapping[str, Any]], str],
    run_id: str,
    seq: int,
    result: Any,
    absent: bool,
) -> None:
    """Records what became of an open call."""
    if (result is UNSET) is not absent:
        raise InvalidJournalError(
            "Settle a step with its result or with absent=True: one of the two.", kind="invalid_request"
        )
    settled = "" if result is UNSET else stored({"result": result})
    with database.transaction() as cursor:
        rows = dict(
            cursor.execute(
                "SELECT kind, CAST(payload AS BLOB) FROM journal WHERE run_id = ? AND seq = ? "
                "AND kind IN ('tool_call', 'tool_result')",
                (run_id, seq),
            ).fetchall()
        )
        if "tool_call" not in rows:
            must_be_recorded(cursor, run_id)
            raise RunNotFoundError(
                f"Run {run_id!r} has no tool call at step {seq}; `turn-journal run show` and `RunJournal.uncertain` "
                "list those that can be settled.",
                details={"run_id": run_id, "seq": seq},
            )
        recorded = rows.get("tool_result")
        if recorded is not None:
            outcome = decode_row(run_id, seq, "tool_result", recorded).get("result")
            if absent or not same(outcome, decode(settled.encode())["result"]):
                raise JournalConflictError(
                    f"Step {seq} of run {run_id!r} has another outcome on record, which is never overwritten.",
                    details={"run_id": run_id, "seq": seq},
                )
            return
        attempt = read_attempts(cursor, run_id).get(seq)
        last_seq = read_last_seq(cursor, run_id)
        if went_on(attempt, last_seq):
            raise JournalConflictError(
                f"Step {seq} of run {run_id!r} failed and the run went on from there; that is its recorded outcome.",
                details={"run_id": run_id, "seq": seq},
            )
        if not absent:
            cursor.execute(
                "INSERT INTO journal (run_id, seq, kind, payload, created_at) VALUES (?, ?, 'tool_result', ?, ?)",
                (run_id, seq, settled, time.time()),
            )
        elif attempt is None or attempt.state != "absent":
            add_attempt(cursor, run_id, seq, Attempt(KIND_TOOL_CALL, "absent"))
