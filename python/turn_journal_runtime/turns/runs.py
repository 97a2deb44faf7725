"""The run inside a turn: the host's own cursor, whose run id is the turn's key. session-recovery.md, section 5."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from .folders import make_folder

if TYPE_CHECKING:
    from ..run_journal import RunJournal
    from .host import Run
    from .plan import TurnPlan


def run_journal_path(runtime_root: str | os.PathLike[str]) -> Path:
    """Where the runs of a runtime root's turns are recorded, unless `run_turn` was given a run journal."""
    return Path(os.path.abspath(runtime_root)) / "runs" / "journal.db"


class TurnRuns:
    """Opens the run of one turn, in the journal that is given or in the runtime root's own."""

    def __init__(self, runtime_root: Path, plan: TurnPlan, given: RunJournal | None, *, take_over: bool) -> None:
        self._root = runtime_root
        self._plan = plan
        self._journal = given
        self._own: RunJournal | None = None
        self._take_over = take_over

    def open(self, form: type[Run], anew: int) -> Run:
        """The turn's run; work that is begun anew begins a new one. How often it is resumed is the turn's business."""
        if self._journal is None:
            from ..run_journal import RunJournal

            file = run_journal_path(self._root)
            make_folder(self._root, file.parent)
            self._journal = self._own = RunJournal(file)
        return form(
            self._journal,
            self._plan.turn_key if anew == 0 else f"{self._plan.turn_key}.{anew}",
            agent=self._plan.agent_id,
            task=self._plan.todo_id,
            max_resumes=sys.maxsize,
            take_over=self._take_over,
        )

    def close(self) -> None:
        """Closes what was opened here."""
        if self._own is not None:
            self._own.close()
