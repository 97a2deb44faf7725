"""All runs of a journal at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .journal import RunJournal

__all__ = ["RunSummary", "list_runs"]

_SUMMARIES = (
    "SELECT run_id, agent, task, status, outcome, updated_at, "
    "(SELECT COUNT(*) FROM journal WHERE journal.run_id = runs.run_id) FROM runs ORDER BY created_at, rowid"
)


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in a list.

    Args:
        run_id: The run.
        agent: Whose run it is.
        task: What it is for.
        status: `running`, or `done`, `succeeded`, `failed`, `cancelled`.
        outcome: The text that the run was closed with.
        updated_at: Seconds since the epoch.
        events: How many events are recorded.
        interrupted: Whether it is still `running` and no living process drives it.
    """

    run_id: str
    agent: str
    task: str
    status: str
    outcome: str | None
    updated_at: float
    events: int
    interrupted: bool


def list_runs(journal: RunJournal) -> list[RunSummary]:
    """Every run, oldest first."""
    interrupted = set(journal.interrupted_runs())
    rows = journal._database.read(_SUMMARIES, ())
    return [
        RunSummary(run_id, agent, task, status, outcome, updated_at, events, run_id in interrupted)
        for run_id, agent, task, status, outcome, updated_at, events in rows
    ]
