"""A run costs what the run is large, whatever else the file holds: counted in SQLite's own steps, not by a clock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from turn_journal_runtime.run_journal import (
    KIND_ITERATION,
    KIND_TOOL_CALL,
    DurableRun,
    JournalEvent,
    RunJournal,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

SOAK = os.environ.get("TURN_JOURNAL_SOAK") == "1"
EVENTS = 1_000_000 if SOAK else 200_000
IN_ONE_RUN = 100_000 if SOAK else 50_000

pytestmark = pytest.mark.chaos


def fill(journal: RunJournal, run_id: str, count: int) -> None:
    journal.open_run(run_id)
    for start in range(0, count, 10_000):
        journal.append_many(
            JournalEvent(run_id, n, KIND_ITERATION if n % 100 == 0 else KIND_TOOL_CALL, {"index": n})
            for n in range(start, min(start + 10_000, count))
        )


@pytest.fixture(scope="module")
def journals(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[RunJournal, RunJournal]]:
    """A small file and a large one; both hold the run `small`."""
    folder: Path = tmp_path_factory.mktemp("large")
    with RunJournal(folder / "small.db") as small, RunJournal(folder / "large.db") as large:
        fill(small, "small", 1000)
        fill(large, "large", IN_ONE_RUN)
        for number in range((EVENTS - IN_ONE_RUN) // 10_000):
            fill(large, f"run {number}", 10_000)
        fill(large, "small", 1000)
        yield small, large


def steps(journal: RunJournal, work: Callable[[RunJournal], Any]) -> int:
    """How many of SQLite's virtual machine steps a piece of work takes, in tens."""
    counted = [0]

    def count() -> int:
        counted[0] += 1
        return 0

    assert journal._database._cursor is not None
    connection = journal._database._cursor.connection
    connection.set_progress_handler(count, 10)
    try:
        work(journal)
    finally:
        connection.set_progress_handler(None, 0)
    return counted[0]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "work",
    [
        lambda journal: journal.replay_index("small"),
        lambda journal: journal.events("small"),
        lambda journal: journal.last_iteration("small"),
        lambda journal: journal.append(JournalEvent("small", 5000, KIND_TOOL_CALL, {})),
        lambda journal: journal.run_meta("small"),
        lambda journal: journal.uncertain("small"),
        lambda journal: DurableRun(journal, "small").start(),
    ],
    ids=["replay_index", "events", "last_iteration", "append", "run_meta", "uncertain", "start"],
)
def test_work_on_a_run_does_not_grow_with_the_file(
    journals: tuple[RunJournal, RunJournal], work: Callable[[RunJournal], Any]
) -> None:
    small, large = journals
    assert steps(large, work) <= steps(small, work) + 5


@pytest.mark.timeout(600)
def test_the_last_iteration_of_a_long_run_is_found_without_reading_it(
    journals: tuple[RunJournal, RunJournal],
) -> None:
    _, large = journals
    assert steps(large, lambda journal: journal.last_iteration("large")) <= 10
    assert large.last_iteration("large") == IN_ONE_RUN - 100
    assert len(large.replay_index("large")) == IN_ONE_RUN
