"""Which journal a command on runs is about, and what it says to type next."""

from __future__ import annotations

import json
import re
import shlex
import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.python.cli.filled_journal import filled

from turn_journal_runtime import DurableRun, JournalEvent, RunJournal
from turn_journal_runtime.errors import TurnSuspended, UncertainEffectError

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Command


def test_turns_that_are_named_go_before_a_journal_that_a_variable_names(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURN_JOURNAL_RUNS", str(filled(tmp_path / "runs.db")))
    with RunJournal(tmp_path / "runs" / "journal.db") as journal:
        journal.open_run("one")
    assert [run["run_id"] for run in command("runs", "--root", tmp_path, "-f", "json").json] == ["one"]
    assert "one would be deleted, with its 0 events" in command("run", "delete", "one", "-r", tmp_path).out.replace(
        " (running)", ""
    )
    monkeypatch.setenv("TURN_JOURNAL_ROOT", str(tmp_path))
    assert len(command("runs", "-f", "json").json) == 5
    monkeypatch.delenv("TURN_JOURNAL_RUNS")
    assert len(command("runs", "-f", "json").json) == 1
    assert len(command("runs", "--db", tmp_path / "runs.db", "-f", "json").json) == 5


@pytest.mark.parametrize("arguments", [("runs",), ("run", "vacuum"), ("run", "import", "one.jsonl")])
def test_the_database_of_another_program_is_left_as_it_is(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(tmp_path)
    command("run", "export", "one", "--to", "one.jsonl", "--db", filled(tmp_path / "runs.db"))
    with closing(sqlite3.connect("app.db")) as connection, connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    before = (tmp_path / "app.db").read_bytes()
    refused = command(*arguments, "--db", "app.db")
    assert (refused.code, "a database of something else" in refused.err) == (4, True)
    assert ((tmp_path / "app.db").read_bytes(), (tmp_path / "app.db-wal").exists()) == (before, False)


def test_an_empty_database_is_nothing_else_and_becomes_a_journal(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    command("run", "export", "one", "--to", file, "--db", filled(tmp_path / "runs.db"))
    (tmp_path / "touched.db").touch()
    with closing(sqlite3.connect(tmp_path / "bare.db")) as connection, connection:
        connection.execute("PRAGMA application_id = 1")
    for name in ("touched.db", "bare.db"):
        assert command("run", "import", file, "--db", tmp_path / name).code == 0


@pytest.mark.parametrize("place", ["postgresql:/user:secret@host/x", "mysql://user:secret@host/x"])
def test_what_only_looks_like_the_url_of_a_database_is_not_repeated(command: Command, place: str) -> None:
    for option in ("--db", "--root"):
        refused = command("runs", option, place)
        assert (refused.code, "secret" in refused.err) == (2, False)


NAMES = ["trip one", "x; touch pwned", "$(touch pwned)", "d'q", "a\nb", "\x1b[31mred", "-x", "--db"]


@pytest.mark.parametrize("name", NAMES)
def test_what_to_type_about_a_run_can_be_typed_whatever_it_is_called(
    command: Command, tmp_path: Path, name: str
) -> None:
    db = tmp_path / "my runs.db"
    with RunJournal(db) as journal:
        journal.open_run(name)
        journal.append(JournalEvent(name, 0, "tool_call", {"name": "pay", "args": {}, "idempotency_key": "k"}))
        with pytest.raises(TurnSuspended), DurableRun(journal, f"{name} asks") as run:
            run.approval("Publish?")
    shown = command("run", "show", "--db", db, "--", name).out
    assert _typed(command, shown, "settle") == 0
    shown = command("run", "show", "--db", db, "--", f"{name} asks").out
    assert _typed(command, shown, "approve", "--by", "ada") == 0
    assert command("runs", "--waiting", "--db", db, "-f", "json").json == []
    file = tmp_path / "r.jsonl"
    assert command("run", "export", "--to", file, "--db", db, "--", name).code == 0
    assert _typed(command, command("run", "import", file, "--db", tmp_path / "to here.db").out, "run show") == 0
    assert _typed(command, command("run", "backup", "--to", tmp_path / "a copy.db", "--db", db).out, "runs") == 0


@pytest.mark.parametrize("name", NAMES)
def test_what_an_error_says_to_type_can_be_typed(command: Command, tmp_path: Path, name: str) -> None:
    def pay() -> None:
        raise KeyboardInterrupt

    with RunJournal(tmp_path / "my runs.db") as journal:
        with pytest.raises(KeyboardInterrupt), DurableRun(journal, name) as run:
            run.tool("pay", {}, pay)
        with pytest.raises(UncertainEffectError) as uncertain, DurableRun(journal, name) as run:
            run.tool("pay", {}, pay)
        with pytest.raises(TurnSuspended) as asks, DurableRun(journal, f"{name} asks") as run:
            run.approval("Publish?")
    assert _typed(command, str(uncertain.value), "settle") == 0
    assert _typed(command, str(asks.value), "approve", "--by", "ada") == 0


def _typed(command: Command, shown: str, what: str, *more: str) -> int:
    """What a command that is told comes to: its words as a shell takes them, without what only its message has."""
    # A line that is broken is one that goes on: a table indents it.
    told = re.search(rf"turn-journal {what} (.+?)(?:, or |`)", shown, re.DOTALL)
    assert told is not None, shown
    words = shlex.split(re.sub(r"\n {4}", "\n", told[1]).replace("JSON", "5"))
    return command(*what.split(), *more, *words).code


@pytest.mark.parametrize("option", ["--db", "--root"])
@pytest.mark.parametrize("command_line", [("runs",), ("run", "vacuum")])
def test_an_empty_place_is_not_the_working_folder(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, option: str, command_line: tuple[str, ...]
) -> None:
    with RunJournal(tmp_path / "runs" / "journal.db") as journal:
        journal.open_run("one")
    (tmp_path / "goals").mkdir()
    monkeypatch.chdir(tmp_path)
    refused = command(*command_line, option, "")
    assert (refused.code, "It is empty" in refused.err) == (2, True)


def test_an_empty_root_is_not_the_working_folder_for_turns_either(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "goals").mkdir()
    monkeypatch.chdir(tmp_path)
    of_root = (("list",), ("prune", "--older-than", "1d"), ("inspect", "g/k"), ("recover",), ("verify",))
    for arguments in (
        *((*one, "--root", "") for one in of_root),
        ("store", "copy", "", "x"),
        ("store", "copy", ".", ""),
    ):
        refused = command(*arguments)
        assert (refused.code, "It is empty" in refused.err) == (2, True)


def test_what_a_command_refuses_of_its_own_line_is_json_where_answers_are(command: Command, tmp_path: Path) -> None:
    refused = command("settle", "r", "0", "--db", filled(tmp_path / "runs.db"), "-f", "json")
    assert refused.code == 2
    assert json.loads(refused.err) == {
        "error": {
            "kind": "invalid_request",
            "message": "Invalid value for --result: Give one of --result JSON and --absent.",
            "details": {},
        }
    }


def test_two_places_are_one_too_many(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    db = filled(tmp_path / "runs.db")
    refused = command("runs", "--db", db, "--root", tmp_path)
    assert (refused.code, "one of --db and --root" in refused.err) == (2, True)
    monkeypatch.setenv("TURN_JOURNAL_ROOT", str(tmp_path))
    assert command("runs", "--db", db).code == 0


def test_a_place_is_not_said_again_that_a_variable_says_and_no_url_is_repeated(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db = filled(tmp_path / "runs.db")
    monkeypatch.setenv("TURN_JOURNAL_RUNS", str(db))
    assert "turn-journal settle died 0 --result JSON" in command("run", "show", "died").out
    from turn_journal_runtime.cli.place import said_place

    assert said_place("postgresql://user:secret@host/x", None) == " --db URL"
    assert said_place(None, "postgresql://user:secret@host/x") == " --root URL"
