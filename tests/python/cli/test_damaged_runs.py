"""A damaged run is told as one, can be ended, and keeps no other run from being told of."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.python.cli.filled_journal import filled

from turn_journal_runtime.run_journal import RunJournal

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Command


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return filled(tmp_path / "runs.db")


def damage(db: Path, run_id: str) -> None:
    """Cuts every payload of a run."""
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE journal SET payload = '{' WHERE run_id = ?", (run_id,))


@pytest.mark.parametrize(("run_id", "other"), [("died", ("asks", ["decision"])), ("asks", ("died", ["outcome"]))])
def test_it_is_listed_as_damaged_beside_the_others(
    command: Command, db: Path, run_id: str, other: tuple[str, list[str]]
) -> None:
    damage(db, run_id)
    for arguments in ((), ("--waiting",), ("--interrupted",)):
        listed = command("runs", *arguments, "--db", db, "-f", "json")
        found = {run["run_id"]: (run["waits_for"], run["damage"]) for run in listed.json}
        assert listed.code == 0
        assert (found[run_id][0], found[run_id][1]["kind"]) == ([], "journal_corrupt")
        assert found[other[0]] == (other[1], None)
    shown = command("runs", "--db", db).out
    assert f"The payload of run '{run_id}', step 0" in shown
    assert any(line.split()[:2] == [run_id, "damaged"] for line in shown.splitlines())


@pytest.mark.parametrize(("what", "left"), [("delete", []), ("close", ["died"])])
def test_it_can_be_ended(command: Command, db: Path, what: str, left: list[str]) -> None:
    damage(db, "died")
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE runs SET metadata = '{' WHERE run_id = 'died'")
    arguments = ("run", what, "died", *(("--outcome", "failed") if what == "close" else ()), "--db", db)
    before = db.read_bytes()
    foreseen = command(*arguments, "-f", "json")
    assert (foreseen.code, foreseen.json["damage"]["kind"], db.read_bytes()) == (0, "journal_corrupt", before)
    assert "cannot be told" in command(*arguments).out
    assert command(*arguments, "--yes").code == 0
    with RunJournal(db) as journal:
        assert "died" not in journal.interrupted_runs()
    listed = [run["run_id"] for run in command("runs", "--db", db, "-f", "json").json]
    assert [run_id for run_id in listed if run_id == "died"] == left


def test_its_steps_are_not_handed_on_to_a_fork(command: Command, db: Path) -> None:
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE journal SET payload = '{' WHERE run_id = 'one' AND kind = 'tool_call'")
    refused = command("run", "fork", "one", "new", "--upto", "1", "--db", db, "-f", "json")
    error = json.loads(refused.err)["error"]
    assert (refused.code, error["kind"], error["details"]["run_id"]) == (4, "journal_corrupt", "one")
    assert command("run", "show", "new", "--db", db).code == 3
    assert command("run", "fork", "one", "new", "--upto", "0", "--db", db).code == 0


def test_it_does_not_keep_the_others_from_being_replayed(
    command: Command, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    damage(db, "one")
    monkeypatch.chdir(tmp_path)
    module = f"loops_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(
        "from tests.python.cli.filled_journal import loop\n"
        "from turn_journal_runtime import DurableRun\n"
        "def other(journal, run_id):\n"
        "    loop(DurableRun(journal, run_id), 'y')\n"
    )
    checked = command("run", "check", "one", "other", "--entry", f"{module}:other", "--db", db, "-f", "json")
    assert (checked.code, [run["replays"] for run in checked.json]) == (1, [False, True])
    assert checked.json[0]["problem"]["kind"] == "journal_corrupt"


def test_a_time_that_no_calendar_has_is_shown_as_it_is(command: Command, db: Path) -> None:
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE runs SET updated_at = 1e300 WHERE run_id = 'one'")
        connection.execute("UPDATE journal SET created_at = 1e300 WHERE run_id = 'one'")
    assert "1e+300 s" in command("runs", "--db", db).out
    assert "1e+300 s" in command("run", "show", "one", "--db", db).out
