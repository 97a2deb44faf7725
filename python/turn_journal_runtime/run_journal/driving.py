"""A drive and the record it starts from: begun, halted, ended; and the rule that a replay is the record's.

Specified in run-journal.md, section 4.
"""

from __future__ import annotations

import threading
from contextvars import ContextVar
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from ..errors import (
    InvalidJournalError,
    JournalConflictError,
    JournalCorruptError,
    ReplayDivergenceError,
    RunEndedError,
    TurnBusyError,
    TurnJournalError,
    TurnSuspended,
)
from .events import KIND_APPROVAL, KIND_TOOL_CALL, KIND_TOOL_RESULT
from .faults import decode_row, name_of, recorded_failure
from .steps import went_on

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from concurrent.futures import Future

    from .checkpoints import Checkpoints
    from .drive import Drive
    from .journal import RunJournal
    from .steps import Attempt

__all__ = ["WITHIN", "Driving"]

E = TypeVar("E", bound=TurnJournalError)

#: The drives in whose steps this code runs, from the outermost on.
WITHIN: Final[ContextVar[tuple[Driving, ...]]] = ContextVar("turn_journal_drives", default=())


class Driving:
    """One drive of one run."""

    def __init__(
        self,
        journal: RunJournal,
        run_id: str,
        *,
        agent: str = "",
        task: str = "",
        metadata: Mapping[str, Any] | None = None,
        max_resumes: int = 20,
        take_over: bool = False,
        checkpoints: Checkpoints | None = None,
    ) -> None:
        if not hasattr(journal, "_claim"):
            raise InvalidJournalError(
                f"A run is driven in a RunJournal, not in a {type(journal).__name__}: "
                "with RunJournal(path) as journal, DurableRun(journal, run_id) as run.",
                kind="invalid_request",
            )
        self._journal = journal
        self._run_id = run_id
        self._claim = partial(
            journal._claim,
            self,
            run_id,
            agent=agent,
            task=task,
            metadata=metadata,
            max_resumes=max_resumes,
            take_over=take_over,
        )
        self._checkpoints = checkpoints
        self._drive: Drive | None = None
        self._next_seq = 0
        #: Why this drive takes no further step.
        self._halted: TurnJournalError | None = None
        #: Its loop has been left: steps in flight are waited for, and none is begun any more.
        self._is_over = False
        self._has_ended = False
        self._begin_in_this_process()

    @property
    def run_id(self) -> str:
        """The run."""
        return self._run_id

    @property
    def journal(self) -> RunJournal:
        """The journal that the run is recorded in."""
        return self._journal

    @property
    def is_replaying(self) -> bool:
        """Whether the next step stands in the record."""
        return self._drive is not None and self._next_seq <= self._drive.last_seq

    # The life of a drive

    def _begin(self) -> Drive:
        """Claims the run, and puts the workspace where the record is."""
        with self._lock:
            if self._drive is not None:
                return self._drive
            self._look_around()
            drive = self._claim()
            try:
                # Again: who ends a run around it looks for those inside after that, and may have come before this one.
                self._look_around()
                if self._checkpoints is not None and drive.token is not None:
                    if drive.checkpoint_id is not None:
                        self._checkpoints.restore(drive.checkpoint_id)
                    else:
                        self._journal.set_checkpoint(self._run_id, self._checkpoints.snapshot())
            except BaseException:
                self._journal._ownership.end(self._run_id, self)
                drive.release(is_suspended=False)
                raise
            self._drive = drive
            return drive

    def _look_around(self) -> None:
        """Raises when a run was lost inside of whose tool this one is driven."""
        for outer in WITHIN.get():
            if self._run_id.startswith(f"{outer._run_id}:") and outer._drive is not None and not outer._has_ended:
                outer._drive.look()

    def _finish(self, outcome: str) -> None:
        drive = self._drive or self._begin()
        if self._halted is not None:
            raise self._halted
        if self._has_ended:
            return
        if self._next_seq <= drive.last_seq:
            events = drive.record.get(self._next_seq) or _failed(drive.attempts.get(self._next_seq))
            self._diverge(self._next_seq, events, {"kind": "end"}, ["kind"], "the loop ended")
        if drive.token is not None:
            drive.finish(outcome)
        self._leave()

    def _release(self) -> None:
        drive = self._drive
        if drive is None or self._has_ended:
            return
        self._leave()
        if drive.token is not None and not isinstance(self._halted, TurnBusyError):
            drive.release(is_suspended=isinstance(self._halted, TurnSuspended))

    def _leave(self) -> None:
        self._has_ended = True
        self._close()
        self._journal._ownership.end(self._run_id, self)

    def _close(self) -> None:
        """The loop has been left: no step begins any more, and one that sleeps is not waited for."""
        self._is_over = True
        self._wake()

    def _begin_in_this_process(self) -> None:
        self._lock = threading.Lock()
        #: Steps that are run in other threads, and how one is heard to have come back.
        self._submitted: set[Future[Any]] = set()
        #: Their numbers; and those of which have failed, until the loop asks.
        self._beside: set[int] = set()
        self._unknown_failures: set[int] = set()
        #: The threads that are in a step.
        self._stepping: set[int] = set()
        self._returned = threading.Condition()
        #: What wakes the steps that sleep.
        self._sleepers: set[Callable[[], None]] = set()

    def disown(self) -> None:
        """In a forked child: the parent drives on, the child must not; it has none of the threads to wait for."""
        self._begin_in_this_process()
        self._halted = TurnBusyError(
            f"Run {self._run_id!r} is driven by the process that this one was forked from. Drive it there, or open the "
            "journal here and wait for that one to end.",
            details={"run_id": self._run_id},
        )

    def _issue(self) -> tuple[int, Drive]:
        """The next step's number, given in the order of the calls, whatever order the steps end in."""
        drive = self._drive or self._begin()
        self._must_go_on()
        self._must_be_in_the_loop()
        with self._lock:
            seq = self._next_seq
            self._next_seq = seq + 1
        return seq, drive

    def _following(self, drive: Drive) -> int:
        """The first number that can follow from what happens now: what this drive found on record does not."""
        return max(self._next_seq, drive.last_seq + 1)

    def _must_not_be_halted(self) -> None:
        """Asked again as a step begins, which may have been issued beside the one that stopped the drive."""
        if self._halted is not None:
            raise self._halted

    def _must_go_on(self) -> None:
        self._must_not_be_halted()
        if self._is_over:
            raise JournalConflictError(
                f"This drive of run {self._run_id!r} has ended.", details={"run_id": self._run_id}
            )

    def _must_be_in_the_loop(self) -> None:
        if self in WITHIN.get():
            raise InvalidJournalError(
                f"A step of run {self._run_id!r}, or its end, was begun inside of another step's function, which a "
                "replay does not call: take it in the loop, or give the function a run of its own, "
                "DurableRun(journal, current_idempotency_key()).",
                kind="invalid_request",
                details={"run_id": self._run_id},
            )

    def _halt(self, error: E) -> E:
        self._halted = error
        self._wake()
        return error

    def _wake(self) -> None:
        """Has the steps that sleep look whether the drive goes on."""
        for wake in list(self._sleepers):
            wake()

    def _cut_short(self, error: BaseException) -> None:
        """A step has ended and the record does not say how: what the loop does next, no replay would do again."""
        if self._halted is None:
            self._halt(
                error
                if isinstance(error, TurnJournalError)
                else JournalConflictError(
                    f"A step of run {self._run_id!r} was cut short by {name_of(error)}, so that its outcome is not on "
                    "record: this drive takes no further step. Drive the run again. A time-out belongs into the "
                    "function that the step is given: there it is a failure like any other, which is recorded.",
                    details={"run_id": self._run_id, "error_type": name_of(error)},
                )
            )

    def _given_up(self, seq: int, drive: Drive, error: BaseException) -> None:
        """A step was cancelled before it began. Its number is taken, and a replay that is in time would take the step
        after those that follow it: unless its outcome is on record, it was cut short like any other."""
        events = drive.record.get(seq, {})
        if KIND_APPROVAL in events:
            is_known = "decision" in self._read(seq, KIND_APPROVAL, events[KIND_APPROVAL])
        else:
            is_known = bool(events.keys() - {KIND_TOOL_CALL}) or went_on(drive.attempts.get(seq), drive.last_seq)
        if not is_known:
            self._cut_short(error)

    def _read(self, seq: int, kind: str, stored: bytes) -> dict[str, Any]:
        """A payload on record; a damaged one ends the drive, for what stands there is not known."""
        try:
            return decode_row(self._run_id, seq, kind, stored)
        except JournalCorruptError as error:
            raise self._halt(error) from None

    def _must_be_open(self, drive: Drive) -> None:
        if drive.token is None:
            raise RunEndedError(
                f"Run {self._run_id!r} has ended: its record is replayed, and nothing new is run. Fork it to go on "
                "from one of its steps.",
                details={"run_id": self._run_id},
            )

    # A replay is the record's

    def _expect_nothing(
        self, seq: int, drive: Drive, events: dict[str, bytes], kind: str, issued: dict[str, Any]
    ) -> None:
        """The record has nothing at this number: no step of another kind, and no failure that is to be raised again."""
        if events:
            self._diverge(seq, events, {"kind": kind, **issued}, ["kind"], f"a step of kind {kind}")
        attempt = drive.attempts.get(seq)
        if attempt is None:
            return
        if attempt.kind != kind:
            self._diverge(seq, _failed(attempt), {"kind": kind, **issued}, ["kind"], f"a step of kind {kind}")
        if went_on(attempt, drive.last_seq):
            raise recorded_failure(attempt.error_type or "Exception", attempt.message or "", self._run_id, seq)

    def _diverge(
        self, seq: int, events: Mapping[str, bytes], issued: dict[str, Any], fields: list[str], what: str
    ) -> NoReturn:
        kind = _step_kind(events)
        recorded: dict[str, Any] = {"kind": kind}
        for name, stored in list(events.items())[:1]:
            recorded |= self._read(seq, name, stored)
        named = f" {recorded['name']!r}" if isinstance(recorded.get("name"), str) else ""
        raise self._halt(
            ReplayDivergenceError(
                f"Run {self._run_id!r} parts from its record at step {seq} ({kind}{named} there, {what} here); "
                f"they differ in {', '.join(fields)}. Nothing was run and the record is untouched. The loop's code or "
                "input has changed: replay with the old ones, or fork the run before that step.",
                details={"run_id": self._run_id, "seq": seq, "recorded": recorded, "issued": issued, "fields": fields},
            )
        )


def _failed(attempt: Attempt | None) -> dict[str, bytes]:
    """What stands at a step that has failed and has recorded nothing else."""
    return {} if attempt is None else {attempt.kind: b"{}"}


def _step_kind(events: Mapping[str, bytes]) -> str:
    if not events:
        return "nothing"
    if KIND_TOOL_RESULT in events and KIND_TOOL_CALL not in events:
        return "value"
    return next(iter(events)) if KIND_TOOL_CALL not in events else KIND_TOOL_CALL
