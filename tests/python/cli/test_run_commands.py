"""What a person does with whole runs: compare two, fork one, close and delete one; in a file and in a database."""

from __future__ import annotations

import json
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.cli.filled_journal import contents, fill, filled, loop
from tests.python.run_journal import databases

from turn_journal_runtime.run_journal import DurableRun, JournalEvent, RunJournal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import PostgresServer

    from .conftest import Command


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return filled(tmp_path / "runs.db")


# Compared


@pytest.mark.parametrize(
    ("a", "b", "relation", "seq", "fields", "said"),
    [
        ("one", "one", "equal", None, None, "one and one are equal."),
        (
            "one",
            "other",
            "content",
            1,
            ["args.q"],
            "They part at step 1, tool_call search: the same step, with other content.",
        ),
        (
            "one",
            "short",
            "b_is_beginning",
            2,
            ["kind"],
            "short is the beginning of one, which goes on at step 2 with model_decision.",
        ),
        (
            "short",
            "one",
            "a_is_beginning",
            2,
            ["kind"],
            "short is the beginning of one, which goes on at step 2 with model_decision.",
        ),
        ("one", "died", "path", 0, ["kind"], "They part at step 0: another step is taken."),
    ],
)
def test_diff_says_where_two_runs_part_and_how(
    command: Command, db: Path, a: str, b: str, relation: str, seq: int | None, fields: list[str] | None, said: str
) -> None:
    answer = command("run", "diff", a, b, "--db", db, "-f", "json")
    assert (answer.code, answer.json["relation"]) == (0, relation)
    found = answer.json["difference"] or {"seq": None, "fields": None}
    assert (found["seq"], found["fields"]) == (seq, fields)
    assert command("run", "diff", a, b, "--db", db).out.splitlines()[0] == said


