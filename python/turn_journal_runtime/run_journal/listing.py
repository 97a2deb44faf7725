"""All runs of a journal at a glance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .events import RUNNING
from .faults import unknown_run
from .steps import read_last_seq

if TYPE_CHECKING:
    from collections.abc import Collection

    from .database import Row
    from .journal import RunJournal

__all__ = ["FailedAttempt", "RunSummary", "failed_attempts", "last_step", "list_runs", "refuse_driven", "summary"]

_SUMMARY = (
    "SELECT run_id, agent, task, status, outcome, updated_at, "
    "(SELECT COUNT(*) FROM journal WHERE journal.run_id = runs.run_id) FROM runs"
)
_SUMMARIES = f"{_SUMMARY} ORDER BY created_at, rowid"
_FAILED = (
    "SELECT seq, kind, error_type, message, created_at FROM step_attempts WHERE run_id = ? AND state = 'failed' "
    "ORDER BY seq, attempt"
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


@dataclass(frozen=True, slots=True)
class FailedAttempt:
    """An attempt at a step that ended with an error.

    Args:
        seq: The step's number.
        kind: What the step was to record: `tool_call` or `model_decision`.
        error_type: The type of the error.
        message: Its text.
        created_at: When, in seconds since the epoch.
    """

    seq: int
    kind: str
    error_type: str
    message: str
    created_at: float


def failed_attempts(journal: RunJournal, run_id: str) -> list[FailedAttempt]:
    """Every attempt of a run that failed, also where a later one did not."""
    rows = journal._database.read(_FAILED, (run_id,))
    return [FailedAttempt(seq, kind, name or "", message or "", at) for seq, kind, name, message, at in rows]


def list_runs(journal: RunJournal) -> list[RunSummary]:
    """Every run, oldest first."""
    interrupted = set(journal.interrupted_runs())
    return [_summed(row, interrupted) for row in journal._database.read(_SUMMARIES, ())]


def summary(journal: RunJournal, run_id: str) -> RunSummary:
    """One run.

    Raises:
        RunNotFoundError: No such run.
    """
    interrupted = journal.interrupted_runs()
    for row in journal._database.read(f"{_SUMMARY} WHERE run_id = ?", (run_id,)):
        return _summed(row, interrupted)
    raise unknown_run(run_id)


def _summed(row: Row, interrupted: Collection[str]) -> RunSummary:
    run_id, agent, task, status, outcome, updated_at, events = row
    # Asked before: it may have been driven to its end since.
    is_interrupted = status == RUNNING and run_id in interrupted
    return RunSummary(run_id, agent, task, status, outcome, updated_at, events, is_interrupted)


def last_step(journal: RunJournal, run_id: str) -> int:
    """The highest number of a run's steps; -1 when it has none."""
    with journal._database.snapshot() as cursor:
        return read_last_seq(cursor, run_id)


def refuse_driven(journal: RunJournal, run_id: str) -> None:
    """Raises when somebody drives a run.

    Raises:
        TurnBusyError: A living process does.
    """
    with journal._database.snapshot() as cursor:
        journal._ownership.refuse_driven(cursor, run_id)
