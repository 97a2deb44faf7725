"""`RunJournal`: the events of agent runs in one SQLite file."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..address import absolute, is_database
from ..errors import InvalidJournalError
from . import approvals, batch, lineage, record, retention, runs, sleeps, steps, transfer
from .batch import APPEND, MAX_SEQ
from .connection import MEMORY, Durability
from .database import Database
from .drive import Drive, claim
from .events import KINDS, RUNNING, JournalEvent, RunMeta
from .faults import check_run_id, unknown_run
from .filesystem import default_path
from .ownership import Ownership
from .payload import decode, encode
from .runs import OPEN_RUN, SET_CHECKPOINT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from concurrent.futures import Executor
    from types import TracebackType

__all__ = ["RunJournal"]

_RUNNING: Final = (
    "SELECT runs.run_id, owner FROM runs LEFT JOIN run_drives ON run_drives.run_id = runs.run_id "
    "WHERE status = ? ORDER BY runs.created_at, runs.rowid"
)


class RunJournal:
    """Records what agent runs have done, so that a run which died goes on where its record ends.

    Thread-safe; several processes may share one file; a forked child opens its own connection. A context manager.

    Args:
        db_path: A file, `":memory:"`, or None for `$TURN_JOURNAL_HOME/runs/journal.db`. Or `postgresql://…`, a database
            that `turn-journal store migrate` has prepared; needs the extra `postgres`.
        durability: `"process"`: what is acknowledged survives the death of the process. `"power"`: it survives power
            loss too.
        redact: Called with a copy of every payload (and of a run's `{agent, task, metadata}`, and of a failure's
            `{error_type, message}`) before it is stored; what it returns is stored instead.

    Raises:
        JournalStoreError: The place cannot hold a journal (`store_io_failed`, `store_unsupported`), or the file is of a
            newer version (`store_unsupported`); the file is left as it is.
        JournalCorruptError: The file is no run journal; it is left as it is.

    Specified in run-journal.md, section 1.
    """

    def __new__(cls, db_path: str | os.PathLike[str] | None = None, **_: Any) -> RunJournal:
        """The journal of an address: one in PostgreSQL is a kind of its own, which is loaded when it is asked for."""
        if cls is RunJournal and db_path is not None and is_database(db_path):
            from .postgres import PostgresRunJournal

            return super().__new__(PostgresRunJournal)
        return super().__new__(cls)

    def __init__(
        self,
        db_path: str | os.PathLike[str] | None = None,
        *,
        durability: Durability = "process",
        redact: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    ) -> None:
        path = os.fspath(default_path() if db_path is None else db_path)
        database = Database(path if path == MEMORY else absolute(path), durability)
        self._begin(database, Ownership(database.path), redact)

    def _begin(
        self,
        database: Database,
        ownership: Ownership,
        redact: Callable[[dict[str, Any]], dict[str, Any]] | None,
    ) -> None:
        self._database = database
        self._ownership = ownership
        self._redact = redact
        self._executor: ThreadPoolExecutor | None = None
        self._executor_process = 0

    @property
    def path(self) -> str:
        """The journal's file, or `:memory:`."""
        return self._database.path

    @property
    def durability(self) -> Durability:
        """What an acknowledged write survives."""
        return self._database.durability

    @property
    def settings(self) -> dict[str, Any]:
        """SQLite's settings, read back from the connection in use."""
        return self._database.settings

    # Runs

    def open_run(
        self,
        run_id: str,
        *,
        agent: str = "",
        task: str = "",
        checkpoint_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
    ) -> None:
        """Registers a run as `running`. Again: keeps its journal, its creation time and, when none is given, its
        checkpoint.

        Raises:
            InvalidJournalError: An id that is no text, or metadata that is not JSON.
        """
        self._database.write(OPEN_RUN, self._run_row(run_id, agent, task, checkpoint_id, metadata))

    def set_checkpoint(self, run_id: str, checkpoint_id: str) -> None:
        """Binds the latest snapshot of the workspace to a run.

        Raises:
            RunNotFoundError: No such run; it is a `KeyError`.
        """
        if not self._database.write(SET_CHECKPOINT, (checkpoint_id, time.time(), run_id)):
            raise unknown_run(run_id)

    def close_run(self, run_id: str, outcome: str = "done") -> None:
        """Ends a run. Its status is the outcome when that is `done`, `succeeded`, `failed` or `cancelled`, else `done`.

        Raises:
            RunNotFoundError: No such run; it is a `KeyError`.
            TurnBusyError: A living process drives it. A loop may close the run that it drives through this journal.
        """
        self._close(run_id, outcome)

    def run_meta(self, run_id: str) -> RunMeta | None:
        """What is known of a run, or None.

        Raises:
            JournalCorruptError: Its metadata is damaged.
        """
        return runs.read_meta(self._database, run_id)

    def interrupted_runs(self, *, include_owned: bool = False) -> list[str]:
        """The runs that are still `running`, oldest first.

        Args:
            include_owned: Whether to list also those that a living process drives.
        """
        read = partial(self._database.read, _RUNNING, (RUNNING,))
        if include_owned:
            return [run_id for run_id, *_ in read()]
        standing = self._ownership.standing(read, self._ownership.is_driven)
        return [run_id for (run_id, *_), is_driven in standing if not is_driven]

    def delete_run(self, run_id: str) -> None:
        """Removes a run and all that is stored of it; a run that is not there is no error.

        Raises:
            TurnBusyError: A living process drives it.
        """
        with self._database.transaction() as cursor:
            self._ownership.refuse_driven(cursor, run_id)
            retention.delete_rows(cursor, run_id)
        self._database.empty_log()

    def prune(self, older_than: float, *, keep: int | None = None, dry_run: bool = False) -> list[str]:
        """Removes the runs that ended so long ago, each whole; their ids, oldest first.

        A run stays that may still be needed: one that goes on, one with an effect whose outcome is not known, one
        inside of an open tool call, and one of a turn, which `prune_turn_journals` removes when its turn is over.

        Args:
            older_than: Seconds since a run ended.
            keep: How many of those that ended stay, the latest ones.
            dry_run: Only say what would be removed.

        Raises:
            InvalidJournalError: An age or a number that is none; nothing was changed.

        Specified in run-journal.md, section 1.
        """
        found, before = retention.prunable(self._database, older_than, keep)
        gone = retention.remove_all(self, found, ended_before=before, dry_run=dry_run)
        return [run_id for run_id in found if gone[run_id]]

    def vacuum(self) -> None:
        """Gives the space of what was deleted back, and leaves no trace of it in the file.

        The file is written anew, for which others who write have to wait. A database is asked for its own `VACUUM`,
        which makes the space free for other rows; it does that by itself as well.

        Raises:
            JournalStoreError: Somebody else has kept the file locked, or there is no space for the copy (`store_full`).
        """
        self._database.vacuum()

    # Events

    def append(self, event: JournalEvent) -> None:
        """Stores an event under its run, number and kind; the same again replaces the payload, not the place.

        Raises:
            InvalidJournalError: An unknown kind, a number that is none, or a payload that cannot be stored exactly; it
                is a `ValueError`, and nothing is changed.
        """
        self._database.write(APPEND, self._row(event))

    def append_many(self, events: Iterable[JournalEvent]) -> None:
        """Stores events, all or none.

        Raises:
            InvalidJournalError: As `append`, for any of them.
        """
        listed = list(events)
        columns = None if self._redact is not None else batch.columns(listed)
        if columns is None:
            rows = list(map(self._row, listed))
            columns = [[row[at] for row in rows] for at in range(5)]
        with self._database.transaction() as cursor:
            batch.insert(cursor, *columns)

    def events(self, run_id: str) -> list[JournalEvent]:
        """A run's events by number, those of one step in the order in which they were first stored.

        Raises:
            JournalCorruptError: A payload is damaged; `details` names its row.
        """
        return record.events(self._database, run_id)

    def replay_index(self, run_id: str) -> dict[tuple[int, str], dict[str, Any]]:
        """A run's payloads by number and kind, for memoised replay.

        Raises:
            JournalCorruptError: A payload is damaged; `details` names its row.
        """
        return record.replay_index(self._database, run_id)

    def last_iteration(self, run_id: str) -> int | None:
        """The highest recorded iteration index, or None."""
        return record.last_iteration(self._database, run_id)

    def assert_replay_order(self, run_id: str, expected: Sequence[tuple[int, str]] | Sequence[str]) -> None:
        """Refuses a replay whose steps are not the recorded ones in the recorded order.

        Args:
            run_id: The run that is replayed.
            expected: The steps of the replay, as `(seq, kind)` or as bare kinds.

        Raises:
            ReplayDivergenceError: They differ; it is a `RuntimeError` and names the first difference.
        """
        record.assert_replay_order(self._database, run_id, expected)

    # Steps whose outcome is not known, and questions

    def uncertain(self, run_id: str) -> list[steps.UncertainStep]:
        """The tool calls that may have happened: recorded as begun, without an outcome.

        Specified in run-journal.md, section 3.
        """
        return steps.uncertain(self._database, run_id)

    def settle(self, run_id: str, seq: int, *, result: Any = steps.UNSET, absent: bool = False) -> None:
        """Says what became of an uncertain step: its result, or that it did not happen and may run.

        Args:
            run_id: The run.
            seq: The step's number.
            result: What the tool returned, a JSON value.
            absent: True when the effect did not happen.

        Raises:
            RunNotFoundError: No such tool call is recorded.
            JournalConflictError: The step has another outcome; the same again is no error.
            InvalidJournalError: Neither or both of `result` and `absent`.

        Specified in run-journal.md, section 3.
        """
        steps.settle(self._database, self._stored, run_id, seq, result, absent)

    def approve(self, run_id: str, seq: int, decision: Any, *, by: str) -> None:
        """Records a decision on a question that a run has asked; its next drive goes on with it.

        Args:
            run_id: The run.
            seq: The number of the approval step.
            decision: A JSON value other than None, handed to the loop as it is.
            by: Who decided.

        Raises:
            RunNotFoundError: No question is recorded there.
            JournalConflictError: It was decided otherwise; the same decision again is no error.

        Specified in run-journal.md, section 4.
        """
        approvals.approve(self._database, self._stored, run_id, seq, decision, by)

    def pending_approvals(self, run_id: str | None = None) -> list[approvals.PendingApproval]:
        """The questions that wait for a decision, of one run or of all."""
        return approvals.pending(self._database, run_id)

    def pending_sleeps(self, run_id: str | None = None) -> list[sleeps.PendingSleep]:
        """The sleeps whose time has not come, of one running run or of all."""
        return sleeps.pending(self._database, run_id)

    # Whole runs

    def fork(self, run_id: str, new_run_id: str, *, upto: int) -> None:
        """Makes a run that replays another one's steps up to and with number `upto`, then goes its own way.

        The original does not change; `parent` of the new run names it.

        Raises:
            RunNotFoundError: No such run.
            JournalConflictError: The new id is taken.
            InvalidJournalError: The new id is no text, or `upto` no number of a step.
            JournalCorruptError: A step up to there is damaged; `details` names its row.

        Specified in run-journal.md, section 4.
        """
        lineage.fork(self._database, run_id, new_run_id, upto)

    def parent(self, run_id: str) -> tuple[str, int] | None:
        """The run that this one was forked from, and the last step it took over; None when it is no fork."""
        return lineage.parent(self._database, run_id)

    def diff(self, run_a: str, run_b: str) -> lineage.RunDifference | None:
        """The first step at which two runs part, and the fields; None when they are equal.

        Specified in run-journal.md, section 4.
        """
        return lineage.diff(self._database, run_a, run_b)

    def export(self, run_id: str) -> Iterator[str]:
        """A run as lines of JSON: one for the run, one for each event, one that closes and counts them.

        They say what the run was at this moment, however long they are read. A long run waits in a temporary file.

        Raises:
            RunNotFoundError: No such run.
            JournalCorruptError: A payload is damaged; `details` names its row.
            JournalStoreError: The temporary file cannot be written.

        Specified in run-journal.md, section 5.
        """
        return transfer.export_run(self._database, run_id)

    def import_run(self, lines: Iterable[str], *, overwrite: bool = False) -> str:
        """Stores a run that `export` gave, all or nothing; its id is returned.

        Args:
            lines: The lines of one export, whole. They are checked before anything is stored.
            overwrite: Whether a run of that id may be replaced.

        Raises:
            InvalidJournalError: The lines are no whole export.
            JournalConflictError: A run of that id is there and may not be replaced.
            TurnBusyError: A living process drives it.
        """
        with transfer.received(lines, self._redacted) as run:
            self._put(run, overwrite)
        return run.run_id

    def backup(self, path: str | os.PathLike[str]) -> None:
        """Copies the whole journal while it is in use; copying the file by hand misses what is in its log.

        Raises:
            JournalConflictError: The file exists.
            JournalStoreError: It cannot be written.
        """
        self._database.backup(Path(path))

    # The life of the handle

    def close(self) -> None:
        """Closes the journal; again is harmless. Runs it still drives count as interrupted from here on."""
        self._ownership.release()
        self._database.close()
        if self._executor is not None and self._executor_process == os.getpid():
            self._executor.shutdown(wait=False)

    def __enter__(self) -> RunJournal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def _writers(self) -> int:
        """How many threads that needs: one writes at a time, others may take a snapshot meanwhile."""
        return 4

    @property
    def _threads(self) -> Executor:
        """Where the async form writes: apart from the tools, which may fill the event loop's own threads."""
        if self._executor is None or self._executor_process != os.getpid():
            self._executor = ThreadPoolExecutor(self._writers, "turn-journal-runs")
            self._executor_process = os.getpid()
        return self._executor

    def _close(self, run_id: str, outcome: str, **which: bool) -> None:
        runs.close(self._database, self._ownership, run_id, outcome, **which)

    def _put(self, run: transfer.Received, overwrite: bool, **which: str) -> bool:
        return transfer.put(self._database, run, overwrite, self._ownership, **which)

    def _remove(self, run_ids: Sequence[str], **how: Any) -> dict[str, bool | None]:
        return retention.remove(self._database, self._ownership, run_ids, **how)

    def _claim(self, driver: object, run_id: str, **wanted: Any) -> Drive:
        """Takes a run for one driver."""
        return claim(self, driver, run_id, **wanted)

    def _row(self, event: JournalEvent) -> tuple[str, int, str, str, float]:
        run_id, seq, kind = event.run_id, event.seq, event.kind
        if not isinstance(kind, str) or kind not in KINDS:
            raise InvalidJournalError(
                f"The event kind {kind!r:.80} is unknown; use one of {sorted(KINDS)}.", kind="invalid_request"
            )
        if type(seq) is not int or not 0 <= seq <= MAX_SEQ:
            raise InvalidJournalError(f"A step's number is an integer from 0, not {seq!r:.80}.", kind="invalid_request")
        if type(run_id) is not str or not run_id:
            check_run_id(run_id)
        stored = encode(event.payload).decode() if self._redact is None else self._stored(event.payload)
        return run_id, seq, kind, stored, event.created_at

    def _stored(self, payload: Mapping[str, Any]) -> str:
        """A payload as it is stored: what may not be kept taken out, then as JSON."""
        return encode(self._redacted(payload)).decode()

    def _redacted(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """A payload without what may not be kept."""
        # The callable gets a copy: what the tool and the loop hold stays whole.
        return payload if self._redact is None else self._redact(decode(encode(payload)))

    def _run_row(
        self, run_id: str, agent: str, task: str, checkpoint_id: str | None, metadata: Mapping[str, Any] | None
    ) -> tuple[Any, ...]:
        return runs.opening(self._redact, run_id, agent, task, checkpoint_id, metadata)
