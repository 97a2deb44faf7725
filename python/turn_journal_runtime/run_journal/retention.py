"""Runs that are over, removed whole. Specified in run-journal.md, section 1.

A run that may still be needed stays: one that goes on, one with an effect whose outcome nobody knows, one inside of a
tool call that is still open, which would do its steps again, and one of a turn, of which only the turn's root knows
whether it is over.
"""

from __future__ import annotations

import math
import re
import time
from typing import TYPE_CHECKING, Final

from ..errors import InvalidJournalError
from .events import RUNNING, TERMINAL_STATUSES
from .payload import DamagedPayload, decode
from .schema import RUN_TABLES
from .steps import open_calls

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from .database import Database
    from .journal import RunJournal
    from .ownership import Ownership

__all__ = ["delete_rows", "prunable", "remove", "remove_all", "turn_of"]

#: How long one transaction removes runs, in seconds: so long a writer waits, or as long as a single run takes.
_AT_A_TIME: Final = 0.02
#: Who waits for a file asks again after at most so many seconds, and finds it free in this pause between transactions.
_PAUSE: Final = 0.1
#: How many runs one transaction looks at, at most.
_LOOKED_AT: Final = 500

#: A turn's key, and what is named after it: work that was begun anew, and the runs inside of its tools.
_OF_A_TURN: Final = re.compile(r"(sha256:[0-9a-f]{64})(?:\.[0-9]+)?(?::.*)?", re.DOTALL)
_ENDED: Final = ", ".join(f"'{status}'" for status in sorted(TERMINAL_STATUSES))
_PRUNABLE: Final = f"SELECT run_id, updated_at FROM runs WHERE status IN ({_ENDED}) ORDER BY updated_at, rowid"  # noqa: S608
_OPEN: Final = (
    "SELECT call.run_id, status, CAST(call.payload AS BLOB) FROM runs JOIN journal AS call "
    "ON call.run_id = runs.run_id WHERE call.kind = 'tool_call' AND NOT EXISTS (SELECT 1 FROM journal AS result "
    "WHERE result.run_id = call.run_id AND result.seq = call.seq AND result.kind = 'tool_result')"
)
_STANDING: Final = (
    "SELECT status, updated_at, owner FROM runs LEFT JOIN run_drives ON run_drives.run_id = runs.run_id "
    "WHERE runs.run_id = ?"
)


def turn_of(run_id: str) -> str | None:
    """The key of the turn that a run belongs to; None when it is no turn's."""
    found = _OF_A_TURN.fullmatch(run_id)
    return None if found is None else found[1]


def prunable(database: Database, older_than: float, keep: int | None) -> tuple[list[str], float]:
    """The runs that ended so long ago, oldest first, and the moment that is meant.

    Raises:
        InvalidJournalError: An age or a number that is none.
    """
    if type(older_than) not in (int, float) or not math.isfinite(older_than) or older_than < 0:
        raise InvalidJournalError(f"An age is a number of seconds, not {older_than!r:.80}.", kind="invalid_request")
    if keep is not None and (type(keep) is not int or keep < 0):
        raise InvalidJournalError(f"How many runs stay is an integer from 0, not {keep!r:.80}.", kind="invalid_request")
    before = time.time() - older_than
    ended = [row for row in database.read(_PRUNABLE) if turn_of(row[0]) is None]
    going = ended[: len(ended) - (keep or 0)] if len(ended) > (keep or 0) else []
    # After the runs: a call that was begun since is of none of them.
    needed = _inside_of_open_calls(database)
    return [run_id for run_id, updated_at in going if updated_at <= before and run_id not in needed], before


def _inside_of_open_calls(database: Database) -> set[str]:
    """The runs that tools go on with when they are begun again: those of a run that goes on, and of one that has ended
    and stays, which may be opened again or forked."""
    with database.snapshot() as cursor:
        calls = cursor.execute(_OPEN).fetchall()
        ended = dict.fromkeys(run_id for run_id, status, _ in calls if status != RUNNING)
        stored = [payload for _, status, payload in calls if status == RUNNING]
        stored += [payload for run_id in ended for _, payload, *_ in open_calls(cursor, run_id)]
    needed = set()
    for payload in stored:
        try:
            needed.add(str(decode(payload).get("idempotency_key")))
        except (DamagedPayload, AttributeError):
            continue  # such a run cannot be driven
    return needed


def remove_all(
    journal: RunJournal, run_ids: Sequence[str], *, ended_before: float | None = None, dry_run: bool
) -> dict[str, bool | None]:
    """What becomes of each of these runs: see `remove`, of which it takes as many transactions as it needs."""
    gone: dict[str, bool | None] = {}
    while len(gone) < len(run_ids):
        began = time.monotonic()
        part = run_ids[len(gone) : len(gone) + _LOOKED_AT]
        gone |= journal._remove(part, ended_before=ended_before, dry_run=dry_run)
        if len(gone) < len(run_ids) and not dry_run:
            # As long as it took: without a pause who waits would hardly ever come between.
            time.sleep(min(time.monotonic() - began, _PAUSE))
    if not dry_run and any(gone.values()):
        journal._database.empty_log()
    return gone


def remove(
    database: Database, ownership: Ownership, run_ids: Sequence[str], *, ended_before: float | None, dry_run: bool
) -> dict[str, bool | None]:
    """Removes some of these runs in one transaction, as many as there is time for, the first one in any case.

    Args:
        database: The database.
        ownership: Who drives what.
        run_ids: The runs.
        ended_before: Only those that had ended by then; None: also one that never will, because its turn is over.
        dry_run: Only say what would go.

    Returns:
        For each run that there was time for, whether it went, or would; None: it is not there.
    """
    gone: dict[str, bool | None] = {}
    until = time.monotonic() + _AT_A_TIME
    with database.snapshot() if dry_run else database.transaction() as cursor:
        for run_id in run_ids:
            gone[run_id] = _may_go(cursor, ownership, run_id, ended_before)
            if gone[run_id] and not dry_run:
                delete_rows(cursor, run_id)
            if time.monotonic() >= until:
                break
    return gone


def _may_go(cursor: sqlite3.Cursor, ownership: Ownership, run_id: str, ended_before: float | None) -> bool | None:
    found = cursor.execute(_STANDING, (run_id,)).fetchone()
    if found is None:
        return None
    status, updated_at, owner = found
    if ended_before is not None and (status not in TERMINAL_STATUSES or updated_at > ended_before):
        return False
    return not ownership.is_driven(run_id, owner) and not open_calls(cursor, run_id)


def delete_rows(cursor: sqlite3.Cursor, run_id: str) -> None:
    """All that is stored of a run; what was forked from it is whole by itself, and still names it."""
    for table in RUN_TABLES:
        cursor.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608 - names of ours
