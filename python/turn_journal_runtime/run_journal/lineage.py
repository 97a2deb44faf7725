"""Runs that come from runs, and where two of them part. Specified in run-journal.md, section 4."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import InvalidJournalError, JournalConflictError
from .batch import MAX_SEQ
from .events import KIND_TOOL_RESULT
from .faults import check_run_id, decode_row
from .payload import differing_fields
from .record import rows_in_parts
from .steps import is_taken, must_be_recorded, read_last_seq

if TYPE_CHECKING:
    import sqlite3

    from .database import Database, Row

__all__ = ["RunDifference", "diff", "fork", "parent"]

#: What differs between runs that did the same: keys, snapshots and times are each run's own, labels a provider's.
_INCIDENTAL: Final = frozenset(("idempotency_key", "tool_call_id", "checkpoint_id", "decided_at"))


@dataclass(frozen=True, slots=True)
class RunDifference:
    """The first step at which two runs part.

    Args:
        seq: The step's number.
        kind: The kind of the event that differs.
        fields: The fields that differ; `("kind",)` when one run has another kind of step there, or none.
        a: The first run's payload there, or None.
        b: The second run's payload there, or None.
        kinds: What kind of event each run has there; None for one that has none.
        ended: The run whose record ends there, so that it is the beginning of the other one's; None when both go on.

    Specified in run-journal.md, section 4.
    """

    seq: int
    kind: str
    fields: tuple[str, ...]
    a: dict[str, Any] | None
    b: dict[str, Any] | None
    kinds: tuple[str | None, str | None]
    ended: Literal["a", "b"] | None


def fork(database: Database, run_id: str, new_run_id: str, upto: int) -> None:
    """Copies the steps of a run up to a number into a new one."""
    check_run_id(new_run_id)
    if type(upto) is not int or not 0 <= upto <= MAX_SEQ:
        raise InvalidJournalError(f"A step's number is an integer from 0, not {upto!r:.80}.", kind="invalid_request")
    with database.transaction() as cursor:
        must_be_recorded(cursor, run_id)
        if is_taken(cursor, new_run_id):
            raise JournalConflictError(
                f"The run {new_run_id!r} exists; a fork is a new run.", details={"run_id": new_run_id}
            )
        checkpoint = _checkpoint_at(cursor, run_id, upto)
        now = time.time()
        cursor.execute(
            "INSERT INTO runs (run_id, agent, task, status, outcome, checkpoint_id, created_at, updated_at, metadata) "
            "SELECT ?, agent, task, 'running', NULL, ?, ?, ?, metadata FROM runs WHERE run_id = ?",
            (new_run_id, checkpoint, now, now, run_id),
        )
        cursor.execute(
            "INSERT INTO journal (run_id, seq, kind, payload, created_at) SELECT ?, seq, kind, payload, created_at "
            "FROM journal WHERE run_id = ? AND seq <= ? ORDER BY seq, rowid",
            (new_run_id, run_id, upto),
        )
        # A failure that the loop went on after is part of the record, also when the fork ends with it.
        cursor.execute(
            "INSERT INTO step_attempts (run_id, seq, attempt, kind, state, error_type, message, next_seq, created_at) "
            "SELECT ?, seq, attempt, kind, state, error_type, message, "
            "CASE WHEN next_seq <= ? THEN seq ELSE next_seq END, created_at FROM step_attempts "
            "WHERE run_id = ? AND seq <= ?",
            (new_run_id, read_last_seq(cursor, run_id), run_id, upto),
        )
        cursor.execute(
            "INSERT INTO run_lineage (run_id, parent_run_id, upto) VALUES (?, ?, ?)", (new_run_id, run_id, upto)
        )


def _checkpoint_at(cursor: sqlite3.Cursor, run_id: str, upto: int) -> str | None:
    """The snapshot that the last step up to there left; the run's own when nothing comes after.

    Raises:
        JournalCorruptError: A step up to there is damaged: it is not handed on.
    """
    found = None
    for seq, kind, stored, _ in rows_in_parts(cursor, run_id):
        if seq > upto:
            return found
        checkpoint = decode_row(run_id, seq, kind, stored).get("checkpoint_id")
        if kind == KIND_TOOL_RESULT and isinstance(checkpoint, str):
            found = checkpoint
    if found is not None:
        return found
    bound: tuple[str | None] | None = cursor.execute(
        "SELECT checkpoint_id FROM runs WHERE run_id = ?", (run_id,)
    ).fetchone()
    return None if bound is None else bound[0]


def parent(database: Database, run_id: str) -> tuple[str, int] | None:
    """Where a run was forked from."""
    rows = database.read("SELECT parent_run_id, upto FROM run_lineage WHERE run_id = ?", (run_id,))
    return (rows[0][0], rows[0][1]) if rows else None


def diff(database: Database, run_a: str, run_b: str) -> RunDifference | None:
    """The first event that differs, step by step."""
    with database.snapshot() as cursor:
        for run_id in (run_a, run_b):
            must_be_recorded(cursor, run_id)
        for row_a, row_b in zip_longest(rows_in_parts(cursor, run_a), rows_in_parts(cursor, run_b)):
            if row_a is None or row_b is None or row_a[:2] != row_b[:2]:
                return _parted(run_a, run_b, row_a, row_b)
            seq, kind, stored_a, _ = row_a
            stored_b = row_b[2]
            if stored_a != stored_b:
                a, b = decode_row(run_a, seq, kind, stored_a), decode_row(run_b, seq, kind, stored_b)
                fields = differing_fields(_deed(a), _deed(b))
                if fields:
                    return RunDifference(seq, kind, tuple(fields), a, b, (kind, kind), None)
    return None


def _parted(run_a: str, run_b: str, row_a: Row | None, row_b: Row | None) -> RunDifference:
    """The difference where the runs have different events next, or one of them none."""
    seq, kind = min(row[:2] for row in (row_a, row_b) if row is not None)
    here_a, here_b = (row if row is not None and row[0] == seq else None for row in (row_a, row_b))
    return RunDifference(
        seq,
        kind,
        ("kind",),
        None if here_a is None else decode_row(run_a, *here_a[:3]),
        None if here_b is None else decode_row(run_b, *here_b[:3]),
        (None if here_a is None else here_a[1], None if here_b is None else here_b[1]),
        "a" if row_a is None else "b" if row_b is None else None,
    )


def _deed(payload: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key not in _INCIDENTAL}
