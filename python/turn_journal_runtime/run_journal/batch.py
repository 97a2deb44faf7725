"""Many events in few statements.

SQLite takes many rows in one statement at about half of the price of one at a time. What is left is Python's: so events
are looked at column by column, and a run or kind that is the same in all rows is bound once. Specified in
run-journal.md, section 1.
"""

from __future__ import annotations

from functools import cache
from itertools import count
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
    payloads = encode_all([event.payload for event in events])
    return [run_ids, seqs, kinds, payloads, [event.created_at for event in events]]


def insert(cursor: sqlite3.Cursor, *columns: Sequence[Any]) -> None:
    """Inserts rows in their order, or replaces the payloads of those that are there.

    Args:
        cursor: Within a transaction.
        columns: The runs of the rows, their numbers, kinds, payloads and times.
    """
    total = len(columns[0])
    whole = total - total % _ROWS
    if whole:
        run_ids, _, kinds, *_ = columns
        are_same = (_are_same(run_ids), False, _are_same(kinds), False, False)
        once = [column[0] for column, is_same in zip(columns, are_same, strict=True) if is_same]
        each = [column for column, is_same in zip(columns, are_same, strict=True) if not is_same]
        width = len(each)
        values: list[Any] = [None] * (width * total)
        for at, column in enumerate(each):
            values[at::width] = column
        for start in range(0, whole, _ROWS):
            cursor.execute(_statement(are_same), [*once, *values[start * width : (start + _ROWS) * width]])
    cursor.executemany(APPEND, zip(*(column[whole:] for column in columns), strict=True))


def _are_same(texts: Sequence[str]) -> bool:
    return texts[0] == texts[-1] and texts.count(texts[0]) == len(texts)


@cache
def _statement(are_same: tuple[bool, ...]) -> str:
    """The statement for `_ROWS` rows; the values of columns that are the same in all of them come first."""
    once = count(1)
    shared = [f"?{next(once)}" if is_same else None for is_same in are_same]
    each = count(next(once))
    rows = (f"({', '.join(place or f'?{next(each)}' for place in shared)})" for _ in range(_ROWS))
    return _UPSERT.format(rows=", ".join(rows))
