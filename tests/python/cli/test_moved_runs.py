"""Runs that are exported, imported and copied from the command line."""

from __future__ import annotations

import hashlib
import json
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.python.cli.answer_schemas import fits
from tests.python.cli.filled_journal import contents, filled
from typer.testing import CliRunner

from turn_journal_runtime.run_journal import DurableRun, JournalEvent, RunJournal

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from .conftest import Command

PROGRAM = [sys.executable, "-m", "turn_journal_runtime"]


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return filled(tmp_path / "runs.db")


def test_an_exported_run_is_imported_elsewhere_by_file_and_by_pipe(command: Command, db: Path, tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "one.jsonl", tmp_path / "elsewhere" / "runs.db"
    written = command("run", "export", "one", "--to", file, "--db", db, "-f", "json").json
    assert (written["path"], written["lines"]) == (str(file), len(file.read_text().splitlines()))
    assert file.stat().st_mode & 0o077 == 0 or sys.platform == "win32"
    for format, to in (("table", []), ("json", ["--to", "-"]), ("markdown", [])):
        export = [*PROGRAM, "run", "export", "one", "--db", str(db), "-f", format, *to]
        assert subprocess.run(export, capture_output=True, check=True).stdout == file.read_bytes()
    taking = [*PROGRAM, "run", "import", "-", "--db", str(elsewhere), "-f", "json"]
    answer = json.loads(subprocess.run(taking, input=file.read_bytes(), capture_output=True, check=True).stdout)
    fits("run-import", answer)
    assert (answer["replaced"], answer["status"], answer["events"], answer["interrupted"]) == (False, "done", 4, False)
    assert contents(elsewhere) == {"one": contents(db)["one"]}


def test_a_run_that_is_there_is_replaced_on_request_alone(command: Command, db: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    command("run", "export", "one", "--to", file, "--db", db)
    before = contents(db)
    with RunJournal(db) as journal:
        journal.append(JournalEvent("one", 9, "iteration", {"index": 9}))
    changed = contents(db)
    refused = command("run", "import", file, "--db", db)
    assert (refused.code, "--overwrite replaces it" in refused.err) == (1, True)
    assert contents(db) == changed
    assert command("run", "import", file, "--overwrite", "--db", db, "-f", "json").json["replaced"] is True
    assert contents(db) == before


def test_a_run_that_has_not_ended_is_imported_with_what_to_do(command: Command, db: Path, tmp_path: Path) -> None:
    file, elsewhere = tmp_path / "died.jsonl", tmp_path / "other.db"
    command("run", "export", "died", "--to", file, "--db", db)
    assert f"turn-journal run show died --db {elsewhere}" in command("run", "import", file, "--db", elsewhere).out


def test_any_text_goes_through_a_pipe_whatever_the_terminal_can_show(db: Path) -> None:
    with RunJournal(db) as journal:
        journal.open_run("ü", task="\u2028 \x85 😀\r\n")
    lines = "".join(f"{line}\n" for line in contents(db)["ü"]).encode()
    export = [*PROGRAM, "run", "export", "ü", "--db", str(db)]
    ascii_only = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "1"}
    assert subprocess.run(export, capture_output=True, check=True, env=ascii_only).stdout == lines
    elsewhere = db.with_name("elsewhere.db")
    subprocess.run([*PROGRAM, "run", "import", "-", "--db", str(elsewhere)], input=lines, check=True)
    assert contents(elsewhere)["ü"] == contents(db)["ü"]


def test_who_has_read_enough_of_an_export_is_told_nothing(db: Path) -> None:
    with RunJournal(db) as journal:
        journal.open_run("long")
        journal.append_many(JournalEvent("long", at, "iteration", {"index": at}) for at in range(5_000))
    export = [*PROGRAM, "run", "export", "long", "--db", str(db)]
    with subprocess.Popen(export, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"format"')
        process.stdout.close()
        assert process.stderr.read() == b""


CUTS: list[Callable[[bytes], bytes]] = [
    lambda text: b"",
    lambda text: text[:-30],
    lambda text: text[: text.rindex(b'{"lines"')],
    lambda text: text.replace(b'"q":"x"', b'"q":"z"'),
    lambda text: b"\xff\xfe" + text,
    lambda text: text.decode().encode("utf-16"),
    lambda text: b"PK\x03\x04 \x00",
]


@pytest.mark.parametrize("cut", CUTS)
def test_a_damaged_export_is_refused_and_makes_no_journal(
    command: Command, db: Path, tmp_path: Path, cut: Callable[[bytes], bytes]
) -> None:
    file, elsewhere = tmp_path / "one.jsonl", tmp_path / "elsewhere.db"
    command("run", "export", "one", "--to", file, "--db", db)
    file.write_bytes(cut(file.read_bytes()))
    before = contents(db)
    for target in (db, elsewhere):
        refused = command("run", "import", file, "--overwrite", "--db", target, "-f", "json")
        assert (refused.code, json.loads(refused.err)["error"]["kind"]) == (4, "journal_corrupt")
        assert "Nothing was imported; export the run again" in refused.err
    assert (contents(db), elsewhere.exists()) == (before, False)


def _sealed(lines: list[bytes]) -> bytes:
    """An export of those lines, with a last one that vouches for them."""
    text = b"".join(line + b"\n" for line in lines)
    return text + json.dumps({"lines": len(lines), "sha256": hashlib.sha256(text).hexdigest()}).encode() + b"\n"


_CALL = b'"kind":"tool_call"'
NO_RUNS: list[tuple[bytes, bytes, str]] = [
    (b'"seq":1,', b'"seq":-1,', "the field seq is -1"),
    (b'"seq":1,', b'"seq":9223372036854775808,', "the field seq is 9223372036854775808"),
    (_CALL, b'"kind":"dance"', "the event kind 'dance' at step 1 is unknown"),
    (b'{"event":{"seq":1,' + _CALL, b'{"novel":{"seq":1,' + _CALL, "neither an event nor an attempt"),
    (b'{"event":{"seq":1,' + _CALL, b'{"attempt":null,"event":{"seq":1,' + _CALL, "neither an event nor an attempt"),
    (b'"attempt":1,', b'"attempt":-7,', "the field attempt is -7"),
    (b'"state":"failed"', b'"state":"flying"', "'flying'"),
    (b'"kind":"model_decision","state"', b'"kind":"dance","state"', "'dance'"),
    (b'"next_seq":5', b'"next_seq":-5', "the field next_seq is -5"),
    (b'"upto":3', b'"upto":-3', "the field upto is -3"),
    (b'"fence":1', b'"fence":-1', "the field fence is -1"),
    (b'"resumes":1', b'"resumes":-1', "the field resumes is -1"),
    (b'"created_at":', b'"created_at":1' + b"0" * 40 + b',"was":', "the field created_at is 1000"),
]


@pytest.mark.parametrize(("was", "made", "said"), NO_RUNS)
def test_an_export_that_says_what_no_journal_takes_is_refused_whole(
    command: Command, tmp_path: Path, was: bytes, made: bytes, said: str
) -> None:
    db, elsewhere = tmp_path / "runs.db", tmp_path / "elsewhere.db"

    def drive(run_id: str, *, fails: bool) -> None:
        with DurableRun(journal, run_id) as run:
            for index in range(2):
                run.iteration(index)
                run.tool("look", {}, lambda: 1)
            run.model(lambda: 1 // (not fails))

    with RunJournal(db) as journal:
        drive("origin", fails=False)
        journal.fork("origin", "r", upto=3)
        with pytest.raises(ZeroDivisionError):
            drive("r", fails=True)
        lines = [line.encode() for line in journal.export("r")][:-1]
    text = b"\n".join(lines)
    assert was in text
    file = tmp_path / "r.jsonl"
    file.write_bytes(_sealed(lines))
    assert command("run", "import", file, "--db", tmp_path / "whole.db").code == 0
    file.write_bytes(_sealed(text.replace(was, made, 1).split(b"\n")))
    refused = command("run", "import", file, "--db", elsewhere)
    assert (refused.code, said in refused.err, elsewhere.exists()) == (4, True, False)


def test_a_time_may_be_a_whole_number_and_lie_before_its_epoch(command: Command, db: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    with RunJournal(db) as journal:
        lines = [line.encode() for line in journal.export("one")][:-1]
    file.write_bytes(_sealed([re.sub(rb'"created_at":[0-9.]+', b'"created_at":-5', line) for line in lines]))
    assert command("run", "import", file, "--db", tmp_path / "elsewhere.db").code == 0
    assert "1969-12-31 23:59:55" in command("run", "show", "one", "--db", tmp_path / "elsewhere.db").out


def test_what_is_wrong_with_the_journal_is_not_said_of_the_file(command: Command, db: Path, tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    command("run", "export", "one", "--to", file, "--db", db)
    refused = command("run", "import", file, "--db", "mysql://user:secret@host/x")
    assert (refused.code, str(file) in refused.err, "secret" in refused.err) == (2, False, False)


def test_a_damaged_run_is_replaced_by_what_was_exported(command: Command, db: Path, tmp_path: Path) -> None:
    before, file = contents(db), tmp_path / "one.jsonl"
    command("run", "export", "one", "--to", file, "--db", db)
    with closing(sqlite3.connect(db)) as connection, connection:
        connection.execute("UPDATE runs SET metadata = '{' WHERE run_id = 'one'")
        connection.execute("UPDATE journal SET payload = '{' WHERE run_id = 'one'")
    assert command("run", "import", file, "--overwrite", "--db", db, "-f", "json").json["replaced"] is True
    assert contents(db) == before


def test_standard_input_is_told_by_that_name(db: Path) -> None:
    from turn_journal_runtime.cli.app import app

    refused = CliRunner().invoke(app, ["run", "import", "-", "--db", str(db)], input="half of it")
    assert (refused.exit_code, "Standard input" in refused.stderr) == (4, True)


def test_a_backup_is_a_journal_by_itself(command: Command, db: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copies" / "runs.db"
    with RunJournal(db) as journal:  # in use: what was written last is in its log alone
        journal.open_run("last")
        assert command("run", "backup", "--to", copy, "--db", db, "-f", "json").json == {"ok": True, "path": str(copy)}
    assert list(copy.parent.iterdir()) == [copy]
    assert contents(copy) == contents(db)
    assert "last" in contents(copy)
