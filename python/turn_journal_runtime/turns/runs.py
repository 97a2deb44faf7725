"""The run inside a turn: the host's own cursor, whose run id is the turn's key. session-recovery.md, section 5."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..run_journal import RunJournal
    from .host import Run
    from .plan import TurnPlan
    from .root import TurnRoot


class TurnRuns:
    """Opens the run of one turn, in the journal that is given or in the runtime root's own."""

    def __init__(self, root: TurnRoot, plan: TurnPlan, given: RunJournal | None, *, take_over: bool) -> None:
        self._root = root
        self._plan = plan
        self._journal = given
        self._opened = ExitStack()
        self._take_over = take_over

    def open(self, form: type[Run], anew: int) -> Run:
        """The turn's run; work that is begun anew begins a new one. How often it is resumed is the turn's business."""
        if self._journal is None:
            self._journal = self._opened.enter_context(self._root.runs())
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
        self._opened.close()
