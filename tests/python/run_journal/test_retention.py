"""Pruning of runs: whole runs or none, writers get in between, nothing is left behind. The rules are cases of both
languages: tests/contract/run_journal/journal.json."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from turn_journal_runtime.errors import InvalidJournalError, JournalStoreError, TurnBusyError
from turn_journal_runtime.run_journal import KIND_ITERATION, DurableRun, JournalEvent, RunJournal, retention
from turn_journal_runtime.run_journal.schema import RUN_TABLES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.python.run_journal.conftest import Address


def fill(journal: RunJournal, run_id: str) -> None:
    """Two runs that are over, a run and its fork, the latter with rows in every table."""
    _drive(journal, f"{run_id}-origin")
    journal.fork(f"{run_id}-origin", run_id, upto=3)
    _drive(journal, run_id)


def _drive(journal: RunJournal, run_id: str) -> None:
    with DurableRun(journal, run_id) as run:
        run.iteration(0)
        run.tool("look", {}, lambda: "the secret " * 50)
        with pytest.raises(Exception, match="no"):
            run.tool("fail", {}, _failing)
        run.iteration(1)


def _failing() -> None:
    raise ValueError("no")


def rows(journal: RunJournal) -> dict[str, dict[str, int]]:
    """By run, how many rows it has in each table that has any."""
    found: dict[str, dict[str, int]] = {}
    for table in RUN_TABLES:
        for run_id, count in journal._database.read(f"SELECT run_id, COUNT(*) FROM {table} GROUP BY run_id"):  # noqa: S608
            found.setdefault(run_id, {})[table] = count
    return found


def test_no_row_of_a_pruned_run_is_left_in_any_table(journal: RunJournal) -> None:
    fill(journal, "r")
    fill(journal, "s")
    before = rows(journal)
    assert set(before["r"]) == set(RUN_TABLES)
    assert journal.prune(0, keep=2) == ["r-origin", "r"]
    assert rows(journal) == {run_id: before[run_id] for run_id in ("s-origin", "s")}


def test_every_table_with_rows_of_a_run_is_known(path: Path, address: Address) -> None:
    """A further table, which pruning would have to empty as well."""
    RunJournal(address).close()
    connection = sqlite3.connect(path)
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    columns = "SELECT 1 FROM pragma_table_info(?) WHERE name = 'run_id'"
    ours = [table for table in tables if connection.execute(columns, (table,)).fetchone()]
    connection.close()
    assert sorted(ours) == sorted(RUN_TABLES)


def bytes_of(path: Path) -> bytes:
    return b"".join(file.read_bytes() for file in path.parent.glob(f"{path.name}*") if file.is_file())


@pytest.mark.parametrize("remove", ["delete_run", "prune"])
def test_what_is_deleted_is_overwritten_and_is_in_no_log(path: Path, journal: RunJournal, remove: str) -> None:
    with DurableRun(journal, "r", agent="a", metadata={"of": "the secret"}) as run:
        for number in range(20):
            run.tool("look", {"at": number}, lambda at: f"secret of {at} " * 50)
    assert bytes_of(path).count(b"secret of") >= 1000
    if remove == "prune":
        assert journal.prune(0) == ["r"]
    else:
        journal.delete_run("r")
    assert b"secret" not in bytes_of(path)
    assert journal.settings["secure_delete"] == 1


@pytest.mark.parametrize("seed", range(3))
def test_vacuum_leaves_no_trace_in_the_file_and_gives_space_back(path: Path, journal: RunJournal, seed: int) -> None:
    """SQLite moves rows about between pages, and may leave parts of them behind."""
    choice = random.Random(seed)
    runs = [f"run-{number:02}" for number in range(40)]
    for run_id in runs:
        journal.open_run(run_id)
    for number in range(3000):
        run_id = choice.choice(runs)
        text = f"text of {run_id}. " * choice.choice((1, 4, 20, 100))
        kind = choice.choice(("tool_result", "model_decision", "verification"))
        journal.append(JournalEvent(run_id, choice.randrange(number + 1), kind, {"text": text}))
    gone = choice.sample(runs, 20)
    for run_id in gone:
        journal.close_run(run_id)
    kept = {run_id: journal.events(run_id) for run_id in runs if run_id not in gone}
    # A file of before, whose deleted rows nobody has overwritten.
    journal._database.read("PRAGMA secure_delete = OFF")
    assert sorted(journal.prune(0)) == sorted(gone)
    size = path.stat().st_size
    assert any(run_id.encode() in bytes_of(path) for run_id in gone)
    journal.vacuum()
    assert [run_id for run_id in gone if run_id.encode() in bytes_of(path)] == []
    assert path.stat().st_size < size * 0.7
    assert {run_id: journal.events(run_id) for run_id in kept} == kept
    with RunJournal(path) as again:
        assert {run_id: again.events(run_id) for run_id in kept} == kept


def test_others_who_use_the_file_are_waited_for_by_vacuum_alone(path: Path, journal: RunJournal) -> None:
    fill(journal, "r")
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM journal").fetchone()
    assert journal.prune(0) == ["r-origin", "r"]
    assert b"the secret" in bytes_of(path), "what the reader still reads is in the log"
    patience = journal.settings["busy_timeout"]
    assert patience >= 10_000, "and whoever waits for a writer waits as long as before"
    reader.execute("COMMIT")
    reader.execute("BEGIN IMMEDIATE")
    journal._database.read("PRAGMA busy_timeout = 50")
    with pytest.raises(JournalStoreError, match="locked"):
        journal.vacuum()
    reader.execute("COMMIT")
    reader.close()
    journal.vacuum()
    assert b"the secret" not in bytes_of(path)


def test_one_that_writes_gets_in_between(
    journal: RunJournal, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction removes more runs than there is time for, but one."""
    pauses: list[float] = []
    clock = SimpleNamespace(monotonic=time.monotonic, time=time.time, sleep=pauses.append)
    monkeypatch.setattr(retention, "time", clock)
    monkeypatch.setattr(retention, "_AT_A_TIME", 0)
    for number in range(5):
        journal.open_run(f"r{number}")
        journal.close_run(f"r{number}")
    assert len(journal.prune(0, dry_run=True)) == 5
    assert pauses == [], "nobody waits for one that only looks"
    removed = journal._remove
    with RunJournal(address) as other:

        def between(run_ids: Any, **how: Any) -> dict[str, bool | None]:
            other.append(JournalEvent("other", len(run_ids), KIND_ITERATION, {"index": 0}))
            return removed(run_ids, **how)

        monkeypatch.setattr(journal, "_remove", between)
        assert journal.prune(0) == [f"r{number}" for number in range(5)]
        assert [event.seq for event in other.events("other")] == [1, 2, 3, 4, 5]
    assert len(pauses) == 4, "one that waits for the file comes between"
    assert all(0 < pause <= 0.1 for pause in pauses)


