"""The end of a run that comes from outside of its loop, whose turn does not go on.

Specified in run-journal.md, sections 1 and 4.
"""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from .events import RUNNING

if TYPE_CHECKING:
    from .drive import Drive
    from .journal import RunJournal

__all__ = ["HeldRun", "hold"]


def hold(journal: RunJournal, run_id: str, *, take_over: bool = False) -> HeldRun | None:
    """Takes a run that is still `running` from whoever might drive it; None when there is no such run.

    Raises:
        TurnBusyError: A living driver has it, and it is not to be taken over; nothing was changed.
    """
    meta = journal.run_meta(run_id)
    return HeldRun(journal, run_id, take_over=take_over) if meta is not None and meta.status == RUNNING else None


class HeldRun:
    """A run that nobody drives until it is ended or let go."""

    def __init__(self, journal: RunJournal, run_id: str, *, take_over: bool) -> None:
        self.run_id = run_id
        self._journal = journal
        # To end a run is no resume that could be too many.
        self._drive: Drive | None = journal._claim(
            self, run_id, agent="", task="", metadata=None, max_resumes=sys.maxsize, take_over=take_over
        )

    def end(self, outcome: str) -> None:
        """Closes the run; a driver that it was taken from records nothing any more."""
        drive = self._leave()
        if drive is not None and drive.token is not None:
            drive.finish(outcome, is_loops_end=False)

    def let_go(self) -> None:
        """Leaves the run to be driven again; nothing after `end`."""
        drive = self._leave()
        if drive is not None and drive.token is not None:
            drive.release(is_suspended=True)  # this counted as a resume: the next one does not

    def disown(self) -> None:
        """In a forked child: the run is the parent's."""
        self._drive = None

    def _leave(self) -> Drive | None:
        drive, self._drive = self._drive, None
        self._journal._ownership.end(self.run_id, self)
        return drive
