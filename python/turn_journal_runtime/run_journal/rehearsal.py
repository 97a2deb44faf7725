"""A stored run replayed against a loop, in a copy in which nothing new can be run.

The copy has ended, whatever the run has: an ended run is replayed and nothing else. Specified in run-journal.md,
section 4.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..errors import (
    InvalidJournalError,
    RecordedToolError,
    ReplayDivergenceError,
    RunEndedError,
    TurnJournalError,
)
from .connection import MEMORY
from .driving import Driving
from .events import RUNNING
from .faults import unknown_run
from .journal import RunJournal

if TYPE_CHECKING:
    from types import TracebackType

    from .drive import Drive

__all__ = ["Rehearsal", "ReplayCheck"]

#: A run that came to its end without an error.
_WENT_WELL: Final = frozenset(("done", "succeeded"))


class ReplayCheck(NamedTuple):
    """Whether a loop is still the one that a run was recorded with."""

    run_id: str
    #: How many steps are on record.
    steps: int
    #: How many of them the loop took as they stand there.
    replayed: int
    #: Where it parts from the record, or what it failed with; None when it replays.
    problem: Exception | None

    @property
    def replays(self) -> bool:
        """Whether the loop takes the recorded steps, and goes on after them only where the run did not end."""
        return self.problem is None


class _Copy(RunJournal):
    """Notes who drives."""

    def __init__(self, of: RunJournal, *, run_id: str) -> None:
        super().__init__(MEMORY)
        self.import_run(of.export(run_id))
        # What is on record went through it before; what the loop issues goes through it now.
        self._redact = of._redact
        self.drivers: list[Driving] = []

    def _claim(self, driver: object, run_id: str, **wanted: Any) -> Drive:
        if isinstance(driver, Driving):
            self.drivers.append(driver)
        return super()._claim(driver, run_id, **wanted)


class Rehearsal:
    """One replay of one run. A context manager: what the loop raises in it is looked at, and not raised.

    Args:
        journal: Where the run is; nothing of it is changed.
        run_id: The run.

    Raises:
        RunNotFoundError: No such run.
    """

    def __init__(self, journal: RunJournal, run_id: str) -> None:
        meta = journal.run_meta(run_id)
        if meta is None:
            raise unknown_run(run_id)
        self._run_id = run_id
        self._status = meta.status
        #: What the loop is given.
        self.journal: _Copy = _Copy(journal, run_id=run_id)
        if self._status == RUNNING:
            self.journal.close_run(run_id)
        self._raised: Exception | None = None

    def __enter__(self) -> Rehearsal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self.journal.close()
        if isinstance(error, Exception):
            self._raised = error
        return error is self._raised

    def verdict(self) -> ReplayCheck:
        """What came of it, when the loop has ended."""
        driver = next((one for one in self.journal.drivers if one.run_id == self._run_id), None)
        if driver is None or driver._drive is None:
            return ReplayCheck(self._run_id, 0, 0, self._raised or self._not_driven())
        steps, issued = driver._drive.last_seq + 1, driver._next_seq
        if isinstance(driver._halted, ReplayDivergenceError):
            return ReplayCheck(self._run_id, steps, int(driver._halted.details["seq"]), driver._halted)
        return ReplayCheck(self._run_id, steps, min(issued, steps), self._problem(issued, steps))

    def _problem(self, issued: int, steps: int) -> Exception | None:
        raised = None if self._is_end_of_record(self._raised) else self._raised
        if issued < steps:
            return raised or self._parts(issued, f"the loop ended after {issued} of {steps} steps")
        if issued > steps and self._status != RUNNING:
            return self._parts(steps, f"the run ended after {steps} steps, and the loop takes another one")
        if isinstance(raised, RecordedToolError) and self._status not in _WENT_WELL:
            return None
        return raised

    def _is_end_of_record(self, error: BaseException | None) -> bool:
        if isinstance(error, BaseExceptionGroup):  # a group of tasks tells of each of them
            return all(map(self._is_end_of_record, error.exceptions))
        return isinstance(error, RunEndedError) and error.details.get("run_id") == self._run_id

    def _parts(self, seq: int, what: str) -> TurnJournalError:
        return ReplayDivergenceError(
            f"Run {self._run_id!r} parts from its record at its end: {what}. Nothing was run and the record is "
            "untouched.",
            details={"run_id": self._run_id, "seq": seq, "recorded": {}, "issued": {}, "fields": ["kind"]},
        )

    def _not_driven(self) -> TurnJournalError:
        others = sorted({one.run_id for one in self.journal.drivers})
        drove = f"it drove {', '.join(map(repr, others))}" if others else "it drove none"
        return InvalidJournalError(
            f"The loop did not drive run {self._run_id!r}: {drove}. It is called with the journal and the run's id: "
            "DurableRun(journal, run_id).",
            kind="invalid_request",
            details={"run_id": self._run_id},
        )