def test_a_run_that_is_begun_again_meanwhile_stays(
    journal: RunJournal, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    for run_id in ("again", "closed", "gone", "old"):
        journal.open_run(run_id)
        journal.close_run(run_id)
    removed = journal._remove
    with RunJournal(address) as other:

        def late(run_ids: Any, **how: Any) -> dict[str, bool | None]:
            other.open_run("again")
            # By a clock that is behind.
            other._database.write("UPDATE runs SET updated_at = 1 WHERE run_id = ?", ("again",))
            other.open_run("closed")
            other.close_run("closed")
            other.delete_run("gone")
            return removed(run_ids, **how)

        monkeypatch.setattr(journal, "_remove", late)
        assert journal.prune(0) == ["old"]
        monkeypatch.undo()
        assert journal.interrupted_runs() == ["again"]
        assert journal.prune(0) == ["closed"]


def test_a_driver_that_lives_keeps_its_run_also_when_it_has_ended(journal: RunJournal, address: Address) -> None:
    with RunJournal(address) as other, DurableRun(journal, "r") as run:
        run.iteration(0)
        journal.close_run("r")
        for one in (journal, other):
            assert one.prune(0) == []
            with pytest.raises(TurnBusyError):
                one.delete_run("r")
    assert journal.prune(0) == ["r"]


@pytest.mark.parametrize("older_than", [-1, float("nan"), float("inf"), True, "1d", None])
def test_an_age_that_is_none_is_refused(journal: RunJournal, older_than: Any) -> None:
    with pytest.raises(InvalidJournalError, match="age"):
        journal.prune(older_than)


@pytest.mark.parametrize("keep", [-1, 1.0, True, "1"])
def test_a_number_to_keep_that_is_none_is_refused(journal: RunJournal, keep: Any) -> None:
    with pytest.raises(InvalidJournalError, match="stay"):
        journal.prune(0, keep=keep)


_PROGRAM = """
import os, signal, sys
from turn_journal_runtime.run_journal import RunJournal, retention

left, execute = int(sys.argv[2]), retention.delete_rows

class Counting:
    def __init__(self, cursor):
        self._cursor = cursor

    def execute(self, *statement):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        return self._cursor.execute(*statement)

retention.delete_rows = lambda cursor, run_id: execute(Counting(cursor), run_id)
retention._AT_A_TIME = 0
with RunJournal(sys.argv[1]) as journal:
    journal.prune(0)
"""


@pytest.mark.process
@pytest.mark.parametrize("killed_at", [1, 3, 5, 6, 9, 10, 14])
def test_a_prune_that_is_killed_leaves_whole_runs(address: Address, killed_at: int) -> None:
    runs = [f"r{number}" for number in range(4)]
    with RunJournal(address) as journal:
        for run_id in runs:
            fill(journal, run_id)
        before = rows(journal)
    command = [sys.executable, "-c", _PROGRAM, str(address), str(killed_at)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    with RunJournal(address) as journal:
        left = rows(journal)
        gone = (killed_at - 1) // len(RUN_TABLES)
        assert len(before) - len(left) == gone
        assert left == {run_id: before[run_id] for run_id in left}
        assert len(journal.prune(0)) == len(left)
        assert rows(journal) == {}
