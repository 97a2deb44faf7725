"""The run inside a turn: the host's own cursor, whose run id is the turn's key. session-recovery.md, section 5."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

from ..errors import JournalCorruptError

if TYPE_CHECKING:
    from ..run_journal import RunJournal
    from ..run_journal.ending import HeldRun
    from .host import Run
    from .plan import TurnPlan
    from .root import TurnRoot

#: How the run of a turn ends that was given up.
CANCELLED: Final = "cancelled"


def run_id_of(turn_key: str, anew: int) -> str:
    """The run of a turn whose work was begun anew so often: each time it is another one."""
    return turn_key if anew == 0 else f"{turn_key}.{anew}"


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
            run_id_of(self._plan.turn_key, anew),
            agent=self._plan.agent_id,
            task=self._plan.todo_id,
            max_resumes=sys.maxsize,
            take_over=self._take_over,
        )

    def open_again(self, anew: int) -> None:
        """Has a run go on that was closed when its turn was given up."""
        journal = self._journal or self._opened.enter_context(self._root.runs_there())
        run_id = run_id_of(self._plan.turn_key, anew)
        meta = None if journal is None else journal.run_meta(run_id)
        if journal is not None and meta is not None and meta.status == CANCELLED:
            journal.open_run(run_id)

    def close(self) -> None:
        """Closes what was opened here."""
        self._opened.close()


class AbandonedRun:
    """The run of a turn that is given up.

    Args:
        root: Where the turn is.
        given: The journal of its run, unless it is the root's own.
        run_id: The run; there may be none.
        take_over: Take it also from a driver that is alive.
    """

    def __init__(self, root: TurnRoot, given: RunJournal | None, run_id: str, *, take_over: bool = False) -> None:
        self._root = root
        self._journal = given
        self._run_id = run_id
        self._take_over = take_over
        self._opened = ExitStack()
        self._held: HeldRun | None = None

    def in_doubt(self) -> tuple[str, ...]:
        """The keys of its tools that may have run: recorded as begun, without an outcome. The run's own id stands for
        those of a record that is damaged."""
        journal = self._found()
        try:
            return () if journal is None else tuple(step.idempotency_key for step in journal.uncertain(self._run_id))
        except JournalCorruptError:
            return (self._run_id,)

    def hold(self) -> None:
        """Keeps the run from going on, when it has not ended.

        Raises:
            TurnBusyError: A living driver has it; nothing was changed.
        """
        from ..run_journal.ending import hold

        journal = self._found()
        self._held = None if journal is None else hold(journal, self._run_id, take_over=self._take_over)

    def cancel(self) -> str | None:
        """Closes the run that is held; its id."""
        if self._held is None:
            return None
        self._held.end(CANCELLED)
        return self._run_id

    def let_go(self) -> None:
        """Leaves the run as it is by now, and closes what was opened here."""
        with self._opened:
            if self._held is not None:
                self._held.let_go()

    def _found(self) -> RunJournal | None:
        if self._journal is None:
            self._journal = self._opened.enter_context(self._root.runs_there())
        return self._journal
