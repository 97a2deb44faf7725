"""The run inside a turn: the host's own cursor, whose run id is the turn's key. session-recovery.md, section 5."""

from __future__ import annotations

import sys
from contextlib import ExitStack, suppress
from typing import TYPE_CHECKING, Final

from ..errors import JournalCorruptError, TurnJournalError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from ..run_journal import RunJournal
    from ..run_journal.driving import Driving
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
        """Claims the turn's run; work that is begun anew begins a new one. How often it is resumed is the turn's
        business."""
        if self._journal is None:
            self._journal = self._opened.enter_context(self._root.runs())
        run = form(
            self._journal,
            run_id_of(self._plan.turn_key, anew),
            agent=self._plan.agent_id,
            task=self._plan.todo_id,
            max_resumes=sys.maxsize,
            take_over=self._take_over,
        )
        run._begin()
        self._opened.callback(_let_go, run)
        return run

    def open_again(self, anew: int) -> None:
        """Has the runs go on that were closed when their turn was given up."""
        journal = self._journal or self._opened.enter_context(self._root.runs_there())
        for runs, run_id in _with_inner(journal, run_id_of(self._plan.turn_key, anew)):
            meta = runs.run_meta(run_id)
            if meta is not None and meta.status == CANCELLED:
                runs.open_run(run_id)

    def close(self) -> None:
        """Closes what was opened here."""
        self._opened.close()


def _let_go(run: Driving) -> None:
    """Frees a run that its host had no time to leave; where that cannot be said, it is free when its driver is."""
    with suppress(TurnJournalError):
        run._release()


def _with_inner(journal: RunJournal | None, run_id: str) -> Iterator[tuple[RunJournal, str]]:
    """A run, then those inside of its tools, as far as they are in the same journal; none where there is no journal.

    The latter are looked for when the first one was seen to: none is begun any more once that is held.
    """
    from ..run_journal.copying import run_ids

    if journal is not None:
        yield journal, run_id
        yield from ((journal, one) for one in run_ids(journal) if one.startswith(f"{run_id}:"))


class AbandonedRun:
    """The run of a turn that is given up, with the runs inside of its tools.

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
        self._held: list[HeldRun] = []

    def in_doubt(self) -> tuple[str, ...]:
        """The keys of its tools that may have run: recorded as begun, without an outcome. A run's own id stands for
        those of a record that is damaged."""
        keys: dict[str, None] = {}
        for journal, run_id in _with_inner(self._found(), self._run_id):
            try:
                keys |= dict.fromkeys(step.idempotency_key for step in journal.uncertain(run_id))
            except JournalCorruptError:
                keys[run_id] = None
        return tuple(keys)

    def hold(self) -> None:
        """Keeps the run from going on, when it has not ended, and what is driven inside of its tools.

        Raises:
            TurnBusyError: A living driver has it; nothing was changed.
        """
        from ..run_journal.ending import hold

        for journal, run_id in _with_inner(self._found(), self._run_id):
            held = hold(journal, run_id, take_over=self._take_over)
            if held is not None:
                self._held.append(held)

    def cancel(self) -> str | None:
        """Closes the runs that are held; the id of the turn's own, if it is one of them."""
        for held in self._held:
            held.end(CANCELLED)
        return self._run_id if any(held.run_id == self._run_id for held in self._held) else None

    def let_go(self) -> None:
        """Leaves the runs as they are by now, and closes what was opened here."""
        with self._opened:
            for held in self._held:
                held.let_go()

    def _found(self) -> RunJournal | None:
        if self._journal is None:
            self._journal = self._opened.enter_context(self._root.runs_there())
        return self._journal
