"""Many events in few statements.

SQLite takes many rows in one statement at about half of the price of one at a time. What is left is Python's: so events
are looked at column by column, and the id of a batch's one run is bound once. Specified in run-journal.md, section 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from .events import KINDS
from .payload import encode_all

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from .events import JournalEvent

__all__ = ["APPEND", "MAX_SEQ", "columns", "insert"]

MAX_SEQ: Final = 2**63 - 1
_UPSERT: Final = (
    "INSERT INTO journal (run_id, seq, kind, payload, created_at) VALUES {rows} "
    "ON CONFLICT (run_id, seq, kind) DO UPDATE SET payload = excluded.payload, created_at = excluded.created_at"
)
_ROW: Final = "(?, ?, ?, ?, ?)"
#: One event.
APPEND: Final = _UPSERT.format(rows=_ROW)
#: Rows of one statement.
_ROWS: Final = 250
_OF_ANY_RUNS: Final = _UPSERT.format(rows=", ".join([_ROW] * _ROWS))
_OF_ONE_RUN: Final = _UPSERT.format(
    rows=", ".join(f"(?1, ?{at}, ?{at + 1}, ?{at + 2}, ?{at + 3})" for at in range(2, 4 * _ROWS + 2, 4))
)


def columns(events: Sequence[JournalEvent]) -> list[Sequence[Any]] | None:
    """The ids, numbers, kinds, payloads and times of events; None when one of the first three is not as it has to be.

    Raises:
        InvalidJournalError: A payload cannot be stored exactly.
    """
    run_ids = [event.run_id for event in events]
    seqs = [event.seq for event in events]
    kinds = [event.kind for event in events]
    if not (
        {str}.issuperset(map(type, run_ids))
        and "" not in run_ids
        and {str}.issuperset(map(type, kinds))
        and KINDS.issuperset(kinds)
        and {int}.issuperset(map(type, seqs))
        and min(seqs, default=0) >= 0
        and max(seqs, default=0) <= MAX_SEQ
    ):
        return None
    payloads = [event.payload for event in events]
    texts: list[str] = []
    for start in range(0, len(payloads), _ROWS):
        texts += encode_all(payloads[start : start + _ROWS])
    return [run_ids, seqs, kinds, texts, [event.created_at for event in events]]


def insert(cursor: sqlite3.Cursor, run_ids: Sequence[str], *others: Sequence[Any]) -> None:
    """Inserts rows in their order, or replaces the payloads of those that are there.

    Args:
        cursor: Within a transaction.
        run_ids: The run of each row.
        others: Their numbers, kinds, payloads and times.
    """
    count = len(run_ids)
    whole = count - count % _ROWS
    is_one_run = len(set(run_ids)) == 1
    once = run_ids[:1] if is_one_run else []
    each = others if is_one_run else (run_ids, *others)
    width = len(each)
    values: list[Any] = [None] * (width * count)
    for at, column in enumerate(each):
        values[at::width] = column
    sql = _OF_ONE_RUN if is_one_run else _OF_ANY_RUNS
    for start in range(0, whole * width, _ROWS * width):
        cursor.execute(sql, [*once, *values[start : start + _ROWS * width]])
    cursor.executemany(APPEND, zip(run_ids[whole:], *(column[whole:] for column in others), strict=True))
