"""The command as a process: colours, closed pipes, completion, start-up."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from turn_journal_runtime import turn_journal_path, write_turn_journal
from turn_journal_runtime.run_journal import RunJournal

if TYPE_CHECKING:
    from pathlib import Path

COMMAND = (sys.executable, "-m", "turn_journal_runtime.cli")


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    with RunJournal(path) as journal:
        for number in range(200):
            journal.open_run(f"run-{number}", task="x" * 300)
    return path


def _environment(**more: str) -> dict[str, str]:
    return {**os.environ, "TERM": "xterm-256color", **more}


def test_a_pipe_gets_no_colour_and_whole_lines(db: Path) -> None:
    found = subprocess.run(
        [*COMMAND, "runs", "--db", str(db)],
        capture_output=True,
        text=True,
        check=True,
        env=_environment(FORCE_COLOR="1"),
    )
    assert "\x1b" not in found.stdout
    assert len(found.stdout.splitlines()) == 201


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_a_terminal_gets_colour_unless_it_is_unwanted(db: Path) -> None:
    assert b"\x1b[" in _on_a_terminal(db, _environment())
    assert b"\x1b[3" not in _on_a_terminal(db, _environment(NO_COLOR="1"))


def _on_a_terminal(db: Path, environment: dict[str, str]) -> bytes:
    import pty

    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "runs", "--db", str(db)], stdin=theirs, stdout=theirs, stderr=theirs, env=environment
    )
    os.close(theirs)
    chunks = []
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:
            break
        if not chunk:
            break
        chunks.append(chunk)
    os.close(ours)
    assert process.wait(30) == 0
    return b"".join(chunks)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_watching_shows_what_changes_until_it_is_interrupted(tmp_path: Path) -> None:
    import pty
    import signal

    journal = {
        "schema_version": "loopx_turn_journal_v0",
        "goal_id": "g",
        "turn_key": "t",
        "status": "started",
        "plan": {"phases": ["only"]},
        "completed_phases": [],
    }
    path = turn_journal_path(tmp_path, goal_id="g", turn_key="t")
    write_turn_journal(path, journal)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "list", "--root", str(tmp_path), "--watch", "--interval", "0.1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=_environment(),
    )
    os.close(theirs)
    _read_until(ours, b"started")
    write_turn_journal(path, {**journal, "status": "committed", "completed_phases": ["only"]})
    _read_until(ours, b"committed")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    os.close(ours)


def _read_until(terminal: int, expected: bytes) -> None:
    shown = b""
    while expected not in shown:
        shown += os.read(terminal, 65536)


@pytest.mark.skipif(sys.platform == "win32", reason="`head` is a POSIX program")
def test_a_reader_that_leaves_is_no_error(db: Path) -> None:
    command = subprocess.Popen(
        [*COMMAND, "runs", "--db", str(db), "-f", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.readline()
    command.stdout.close()
    said = command.stderr.read().decode()
    command.stderr.close()
    command.wait(30)
    assert "Traceback" not in said
    assert "BrokenPipe" not in said


def test_an_ascii_output_still_gets_valid_json(tmp_path: Path) -> None:
    import json

    db = tmp_path / "runs.db"
    with RunJournal(db) as journal:
        journal.open_run("prüfung")
    found = subprocess.run(
        [*COMMAND, "runs", "--db", str(db), "-f", "json"],
        capture_output=True,
        check=True,
        env=_environment(PYTHONIOENCODING="ascii", PYTHONUTF8="0"),
    )
    assert json.loads(found.stdout)[0]["run_id"] == "prüfung"
    table = subprocess.run(
        [*COMMAND, "runs", "--db", str(db)],
        capture_output=True,
        check=True,
        env=_environment(PYTHONIOENCODING="ascii", PYTHONUTF8="0"),
    )
    assert b"interrupted" in table.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_offered_for_the_shells(shell: str) -> None:
    found = subprocess.run(
        [*COMMAND],
        capture_output=True,
        text=True,
        check=False,
        env=_environment(_TURN_JOURNAL_COMPLETE=f"source_{shell}"),
    )
    assert "turn" in found.stdout
    assert "COMPLETE" in found.stdout


def test_the_package_loads_no_library_of_the_command_line() -> None:
    script = (
        "import sys, turn_journal_runtime, turn_journal_runtime.aio\n"
        "print([name for name in ('typer', 'rich', 'opentelemetry', 'pydantic_ai') if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
