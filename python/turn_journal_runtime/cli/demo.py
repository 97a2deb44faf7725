"""`turn-journal demo`: kills a real turn in the middle of a tool call, and goes on."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

from ..errors import TurnJournalError
from ..journal import inspect_turn_journal
from .inspection_report import report_of
from .invocation import FormatOption, answering
from .output import Block, Format, Heading, Line, Points, Report, Rows, err

_KILL_AFTER: Final = 2
_DEADLINE_SECONDS: Final = 60.0


@answering
def demo(format: FormatOption = Format.table) -> Report:
    """Kill a real turn in the middle of a tool call, see why it may go on, and see that nothing runs twice."""
    with tempfile.TemporaryDirectory(prefix="turn-journal-demo-") as folder, err().status("Running …") as status:
        work = Path(folder)
        first = _start(work)
        _wait(work, first)
        first.kill()
        first.communicate()
        before, asked_before = _lines(work / "bookings"), _lines(work / "model-calls")
        (path,) = (work / "goals" / "travel" / "turns").glob("*.json")
        key = f"sha256:{path.stem}"
        inspection = inspect_turn_journal(work, goal_id="travel", agent_id="planner", turn_key=key)
        status.update("Going on …")
        again = _start(work)
        said, trouble = again.communicate(timeout=_DEADLINE_SECONDS)
        bookings, asked = _lines(work / "bookings"), _lines(work / "model-calls")
    counts = Counter(line.split()[0] for line in bookings)
    proven = again.returncode == 0 and set(counts.values()) == {1} and len(counts) == 4 and len(asked) == 1
    if again.returncode != 0:
        raise TurnJournalError(f"The demo's second process failed: {trouble.strip()[-500:]}", kind="demo_failed")
    blocks: list[Block] = [
        Heading("1. An agent books trips, one tool call each"),
        Points([f"booked {line.split()[0]}" for line in before]),
        Line(f"killed with process {first.pid}, in the middle of tool call {len(before)}", "bold red"),
        Heading("2. What its journal says"),
        *report_of(f"travel/{key[:19]}", inspection).blocks[:6],
        Heading("3. The same command again, in a new process"),
        Points([f"booked {line.split()[0]}" for line in bookings[len(before) :]]),
        Line(f"process {again.pid} says: {said.strip()}"),
        Heading("4. What really happened, counted from the files"),
        Rows(
            ("effect", "before the kill", "in all", "wanted"),
            [
                ("model calls", str(len(asked_before)), str(len(asked)), "1"),
                ("bookings", str(len(before)), str(len(bookings)), "4"),
                ("made twice", "", str(sum(count > 1 for count in counts.values())), "0"),
            ],
        ),
        Line("Nothing ran twice." if proven else "Something is wrong.", "bold green" if proven else "bold red"),
    ]
    document = {"ok": proven, "inspection": inspection, "bookings": bookings, "model_calls": len(asked)}
    return Report(document, blocks, code=0 if proven else 1)


def _start(work: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", f"{__package__}.demo_agent", str(work)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _wait(work: Path, agent: subprocess.Popen[str]) -> None:
    """Until the agent is in the middle of the tool call to be cut."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    while len(_lines(work / "bookings")) < _KILL_AFTER:
        if agent.poll() is not None or time.monotonic() > deadline:
            agent.kill()
            raise TurnJournalError(
                f"The demo's agent ended too early: {agent.communicate()[1].strip()[-500:]}", kind="demo_failed"
            )
        time.sleep(0.01)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
