"""Runs that come from runs, and where two of them part. Specified in run-journal.md, section 4."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import JournalConflictError
from .faults import check_run_id, decode_row, unknown_run
from .payload import differing_fields
from .steps import read_last_seq

if TYPE_CHECKING:
    import sqlite3

    from .database import Database

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

    Specified in run-journal.md, section 4.
    """

    seq: int
    kind: str
    fields: tuple[str, ...]
    a: dict[str, Any] | None
    b: dict[str, Any] | None


def fork(database: Database, run_id: str, new_run_id: str, upto: int) -> None:
    """Copies the steps of a run up to a number into a new one."""
    check_run_id(new_run_id)
    with database.transaction() as cursor:
        if cursor.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
            raise unknown_run(run_id)
        taken = "SELECT 1 FROM runs WHERE run_id = ?1 UNION ALL SELECT 1 FROM journal WHERE run_id = ?1 LIMIT 1"
        if cursor.execute(taken, (new_run_id,)).fetchone() is not None:
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
    """The snapshot that the last step up to there left; the run's own when nothing comes after."""
    rows = cursor.execute(
        "SELECT seq, CAST(payload AS BLOB) FROM journal WHERE run_id = ? AND seq <= ? AND kind = 'tool_result' "
        "ORDER BY seq DESC",
        (run_id, upto),
    )
    for seq, payload in rows.fetchall():
        found = decode_row(run_id, seq, "tool_result", payload).get("checkpoint_id")
        if isinstance(found, str):
            return found
    later = cursor.execute("SELECT 1 FROM journal WHERE run_id = ? AND seq > ? LIMIT 1", (run_id, upto)).fetchone()
    bound = cursor.execute("SELECT checkpoint_id FROM runs WHERE run_id = ?", (run_id,)).fetchone()
    return bound[0] if bound is not None and later is None else None


def parent(database: Database, run_id: str) -> tuple[str, int] | None:
    """Where a run was forked from."""
    rows = database.read("SELECT parent_run_id, upto FROM run_lineage WHERE run_id = ?", (run_id,))
    return (rows[0][0], rows[0][1]) if rows else None


def diff(database: Database, run_a: str, run_b: str) -> RunDifference | None:
    """The first event that differs, step by step."""
    query = "SELECT seq, kind, CAST(payload AS BLOB) FROM journal WHERE run_id = ? ORDER BY seq, rowid"
    with database.snapshot() as cursor:
        for run_id in (run_a, run_b):
            if cursor.execute("SELECT 1 FROM runs WHERE run_id = ?", (run_id,)).fetchone() is None:
                raise unknown_run(run_id)
        rows_a = cursor.execute(query, (run_a,)).fetchall()
        rows_b = cursor.execute(query, (run_b,)).fetchall()
    at = 0
    while at < len(rows_a) and at < len(rows_b):
        (seq_a, kind_a, stored_a), (seq_b, kind_b, stored_b) = rows_a[at], rows_b[at]
        if (seq_a, kind_a) != (seq_b, kind_b):
            break
        if stored_a != stored_b:
            a = decode_row(run_a, seq_a, kind_a, stored_a)
            b = decode_row(run_b, seq_b, kind_b, stored_b)
            fields = differing_fields(_deed(a), _deed(b))
            if fields:
                return RunDifference(seq_a, kind_a, tuple(fields), a, b)
        at += 1
    next_a, next_b = rows_a[at : at + 1], rows_b[at : at + 1]
    if not next_a and not next_b:
        return None
    seq, kind = min(row[:2] for row in next_a + next_b)
    return RunDifference(
        seq,
        kind,
        ("kind",),
        decode_row(run_a, *next_a[0]) if next_a and next_a[0][0] == seq else None,
        decode_row(run_b, *next_b[0]) if next_b and next_b[0][0] == seq else None,
    )


def _deed(payload: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in payload.items() if key not in _INCIDENTAL}
