"""Whether the runs that are stored still replay with the code as it is now: for a test, before it is deployed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from .flow import answered
from .run_journal import RunJournal
from .run_journal.rehearsal import Rehearsal, ReplayCheck

__all__ = ["Loop", "ReplayCheck", "check_replay"]

#: An agent's loop, sync or async: it drives a run of a journal.
Loop: TypeAlias = Callable[[RunJournal, str], Any]


def check_replay(journal: RunJournal, run_id: str, loop: Loop) -> ReplayCheck:
    """Replays a stored run against a loop, and says where the loop parts from it; nothing new is run.

    No model is asked and no tool is called: the loop gets a copy of the run in memory, and its first step that is not
    on record ends the replay. What it does outside of steps, it does.

    Args:
        journal: Where the run is; it is not changed.
        run_id: The run, ended or not.
        loop: Called with a journal and the run's id, as to resume it; sync or async.

    Raises:
        RunNotFoundError: No such run.

    Specified in run-journal.md, section 4.
    """
    rehearsal = Rehearsal(journal, run_id)
    with rehearsal:
        answered(loop(rehearsal.journal, run_id))
    return rehearsal.verdict()
