"""Files go both ways between this package and PraisonAI's RunJournal. run-journal.md, section 1.

`data/praisonai-1.7.17.db` was written by that package. With TEST_PEERS=1 the package itself is installed and asked.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from turn_journal_runtime.run_journal import KIND_ITERATION, DurableRun, JournalEvent, RunJournal

DATA = Path(__file__).parent / "data"
PROGRAM = Path(__file__).parent / "peer_program.py"
EXPECTED: dict[str, Any] = json.loads((DATA / "praisonai-1.7.17.json").read_text())


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    return Path(shutil.copy(DATA / "praisonai-1.7.17.db", tmp_path / "journal.db"))


def finite(value: Any) -> Any:
    """What JSON has no word for reads as what this package stores for it."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list):
        return [finite(item) for item in value]
    return str(value) if isinstance(value, float) and value - value != 0 else value


def as_read_by_them(journal: RunJournal, run_id: str) -> dict[str, Any]:
    run = journal.run_meta(run_id)
    assert run is not None
    return {
        "meta": {name: getattr(run, name) for name in EXPECTED["runs"]["finished"]["meta"]},
        "last_iteration": journal.last_iteration(run_id),
        "events": [[event.seq, event.kind, event.payload, event.created_at] for event in journal.events(run_id)],
    }


def test_their_file_reads_as_they_read_it(theirs: Path) -> None:
    with RunJournal(theirs) as journal:
        assert journal.interrupted_runs() == EXPECTED["interrupted"]
        found = {run_id: as_read_by_them(journal, run_id) for run_id in EXPECTED["runs"]}
    expected = finite(EXPECTED["runs"])
    # They report the latest iteration; the specification asks for the highest.
    assert (expected["killed"]["last_iteration"], found["killed"]["last_iteration"]) == (9, 41)
    expected["killed"]["last_iteration"] = 41
    assert found == expected


def test_their_integers_survive(theirs: Path) -> None:
    with RunJournal(theirs) as journal:
        assert journal.replay_index("killed")[2, "tool_call"]["args"]["amount"] == 12345678901234567890123


def test_their_calls_without_results_are_uncertain(theirs: Path) -> None:
    with RunJournal(theirs) as journal:
        (step,) = journal.uncertain("killed")
        assert (step.seq, step.tool, step.idempotency_key) == (3, "pay", "killed:3:pay")
        journal.settle("killed", 3, result="paid")
        assert journal.uncertain("killed") == []


def test_their_rows_are_not_touched_by_opening_and_writing(theirs: Path) -> None:
    def rows() -> list[list[Any]]:
        with sqlite3.connect(theirs) as reader:
            found = [
                reader.execute("SELECT rowid, * FROM runs WHERE run_id != 'ours' ORDER BY rowid").fetchall(),
                reader.execute("SELECT rowid, * FROM journal WHERE run_id != 'ours' ORDER BY rowid").fetchall(),
                reader.execute("SELECT sql FROM sqlite_master WHERE name IN ('runs', 'journal')").fetchall(),
            ]
        reader.close()
        return found

    before = rows()
    with RunJournal(theirs) as journal:
        with DurableRun(journal, "ours") as run:
            run.tool("t", {}, lambda: 1)
        journal.append(JournalEvent("ours", 9, KIND_ITERATION, {"index": 9}))
    assert rows() == before


def test_our_tables_are_theirs_column_for_column(theirs: Path, tmp_path: Path) -> None:
    def columns(path: Path) -> list[list[tuple[Any, ...]]]:
        with sqlite3.connect(path) as reader:
            found = [reader.execute(f"PRAGMA table_info({table})").fetchall() for table in ("runs", "journal")]
        reader.close()
        return found

    with RunJournal(tmp_path / "ours.db"):
        pass
    assert columns(tmp_path / "ours.db") == columns(theirs)


# With the package itself


@pytest.fixture(scope="session")
def peer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if os.environ.get("TEST_PEERS") != "1":
        pytest.skip("TEST_PEERS=1 installs praisonaiagents and asks it")
    folder = tmp_path_factory.mktemp("peer")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", "praisonaiagents==1.7.17"], check=True)
    return python


def ask(peer: Path, command: str, path: Path) -> dict[str, Any]:
    done = subprocess.run([peer, PROGRAM, command, path], capture_output=True, text=True, check=True, timeout=100)
    found: dict[str, Any] = json.loads(done.stdout or "{}")
    return found


@pytest.mark.process
@pytest.mark.timeout(600)
def test_they_read_our_file_as_we_do(peer: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    with RunJournal(path) as journal:
        with DurableRun(journal, "r", agent="a", task="ü", metadata={"m": [1]}) as run:
            run.iteration(4)
            run.tool("t", {"n": 10**30, "text": "😀\0"}, lambda n, text: [n, 1.5, None])
            run.model(lambda: "answer", request={"p": 1})
            run.sleep(0)
            run.sleep_until(5)
        journal.append(JournalEvent("open", 0, KIND_ITERATION, {"index": 1}))
        journal.open_run("open", checkpoint_id="c")
        ours = {run_id: as_read_by_them(journal, run_id) for run_id in ("r", "open")}
    theirs = ask(peer, "read", path)
    assert theirs["runs"] == ours
    assert theirs["interrupted"] == ["open"]


@pytest.mark.process
@pytest.mark.timeout(600)
def test_a_file_goes_there_and_back_and_there(peer: Path, tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    ask(peer, "make", path)
    with RunJournal(path) as journal:
        journal.append(JournalEvent("killed", 4, KIND_ITERATION, {"index": 50}))
        with DurableRun(journal, "ours") as run:
            run.tool("t", {}, lambda: 1)
        # Both at once: their connection is open while ours is.
        ask(peer, "append", path)
        assert journal.last_iteration("killed") == 99
        assert journal.interrupted_runs() == ["killed", "peer's own"]
        assert [step.tool for step in journal.uncertain("peer's own")] == ["x"]
    theirs = ask(peer, "read", path)
    assert [event[1] for event in theirs["runs"]["ours"]["events"]] == ["tool_call", "tool_result"]
    assert theirs["runs"]["killed"]["last_iteration"] == 99
    with RunJournal(path) as journal:
        assert journal._database.read("PRAGMA integrity_check") == [("ok",)]
