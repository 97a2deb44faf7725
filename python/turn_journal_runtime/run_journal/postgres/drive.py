"""One drive of one run in PostgreSQL: every write is one statement, which asks for the fence and may arrive twice.

A statement locks the row of the drive, shared with the other steps of this driver; a claim locks it for itself. So
what a driver records is either seen by the next one, or refused. Specified in run-journal.md, section 4.
"""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from ..drive import Drive, Standing, take
from ..events import RUNNING
from ..runs import closing

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Mapping

    from ..steps import Attempt
    from .database import Database
    from .journal import PostgresRunJournal

__all__ = ["PostgresDrive", "claim"]

_HELD: Final = "WITH held AS (SELECT run_id FROM run_drives WHERE run_id = $1 AND fence = $2 AND owner = $3 FOR SHARE)"
_STORE: Final = (
    "INSERT INTO journal (run_id, seq, kind, payload, created_at) "
    "SELECT run_id, $4::bigint, $5, $6, $7::double precision FROM held ON CONFLICT (run_id, seq, kind) DO NOTHING"
)
_INSERT: Final = f"{_HELD} {_STORE}"
#: The record and the snapshot that goes with it change together.
_INSERT_WITH_CHECKPOINT: Final = (
    f"{_HELD}, stored AS ({_STORE} RETURNING run_id) "
    "UPDATE runs SET checkpoint_id = $8, updated_at = $7 WHERE run_id IN (SELECT run_id FROM stored)"
)
_REPLACE: Final = (
    f"{_HELD} UPDATE journal SET payload = $6 FROM held "
    "WHERE journal.run_id = held.run_id AND journal.seq = $4 AND journal.kind = $5"
)
#: An attempt that has arrived before is known by its time.
_ATTEMPT: Final = (
    f"{_HELD}, log AS (SELECT attempt, created_at FROM step_attempts WHERE run_id = $1 AND seq = $4) "
    "INSERT INTO step_attempts (run_id, seq, attempt, kind, state, error_type, message, next_seq, created_at) "
    "SELECT run_id, $4::bigint, (SELECT COALESCE(MAX(attempt), 0) + 1 FROM log), "
    "$5, $6, $7, $8, $9::bigint, $10::double precision FROM held "
    "WHERE NOT EXISTS (SELECT 1 FROM log WHERE created_at = $10) ON CONFLICT DO NOTHING"
)
_KNOWN: Final = (
    f"{_HELD} UPDATE step_attempts SET next_seq = $5 FROM held "
    "WHERE step_attempts.run_id = held.run_id AND seq = $4 AND state = 'failed'"
)
#: A fence is one drive's for ever: without an owner it is a drive that has ended, perhaps by this very statement.
_END: Final = (
    "WITH ended AS (UPDATE run_drives SET owner = NULL, holder = NULL, suspended = $3 "
    "WHERE run_id = $1 AND fence = $2 AND (owner = $4 OR owner IS NULL) RETURNING run_id)"
)
_RELEASE: Final = f"{_END} SELECT run_id FROM ended"
_FINISH: Final = (
    f"{_END}, closed AS (UPDATE runs SET status = $5, outcome = $6, updated_at = $7 "
    "WHERE status = 'running' AND run_id IN (SELECT run_id FROM ended)), "
    "gone_on AS (UPDATE step_attempts SET next_seq = seq "
    "WHERE $8::boolean AND state = 'failed' AND run_id IN (SELECT run_id FROM ended)) SELECT run_id FROM ended"
)
_LOCK_RUN: Final = (
    "INSERT INTO runs (run_id, agent, task, status, outcome, checkpoint_id, created_at, updated_at, metadata) "
    "VALUES ($1, $2, $3, 'running', NULL, $4, $5, $6, $7) ON CONFLICT (run_id) DO UPDATE SET run_id = excluded.run_id"
)
_LOCK_DRIVE: Final = "SELECT owner, holder, fence, resumes, suspended FROM run_drives WHERE run_id = $1 FOR UPDATE"


class PostgresDrive(Drive):
    """The right to drive a run, and the record that it starts from."""

    __slots__ = ()

    @property
    def _database(self) -> Database:
        return cast("Database", self.journal._database)

    def insert(self, seq: int, kind: str, payload: str, checkpoint_id: str | None = None) -> None:
        """Records an event once.

        Raises:
            TurnBusyError: Another driver has the run.
            JournalConflictError: The step has another content; the same again is no error.
        """
        row = (self.run_id, self.fence, self.token, seq, kind, payload, time.time())
        database = self._database
        if checkpoint_id is None:
            changed = database.write(_INSERT, row)
        else:
            changed = database.write(_INSERT_WITH_CHECKPOINT, (*row, checkpoint_id))
        if not changed:
            database.repeat(partial(self._explain, seq, kind, payload))

    def replace(self, seq: int, kind: str, payload: str) -> None:
        """Puts another content at a step whose caller has asked for that in so many words."""
        row = (self.run_id, self.fence, self.token, seq, kind, payload)
        if not self._database.write(_REPLACE, row):
            raise self.lost()

    def attempt(self, seq: int, attempt: Attempt) -> None:
        """Adds to a step's log of attempts."""
        row = (self.run_id, self.fence, self.token, seq, *attempt, time.time())
        database = self._database
        if not database.write(_ATTEMPT, row) and not database.read(
            "SELECT 1 FROM run_drives WHERE run_id = $1 AND fence = $2 AND owner = $3", row[:3]
        ):
            raise self.lost()

    def went_on(self, seq: int, next_seq: int) -> None:
        """Notes that the loop knows of a step's failure since it has issued the steps before `next_seq`."""
        if not self._database.write(_KNOWN, (self.run_id, self.fence, self.token, seq, next_seq)):
            raise self.lost()

    def finish(self, outcome: str, *, is_loops_end: bool = True) -> None:
        """Ends the run and the drive."""
        status, text, now, _ = closing(self.run_id, outcome)
        row = (self.run_id, self.fence, 0, self.token, status, text, now, is_loops_end)
        if not self._database.read(_FINISH, row):
            raise self.lost()

    def release(self, *, is_suspended: bool) -> None:
        """Ends the drive; the run can be driven again. A drive that was lost before has nothing to release."""
        self._database.read(_RELEASE, (self.run_id, self.fence, int(is_suspended), self.token))


def claim(
    journal: PostgresRunJournal,
    driver: object,
    run_id: str,
    *,
    agent: str,
    task: str,
    metadata: Mapping[str, Any] | None,
    max_resumes: int,
    take_over: bool,
) -> PostgresDrive:
    """Takes a run for one driver, or its record alone when it has ended. What was resumed is counted before it starts.

    Raises:
        TurnBusyError: A living driver has it, and it is not to be taken over.
        ResumeBudgetExhaustedError: It was resumed `max_resumes` times.
    """
    row = journal._run_row(run_id, agent, task, None, metadata)
    owner = journal._ownership.owner()
    with journal._database.locking() as cursor:
        cursor.execute(_LOCK_RUN, row)
        # Appends of the driver before hold this row shared: they are done, or will be refused, when the record is read.
        found = cursor.execute(_LOCK_DRIVE, (run_id,)).fetchone()
        noted = cursor.execute("SELECT status, checkpoint_id FROM runs WHERE run_id = $1", (run_id,)).fetchone()
        standing = Standing(*(noted or (RUNNING, None)), *(found or ()))
        return take(
            PostgresDrive,
            journal,
            driver,
            owner,
            cast("sqlite3.Cursor", cursor),  # it answers as SQLite's does
            run_id,
            standing,
            max_resumes=max_resumes,
            take_over=take_over,
        )
