"""One drive of one run: the claim on it, its record as it was found, and the writes that only its holder can make.

Every write asks in its own statement for the owner and the fence of this drive, so that a driver which has lost the run
(its process was taken for dead, its memory was copied by a fork) can no longer change it. Specified in run-journal.md,
section 4.
"""

from __future__ import annotations

import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from ..errors import JournalConflictError, ResumeBudgetExhaustedError, StoreUnavailableError, TurnBusyError
from .events import RUNNING
from .faults import decode_row
from .payload import decode, same
from .runs import CLOSE_RUN, OPEN_RUN, SET_CHECKPOINT, closing
from .steps import Attempt, add_attempt, read_attempts

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Iterator, Mapping

    from .journal import RunJournal
    from .liveness import Owner

__all__ = ["Drive", "Standing", "claim", "take"]

_STANDING: Final = (
    "SELECT status, checkpoint_id, owner, holder, fence, resumes, suspended FROM runs "
    "LEFT JOIN run_drives ON run_drives.run_id = runs.run_id WHERE runs.run_id = ?"
)
_RECORD: Final = "SELECT seq, kind, CAST(payload AS BLOB) FROM journal WHERE run_id = ?"
_HELD: Final = "FROM run_drives WHERE run_id = ? AND fence = ? AND owner = ?"
_INSERT: Final = (
    "INSERT INTO journal (run_id, seq, kind, payload, created_at) "
    f"SELECT run_id, ?, ?, ?, ? {_HELD} ON CONFLICT (run_id, seq, kind) DO NOTHING"
)
_CLAIM: Final = (
    "INSERT INTO run_drives (run_id, owner, holder, fence, resumes, suspended) VALUES (?, ?, ?, ?, ?, 0) "
    "ON CONFLICT (run_id) DO UPDATE SET owner = excluded.owner, holder = excluded.holder, fence = excluded.fence, "
    "resumes = excluded.resumes, suspended = 0"
)
_CLOSE_RUNNING: Final = f"{CLOSE_RUN} AND status = 'running'"
#: The end of a loop comes after each of its failures: none of them is the run's last word.
_WENT_ON: Final = "UPDATE step_attempts SET next_seq = seq WHERE run_id = ? AND state = 'failed'"
_RELEASE: Final = (
    "UPDATE run_drives SET owner = NULL, holder = NULL, suspended = ? WHERE run_id = ? AND fence = ? AND owner = ?"
)


@dataclass(slots=True)
class Drive:
    """The right to drive a run, and the record that it starts from.

    Args:
        journal: The journal.
        run_id: The run.
        token: The owner that holds the run; None for a run that has ended, which is only replayed.
        fence: The number of this drive.
        checkpoint_id: The snapshot that goes with the record.
        record: The stored payloads by number and kind.
        attempts: What the last attempt at each step came to.
        last_seq: The highest number in the record; -1 when it is empty.
    """

    journal: RunJournal
    run_id: str
    token: str | None
    fence: int
    checkpoint_id: str | None
    record: dict[int, dict[str, bytes]]
    attempts: dict[int, Attempt]
    last_seq: int

    def insert(self, seq: int, kind: str, payload: str, checkpoint_id: str | None = None) -> None:
        """Records an event once.

        Raises:
            TurnBusyError: Another driver has the run.
            JournalConflictError: The step has another content; the same again is no error.
        """
        row = (seq, kind, payload, time.time(), self.run_id, self.fence, self.token)
        database = self.journal._database
        if checkpoint_id is None:
            changed = database.write(_INSERT, row)
        else:
            # The record and the snapshot that goes with it change together.
            with database.transaction() as cursor:
                changed = cursor.execute(_INSERT, row).rowcount
                if changed:
                    cursor.execute(SET_CHECKPOINT, (checkpoint_id, row[3], self.run_id))
        if not changed:
            self._explain(seq, kind, payload)

    def replace(self, seq: int, kind: str, payload: str) -> None:
        """Puts another content at a step whose caller has asked for that in so many words."""
        with self._held() as cursor:
            cursor.execute(
                "UPDATE journal SET payload = ? WHERE run_id = ? AND seq = ? AND kind = ?",
                (payload, self.run_id, seq, kind),
            )

    def attempt(self, seq: int, attempt: Attempt) -> None:
        """Adds to a step's log of attempts."""
        with self._held() as cursor:
            add_attempt(cursor, self.run_id, seq, attempt)

    def went_on(self, seq: int, next_seq: int) -> None:
        """Notes that the loop knows of a step's failure since it has issued the steps before `next_seq`."""
        with self._held() as cursor:
            cursor.execute(
                "UPDATE step_attempts SET next_seq = ? WHERE run_id = ? AND seq = ? AND state = 'failed'",
                (next_seq, self.run_id, seq),
            )

    def finish(self, outcome: str, *, is_loops_end: bool = True) -> None:
        """Ends the run and the drive."""
        with self.journal._database.transaction() as cursor:
            if not cursor.execute(_RELEASE, (0, self.run_id, self.fence, self.token)).rowcount:
                raise self.lost()
            cursor.execute(_CLOSE_RUNNING, closing(self.run_id, outcome))
            if is_loops_end:
                cursor.execute(_WENT_ON, (self.run_id,))

    def release(self, *, is_suspended: bool) -> None:
        """Ends the drive; the run can be driven again. A drive that was lost before has nothing to release."""
        self.journal._database.write(_RELEASE, (int(is_suspended), self.run_id, self.fence, self.token))

    def look(self) -> None:
        """Raises when the run is another driver's. A database that does not answer says nothing of that.

        Raises:
            TurnBusyError: Another driver has the run.
        """
        with suppress(StoreUnavailableError):
            if not self.journal._database.read(f"SELECT 1 {_HELD}", (self.run_id, self.fence, self.token)):
                raise self.lost()

    @contextmanager
    def _held(self) -> Iterator[sqlite3.Cursor]:
        """A transaction of the driver that still has the run."""
        with self.journal._database.transaction() as cursor:
            held = cursor.execute(f"SELECT 1 {_HELD}", (self.run_id, self.fence, self.token)).fetchone()
            if held is None:
                raise self.lost()
            yield cursor

    def lost(self) -> TurnBusyError:
        """The error of a driver that has lost its run."""
        return TurnBusyError(
            f"Run {self.run_id!r} is no longer driven from here: another driver has taken it over, or this one has "
            "ended. What it was about to record was not recorded.",
            details={"run_id": self.run_id, "fence": self.fence},
        )

    def _explain(self, seq: int, kind: str, payload: str) -> None:
        with self.journal._database.snapshot() as cursor:
            held = cursor.execute(f"SELECT 1 {_HELD}", (self.run_id, self.fence, self.token)).fetchone()
            row = cursor.execute(
                "SELECT CAST(payload AS BLOB) FROM journal WHERE run_id = ? AND seq = ? AND kind = ?",
                (self.run_id, seq, kind),
            ).fetchone()
        if held is None:
            raise self.lost()
        if row is not None and same(decode_row(self.run_id, seq, kind, row[0]), decode(payload.encode())):
            return
        raise JournalConflictError(
            f"Step {seq} of run {self.run_id!r} has another {kind} on record, which is never overwritten: it was "
            "settled while the tool ran.",
            details={"run_id": self.run_id, "seq": seq, "kind": kind},
        )


