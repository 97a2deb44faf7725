"""A run's record read back: its events, what a replay needs of them, and whether one follows them.

Specified in run-journal.md, section 1.
"""

from __future__ import annotations

import gc
import sqlite3
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

from ..errors import ReplayDivergenceError
from .events import JournalEvent
from .faults import decode_stored
from .payload import DamagedPayload, decode, decode_all
from .schema import ITERATION_INDEX

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from .database import Database, Row

__all__ = ["assert_replay_order", "events", "last_iteration", "replay_index", "rows_in_parts"]

# Payloads are read as bytes, which is what the decoder takes.
_EVENTS: Final = "SELECT seq, kind, CAST(payload AS BLOB), created_at FROM journal WHERE run_id = ? ORDER BY seq, rowid"
# In the order of SQLite's own index: nothing is sorted.
_INDEX: Final = "SELECT seq, kind, CAST(payload AS BLOB) FROM journal WHERE run_id = ? ORDER BY seq, kind"
_PART: Final = (
    "SELECT seq, kind, CAST(payload AS BLOB), created_at, rowid FROM journal "
    "WHERE run_id = ? AND (seq, rowid) > (?, ?) ORDER BY seq, rowid LIMIT 256"
)
#: The payloads of a part; one by itself may be longer.
_PART_BYTES: Final = 2**22
#: For a server, which sends all that it was asked for.
_SIZED_PART: Final = (
    "SELECT seq, kind, payload, created_at, rowid FROM (SELECT part.*, "  # noqa: S608
    f"SUM(octet_length(payload)) OVER (ORDER BY seq, rowid) - octet_length(payload) AS before FROM ({_PART}) AS part) "
    f"AS part WHERE before < {_PART_BYTES} ORDER BY seq, rowid"
)
_LONG_RECORD: Final = 10_000


def rows_in_parts(cursor: sqlite3.Cursor, run_id: str) -> Iterator[Row]:
    """`(seq, kind, stored payload, created_at)` in the order of `events`, never many at once: a run may be long."""
    last = (-(2**63), 0)
    while rows := _part(cursor, run_id, last):
        for row in rows:
            yield row[:4]
        last = (rows[-1][0], rows[-1][4])


def _part(cursor: sqlite3.Cursor, run_id: str, last: tuple[int, int]) -> list[Row]:
    rows, size = [], 0
    # One of its own, which is not left in the middle of its rows.
    with closing(cursor.connection.cursor()) as own:
        for row in own.execute(_PART if isinstance(cursor, sqlite3.Cursor) else _SIZED_PART, (run_id, *last)):
            rows.append(row)
            size += len(row[2] or b"")
            if size >= _PART_BYTES:
                break
    return rows


def events(database: Database, run_id: str) -> list[JournalEvent]:
    """The events by number, those of one step in the order in which they were first stored."""
    rows = database.read(_EVENTS, (run_id,))
    with _none_is_garbage(len(rows)):
        payloads = _decoded(run_id, rows)
        return [
            JournalEvent(run_id, seq, kind, payload, created_at)
            for (seq, kind, _, created_at), payload in zip(rows, payloads, strict=True)
        ]


def replay_index(database: Database, run_id: str) -> dict[tuple[int, str], dict[str, Any]]:
    """The payloads by number and kind."""
    rows = database.read(_INDEX, (run_id,))
    with _none_is_garbage(len(rows)):
        payloads = _decoded(run_id, rows)
        return {(seq, kind): payload for (seq, kind, _), payload in zip(rows, payloads, strict=True)}


def last_iteration(database: Database, run_id: str) -> int | None:
    """The highest iteration index, or None."""
    rows = database.read(
        f"SELECT {ITERATION_INDEX} AS found FROM journal WHERE run_id = ? AND kind = 'iteration' "  # noqa: S608
        f"ORDER BY {ITERATION_INDEX} DESC LIMIT 1",
        (run_id,),
    )
    highest = rows[0][0] if rows else None
    if not isinstance(highest, float):
        return highest
    # SQLite rounds integers beyond 64 bits; the payloads have them exactly.
    rows = database.read(
        "SELECT CAST(payload AS BLOB) FROM journal WHERE run_id = ? AND kind = 'iteration' "  # noqa: S608
        f"AND {ITERATION_INDEX} = ?",
        (run_id, highest),
    )
    return max(int(decode(payload)["index"]) for (payload,) in rows)


def assert_replay_order(database: Database, run_id: str, expected: Sequence[tuple[int, str]] | Sequence[str]) -> None:
    """Refuses steps that are not the recorded ones in the recorded order."""
    rows = database.read("SELECT seq, kind FROM journal WHERE run_id = ? ORDER BY seq, rowid", (run_id,))
    bare = bool(expected) and isinstance(expected[0], str)
    recorded: list[Any] = [kind if bare else (seq, kind) for seq, kind in rows]
    issued: list[Any] = [step if bare else tuple(step) for step in expected]
    if recorded == issued:
        return
    at = next(
        (at for at, pair in enumerate(zip(recorded, issued, strict=False)) if pair[0] != pair[1]),
        min(len(recorded), len(issued)),
    )
    there = f"{recorded[at]!r}" if at < len(recorded) else "nothing more"
    here = f"{issued[at]!r}" if at < len(issued) else "nothing more"
    raise ReplayDivergenceError(
        f"The replay of run {run_id!r} parts from its record at event {at}: recorded is {there}, the replay has "
        f"{here}. The loop's code or input has changed; replay with the old ones, or fork the run before it.",
        details={
            "run_id": run_id,
            "seq": rows[at][0] if at < len(rows) else None,
            "at": at,
            "recorded": list(recorded[at : at + 1]),
            "issued": list(issued[at : at + 1]),
            "fields": ["order"],
        },
    )


@contextmanager
def _none_is_garbage(count: int) -> Iterator[None]:
    """Lets the collector rest while a long record is made: it would walk all of it again and again, for nothing."""
    if count < _LONG_RECORD or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _decoded(run_id: str, rows: list[tuple[Any, ...]]) -> list[dict[str, Any]]:
    try:
        return decode_all([row[2] for row in rows])
    except DamagedPayload:
        return [decode_stored(run_id, *row[:3]) for row in rows]  # one of them is named