def test_diff_shows_what_each_run_has_where_they_differ(command: Command, tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    calls = {
        "a": {"name": "send", "args": {"to.whom": {"x": 1}, "new": 2}},
        "b": {"name": "send", "args": {"to.whom": {"x": "1"}}},
        "c": {"name": "wait", "args": {"to.whom": {"x": 1}, "new": 2}},
    }
    with RunJournal(db) as journal:
        for run_id, call in calls.items():
            journal.open_run(run_id)
            journal.append(JournalEvent(run_id, 0, "tool_call", call))
    rows = [line.split() for line in command("run", "diff", "a", "b", "--db", db).out.splitlines()[2:]]
    assert rows == [["differs", "a", "b"], ["args.new", "2"], ["args.to.whom.x", "1", '"1"']]
    assert command("run", "diff", "a", "c", "--db", db, "-f", "json").json["relation"] == "path"
    assert "tool_call wait" in command("run", "diff", "a", "c", "--db", db).out


# Forked


def test_a_fork_goes_its_own_way_and_says_where_it_is_from(command: Command, db: Path) -> None:
    before = contents(db)["one"]
    made = command("run", "fork", "one", "again", "--upto", "1", "--db", db, "-f", "json")
    assert (made.json["events"], made.json["parent"]) == (3, {"run_id": "one", "upto": 1})
    assert command("run", "show", "again", "--db", db, "-f", "json").json["parent"] == made.json["parent"]
    assert "forked from one, with its steps up to 1" in command("run", "show", "again", "--db", db).out
    assert command("run", "show", "one", "--db", db, "-f", "json").json["parent"] is None
    assert contents(db)["one"] == before
    with RunJournal(db) as journal:
        loop(DurableRun(journal, "again"), "x")
    assert command("run", "diff", "one", "again", "--db", db, "-f", "json").json["relation"] == "equal"


def test_a_fork_says_what_waits_for_a_person_in_it(command: Command, db: Path) -> None:
    forked = command("run", "fork", "died", "died-2", "--upto", "0", "--db", db, "-f", "json").json
    assert [step["idempotency_key"] for step in forked["uncertain"]] == ["died:0:pay"]
    assert "turn-journal approve asks-2 0" in command("run", "fork", "asks", "asks-2", "--upto", "0", "--db", db).out
    assert command("settle", "died-2", "0", "--absent", "--db", db).code == 0
    assert command("run", "show", "died-2", "--db", db, "-f", "json").json["uncertain"] == []
    assert command("run", "show", "died", "--db", db, "-f", "json").json["uncertain"] != []


# Ended


def test_a_closed_run_is_interrupted_no_more_and_keeps_its_record(command: Command, db: Path) -> None:
    before = contents(db)
    foreseen = command("run", "close", "died", "--outcome", "cancelled", "--db", db, "-f", "json").json
    assert (foreseen["done"], [step["seq"] for step in foreseen["uncertain"]]) == (False, [0])
    assert contents(db) == before
    assert command("run", "close", "died", "--outcome", "cancelled", "--yes", "--db", db, "-f", "json").json["done"]
    died = next(run for run in command("runs", "--db", db, "-f", "json").json if run["run_id"] == "died")
    assert (died["status"], died["interrupted"], died["events"]) == ("cancelled", False, 1)
    assert [run["run_id"] for run in command("runs", "--interrupted", "--db", db, "-f", "json").json] == ["asks"]
    assert command("run", "close", "asks", "--outcome", "failed", "--yes", "--db", db).code == 0
    assert command("runs", "--waiting", "--db", db, "-f", "json").json == []


@pytest.mark.parametrize("sure", [[], ["--yes"]])
def test_a_run_that_has_ended_keeps_its_outcome(command: Command, db: Path, sure: list[str]) -> None:
    before = contents(db)
    refused = command("run", "close", "one", "--outcome", "failed", *sure, "--db", db)
    assert (refused.code, "has ended: done" in refused.err) == (1, True)
    assert contents(db) == before


def test_a_deleted_run_is_gone_whole_and_the_others_stay(command: Command, db: Path) -> None:
    command("run", "fork", "one", "again", "--upto", "1", "--db", db)
    before = contents(db)
    foreseen = command("run", "delete", "one", "--db", db, "-f", "json").json
    assert (foreseen["done"], foreseen["status"], foreseen["events"]) == (False, "done", 4)
    assert contents(db) == before
    assert command("run", "delete", "one", "--yes", "--db", db, "-f", "json").json["done"]
    del before["one"]
    assert contents(db) == before
    warned = command("run", "delete", "died", "--db", db).out
    assert "begins from the top" in warned
    assert "step 0, pay" in warned


@pytest.mark.parametrize("sure", [[], ["--yes"]])
def test_a_run_that_somebody_drives_is_neither_closed_deleted_nor_replaced(
    command: Command, db: Path, tmp_path: Path, sure: list[str]
) -> None:
    file = tmp_path / "died.jsonl"
    command("run", "export", "died", "--to", file, "--db", db)
    with RunJournal(db) as journal:
        run = DurableRun(journal, "died")
        run.start()
        commands: list[tuple[str | Path, ...]] = [
            ("run", "close", "died", "--outcome", "failed", *sure),
            ("run", "delete", "died", *sure),
            ("run", "import", file, "--overwrite"),
        ]
        for arguments in commands:
            refused = command(*arguments, "--db", db, "-f", "json")
            assert (refused.code, json.loads(refused.err)["error"]["kind"]) == (1, "turn_busy")
        run.release()
    assert command("run", "delete", "died", "--yes", "--db", db).code == 0


def test_what_ends_the_run_of_a_turn_says_that_it_is_one(command: Command, tmp_path: Path) -> None:
    db, turn = tmp_path / "runs.db", f"sha256:{'ab12' * 16}"
    with RunJournal(db) as journal:
        journal.open_run(turn)
    assert "give-up" in command("run", "close", "sha256:ab12ab12ab12", "--outcome", "failed", "--db", db).out
    assert "run of a turn" in command("run", "delete", "sha256:ab12ab12ab12", "--db", db).out


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("diff", "one", "nobody"), 3),
        (("diff", "nobody", "one"), 3),
        (("diff", "one"), 2),
        (("fork", "nobody", "new", "--upto", "0"), 3),
        (("fork", "one", "new", "--upto", "3"), 3),
        (("fork", "one", "new", "--upto", "-1"), 2),
        (("fork", "one", "new", "--upto", "one"), 2),
        (("fork", "one", "new"), 2),
        (("fork", "one", "", "--upto", "0"), 2),
        (("fork", "one", "died", "--upto", "0"), 1),
        (("export", "nobody"), 3),
        (("export", "nobody", "--to", "new"), 3),
        (("export", "one", "--to", "runs.db"), 1),
        (("export", "one", "--to", "runs.db/below"), 1),
        (("import", "nowhere.jsonl"), 3),
        (("import", "."), 1),
        (("import", "runs.db"), 4),
        (("backup", "--to", "runs.db"), 1),
        (("backup",), 2),
        (("close", "nobody", "--outcome", "done", "--yes"), 3),
        (("close", "died", "--outcome", "lost", "--yes"), 2),
        (("close", "died", "--yes"), 2),
        (("delete", "nobody", "--yes"), 3),
    ],
)
def test_mistakes_have_their_exit_code_and_no_trace(
    command: Command,
    db: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    before, files = contents(db), sorted(tmp_path.iterdir())
    outcome = command("run", *arguments, "--db", db)
    assert (outcome.code, outcome.out) == (code, "")
    assert outcome.err
    assert "Traceback" not in outcome.err
    assert (contents(db), sorted(tmp_path.iterdir())) == (before, files)


@pytest.mark.parametrize(
    "arguments",
    [
        ("diff", "one", "other"),
        ("fork", "one", "new", "--upto", "0"),
        ("export", "one"),
        ("backup", "--to", "copy.db"),
        ("close", "died", "--outcome", "done", "--yes"),
        ("delete", "one", "--yes"),
    ],
)
def test_no_command_makes_a_journal_or_touches_a_damaged_or_newer_one(
    command: Command, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert command("run", *arguments, "--db", "none.db", "-f", "json").code == 3
    damaged = tmp_path / "damaged.db"
    damaged.write_bytes(b"this is no database" * 100)
    newer = sqlite3.connect(db)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    before = db.read_bytes()
    assert command("run", *arguments, "--db", damaged, "-f", "json").code == 4
    refused = command("run", *arguments, "--db", db, "-f", "json")
    assert (refused.code, json.loads(refused.err)["error"]["kind"]) == (1, "store_unsupported")
    assert (damaged.read_bytes(), db.read_bytes()) == (b"this is no database" * 100, before)
    assert not {"none.db", "copy.db"} & {path.name for path in tmp_path.iterdir()}


# In a database


@pytest.fixture
def url(postgres_server: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[databases.Schema]:
    monkeypatch.setenv("TURN_JOURNAL_HOME", str(tmp_path / "host"))
    with databases.made(postgres_server.url) as server:
        yield databases.Schema.made(server)


def test_the_same_is_done_with_runs_in_a_database(command: Command, url: databases.Schema, tmp_path: Path) -> None:
    file, copy = tmp_path / "one.jsonl", tmp_path / "copy.db"
    with RunJournal(url) as journal:
        fill(journal)

    def answer(*arguments: str | Path) -> Any:
        outcome = command("run", *arguments, "--db", url, "-f", "json")
        assert outcome.code == 0, outcome.err
        return outcome.json

    assert answer("diff", "one", "other")["relation"] == "content"
    assert answer("fork", "one", "again", "--upto", "1")["events"] == 3
    assert answer("export", "one", "--to", file)["lines"] == 6
    assert answer("backup", "--to", copy)["ok"]
    with RunJournal(url) as journal:
        run = DurableRun(journal, "again")
        run.start()
        for arguments in (("close", "again", "--outcome", "done", "--yes"), ("delete", "again", "--yes")):
            assert command("run", *arguments, "--db", url, "-f", "json").code == 1
        run.release()
    assert answer("close", "died", "--outcome", "cancelled", "--yes")["done"]
    assert answer("delete", "one", "--yes")["done"]
    assert command("run", "show", "one", "--db", url).code == 3
    assert answer("import", file)["replaced"] is False
    with RunJournal(url) as journal:
        assert list(journal.export("one")) == contents(copy)["one"]