D = TypeVar("D", bound=Drive)


def claim(
    journal: RunJournal,
    driver: object,
    run_id: str,
    *,
    agent: str,
    task: str,
    metadata: Mapping[str, Any] | None,
    max_resumes: int,
    take_over: bool,
) -> Drive:
    """Takes a run for one driver, or its record alone when it has ended. What was resumed is counted before it starts.

    Raises:
        TurnBusyError: A living driver has it, and it is not to be taken over.
        ResumeBudgetExhaustedError: It was resumed `max_resumes` times.
    """
    row = journal._run_row(run_id, agent, task, None, metadata)
    owner = journal._ownership.owner()
    with journal._database.transaction() as cursor:
        found = cursor.execute(_STANDING, (run_id,)).fetchone()
        if found is None:
            cursor.execute(OPEN_RUN, row)
        standing = Standing(*(found or ()))
        return take(
            Drive, journal, driver, owner, cursor, run_id, standing, max_resumes=max_resumes, take_over=take_over
        )


class Standing(NamedTuple):
    """What is noted on a run when somebody wants to drive it."""

    status: str = RUNNING
    checkpoint_id: str | None = None
    #: The owner that has it, and what that one says of itself.
    token: str | None = None
    holder: str | None = None
    #: The number of the drive before.
    fence: int | None = None
    resumes: int | None = None
    was_suspended: int | None = None


def take(
    kind: type[D],
    journal: RunJournal,
    driver: object,
    owner: Owner,
    cursor: sqlite3.Cursor,
    run_id: str,
    standing: Standing,
    *,
    max_resumes: int,
    take_over: bool,
) -> D:
    """`claim` within its transaction, the same for every database."""
    record: dict[int, dict[str, bytes]] = {}
    for seq, event, payload in cursor.execute(_RECORD, (run_id,)).fetchall():
        record.setdefault(seq, {})[event] = payload
    attempts = read_attempts(cursor, run_id)
    last_seq = max(record.keys() | attempts.keys(), default=-1)
    if standing.status != RUNNING:
        return kind(journal, run_id, None, 0, standing.checkpoint_id, record, attempts, last_seq)
    ownership = journal._ownership
    if not take_over:
        ownership.refuse_owner(run_id, standing.token, standing.holder)
    resumes = standing.resumes or 0
    # Going on after an answer is no recovery: a run that asks often does not use up its budget.
    if (standing.fence is not None or last_seq >= 0) and not standing.was_suspended:
        resumes = _one_more(run_id, resumes, max_resumes)
    fence = (standing.fence or 0) + 1
    cursor.execute(_CLAIM, (run_id, owner.token, owner.holder, fence, resumes))
    ownership.begin(run_id, driver)
    return kind(journal, run_id, owner.token, fence, standing.checkpoint_id, record, attempts, last_seq)


def _one_more(run_id: str, resumes: int, max_resumes: int) -> int:
    """The number of this resume, counted before it starts."""
    if resumes >= max_resumes:
        raise ResumeBudgetExhaustedError(
            f"Run {run_id!r} has been resumed {resumes} times without an end; nothing was run. Look for what kills it, "
            "then raise max_resumes, or close the run.",
            details={"run_id": run_id, "resumes": resumes, "max_resumes": max_resumes},
        )
    return resumes + 1
