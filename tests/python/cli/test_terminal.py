"""The command as a process: colours, closed pipes, completion, start-up."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.python.cli.terminal import COMMAND, OnTerminal, environment, interrupted

from turn_journal_runtime import turn_journal_path, write_turn_journal
from turn_journal_runtime.run_journal import RunJournal

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def db(tmp_path: Path) -> Path:
    path = tmp_path / "runs.db"
    with RunJournal(path) as journal:
        for number in range(200):
            journal.open_run(f"run-{number}", task="x" * 300)
    return path


def test_a_pipe_gets_no_colour_and_whole_lines(db: Path) -> None:
    found = subprocess.run(
        [*COMMAND, "runs", "--db", str(db)],
        capture_output=True,
        text=True,
        check=True,
        env=environment(FORCE_COLOR="1"),
    )
    assert "\x1b" not in found.stdout
    assert len(found.stdout.splitlines()) == 201


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no disk that is always full")
@pytest.mark.parametrize("format", ["table", "json", "markdown"])
def test_an_answer_that_cannot_be_written_is_told_without_a_trace(db: Path, format: str) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [*COMMAND, "runs", "--db", str(db), "-f", format],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env=environment(),
        )
    assert done.returncode == 1
    assert "could not be written" in done.stderr
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_a_terminal_gets_colour_unless_it_is_unwanted(db: Path) -> None:
    coloured = OnTerminal("runs", "--db", str(db))
    plain = OnTerminal("runs", "--db", str(db), NO_COLOR="1")
    assert "\x1b[3" in coloured.shown()
    assert "\x1b[3" not in plain.shown()


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_watching_shows_what_changes_until_it_isinterrupted(tmp_path: Path) -> None:
    import pty
    import signal

    _store(tmp_path)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*COMMAND, "list", "--root", str(tmp_path), "--watch", "--interval", "0.1"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env=environment(),
    )
    os.close(theirs)
    _read_until(ours, b"started")
    _store(tmp_path, status="committed", completed_phases=["only"])
    _read_until(ours, b"committed")
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    os.close(ours)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_watching_shows_what_fits_the_newest_first(tmp_path: Path) -> None:
    for key in ["zz", *(f"t{number:02}" for number in range(50)), "aa"]:
        _store(tmp_path, key)
    shown = interrupted("list", "-r", str(tmp_path), "--watch", "--interval", "60", interrupt_at="written before these")
    assert "g/aa" in shown
    assert "g/t49" in shown
    assert "g/t01" not in shown
    assert "g/zz" not in shown


def _store(root: Path, key: str = "t", **now: object) -> None:
    """A store with one turn, which is open unless it is said to be something else now."""
    journal = {
        "schema_version": "loopx_turn_journal_v0",
        "goal_id": "g",
        "agent_id": "a",
        "turn_key": key,
        "status": "started",
        "plan": {"phases": ["only"]},
        "completed_phases": [],
        **now,
    }
    write_turn_journal(turn_journal_path(root, goal_id="g", turn_key=key), journal)


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
        env=environment(PYTHONIOENCODING="ascii", PYTHONUTF8="0"),
    )
    assert json.loads(found.stdout)[0]["run_id"] == "prüfung"
    table = subprocess.run(
        [*COMMAND, "runs", "--db", str(db)],
        capture_output=True,
        check=True,
        env=environment(PYTHONIOENCODING="ascii", PYTHONUTF8="0"),
    )
    assert b"interrupted" in table.stdout


def test_a_pipe_gets_no_trailing_blanks_and_no_progress(tmp_path: Path) -> None:
    _store(tmp_path)
    for arguments in (("verify",), ("list",), ("inspect", "g/t"), ("history", "g/t")):
        found = subprocess.run(
            [*COMMAND, *arguments, "-r", str(tmp_path)], capture_output=True, text=True, check=True, env=environment()
        )
        assert [line for line in found.stdout.splitlines() if line != line.rstrip()] == []
        assert found.stderr == ""


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_a_terminal_gets_progress_and_lines_that_fit(tmp_path: Path) -> None:
    _store(tmp_path)
    verify = OnTerminal("verify", "-r", str(tmp_path))
    commands = (("list",), ("inspect", "g/t"), ("doctor",), ("recover",))
    running = [
        (columns, OnTerminal(*arguments, "-r", str(tmp_path), columns=columns, NO_COLOR="1"))
        for columns in (80, 120)
        for arguments in commands
    ]
    assert "Verifying" in verify.shown()
    for columns, command in running:
        shown = command.shown().rsplit("\x1b[2K", 1)[-1]
        lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", line) for line in shown.splitlines()]
        assert max(map(len, lines)) <= columns
        # What goes on in the next line stands below its beginning.
        assert all(line[:4] in ("  • ", "    ") for line in lines if line.startswith("  "))


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_a_long_name_leaves_the_other_columns_room_and_is_whole(db: Path) -> None:
    long = ":0:research" * 12
    with RunJournal(db) as journal:
        journal.open_run(long)
    shown = OnTerminal("runs", "--db", str(db), NO_COLOR="1").shown()
    lines = [re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]|\r", "", line) for line in shown.splitlines()]
    assert "interrupted" in shown
    begun = next(at for at, line in enumerate(lines) if line.startswith(long[:11]))
    assert "".join(line.split("  ")[0].strip() for line in lines[begun:]).startswith(long)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_ctrl_c_ends_a_command_without_a_trace(tmp_path: Path) -> None:
    shown = interrupted("demo", interrupt_at="Starting", code=130, env={"TMPDIR": str(tmp_path)})
    assert "Traceback" not in shown
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_before_a_command_has_begun_leaves_no_trace() -> None:
    script = (
        "import sys, types\n"
        "def app(**_): raise KeyboardInterrupt\n"
        "sys.modules['turn_journal_runtime.cli.app'] = types.SimpleNamespace(app=app)\n"
        "from turn_journal_runtime.cli import main\n"
        "main()"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert (found.returncode, found.stdout, found.stderr) == (130, "", "")


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("turn-journal hist", ["history"]),
        ("turn-journal store ", ["migrate", "copy"]),
        ("turn-journal run ex", ["export"]),
        ("turn-journal list --format ", ["table", "json", "markdown"]),
        ("turn-journal verify --hea", ["--heads"]),
    ],
)
def test_completion_in_bash_completes_commands_options_and_values(typed: str, offered: list[str]) -> None:
    words = typed.split(" ")
    asked = {"_TURN_JOURNAL_COMPLETE": "complete_bash", "COMP_WORDS": typed, "COMP_CWORD": str(len(words) - 1)}
    found = subprocess.run([*COMMAND], capture_output=True, text=True, check=False, env=environment(**asked))
    assert found.stdout.split() == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_is_offered_for_the_shells(shell: str) -> None:
    found = subprocess.run(
        [*COMMAND],
        capture_output=True,
        text=True,
        check=False,
        env=environment(_TURN_JOURNAL_COMPLETE=f"source_{shell}"),
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
