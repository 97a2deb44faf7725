"""The command as a process: colours, closed pipes, completion, start-up."""

from __future__ import annotations

import os
import re
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


def _store(root: Path) -> None:
    """A store with one open turn."""
    journal = {
        "schema_version": "loopx_turn_journal_v0",
        "goal_id": "g",
        "agent_id": "a",
        "turn_key": "t",
        "status": "started",
        "plan": {"phases": ["only"]},
        "completed_phases": [],
    }
    write_turn_journal(turn_journal_path(root, goal_id="g", turn_key="t"), journal)


def _on_terminal(
    *arguments: str, columns: int = 80, interrupt_at: str = "", code: int = 0, env: dict[str, str] | None = None
) -> str:
    """What a command writes to a terminal; Ctrl-C is pressed once it has written that."""
    import fcntl
    import pty
    import struct
    import termios

    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(COMMAND[0], [*COMMAND, *arguments], _environment(**(env or {})))  # noqa: S606 - as a shell does
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    shown = b""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
        if interrupt_at and interrupt_at.encode() in shown:
            os.write(terminal, b"\x03")
            interrupt_at = ""
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == code
    return shown.decode()


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


def test_a_pipe_gets_no_trailing_blanks_and_no_progress(tmp_path: Path) -> None:
    _store(tmp_path)
    for arguments in (("verify",), ("list",), ("inspect", "g/t"), ("history", "g/t")):
        found = subprocess.run(
            [*COMMAND, *arguments, "-r", str(tmp_path)], capture_output=True, text=True, check=True, env=_environment()
        )
        assert [line for line in found.stdout.splitlines() if line != line.rstrip()] == []
        assert found.stderr == ""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
@pytest.mark.parametrize("columns", [80, 120])
def test_a_terminal_gets_progress_and_lines_that_fit(tmp_path: Path, columns: int) -> None:
    _store(tmp_path)
    shown = _on_terminal("verify", "-r", str(tmp_path), columns=columns)
    assert "Verifying" in shown
    for arguments in (("list",), ("inspect", "g/t"), ("doctor",), ("recover",)):
        shown = _on_terminal(*arguments, "-r", str(tmp_path), columns=columns, env={"NO_COLOR": "1"})
        lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", line) for line in shown.rsplit("\x1b[2K", 1)[-1].splitlines()]
        assert max(map(len, lines)) <= columns
        # What goes on in the next line stands below its beginning.
        assert all(line[:4] in ("  • ", "    ") for line in lines if line.startswith("  "))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_ctrl_c_ends_a_command_without_a_trace(tmp_path: Path) -> None:
    shown = _on_terminal("demo", interrupt_at="Starting", code=130, env={"TMPDIR": str(tmp_path)})
    assert "Traceback" not in shown
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("turn-journal hist", ["history"]),
        ("turn-journal run ", ["show"]),
        ("turn-journal list --format ", ["table", "json", "markdown"]),
        ("turn-journal verify --hea", ["--heads"]),
    ],
)
def test_completion_in_bash_completes_commands_options_and_values(typed: str, offered: list[str]) -> None:
    words = typed.split(" ")
    asked = {"_TURN_JOURNAL_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    found = subprocess.run([*COMMAND], capture_output=True, text=True, check=False, env=_environment(**asked))
    assert found.stdout.split() == offered


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
