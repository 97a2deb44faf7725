"""`turn-journal demo`: kills a real turn in the middle of a tool call, and goes on."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from ..errors import TurnJournalError
from ..journal import inspect_turn_journal, load_turn_journal, turn_journal_path
from . import demo_agent
from .inspection_report import report_of
from .invocation import FormatOption, answering
from .output import Block, Format, Heading, Line, Points, Report, Rows, err

if TYPE_CHECKING:
    from collections.abc import Callable

    from .documents import DemoOutcome

_KILL_AFTER: Final = 2
_DEADLINE_SECONDS: Final = 60.0
_CHAPTER: Final = "bold cyan"


@answering
def demo(format: FormatOption = Format.table) -> Report:
    """Kill a real turn in the middle of a tool call, see why it may go on, and see that nothing runs twice."""
    with tempfile.TemporaryDirectory(prefix="turn-journal-demo-") as folder, err().status("Starting …") as status:
        work = Path(folder)

        def booked(city: str) -> None:
            status.update(f"booked {city} …")

        first = _start(work)
        _follow(work, first, booked, until=_KILL_AFTER)
        first.kill()
        first.communicate()
        before, asked_before = _lines(work / "bookings"), _lines(work / "model-calls")
        (path,) = (work / "goals" / demo_agent.GOAL / "turns").glob("*.json")
        key = f"sha256:{path.stem}"
        inspection = inspect_turn_journal(work, goal_id=demo_agent.GOAL, agent_id=demo_agent.AGENT, turn_key=key)
        status.update("Going on …")
        again = _start(work)
        _follow(work, again, booked)
        said, trouble = again.communicate(timeout=_DEADLINE_SECONDS)
        if again.returncode != 0:
            raise TurnJournalError(f"The demo's second process failed: {trouble.strip()[-500:]}", kind="demo_failed")
        bookings, asked = _lines(work / "bookings"), _lines(work / "model-calls")
        stored = load_turn_journal(turn_journal_path(work, goal_id=demo_agent.GOAL, turn_key=key))["status"]
    counts = Counter(line.split()[0] for line in bookings)
    proven = counts == Counter(demo_agent.CITIES) and len(asked) == 1 and stored == "committed"
    blocks: list[Block] = [
        Heading("1. An agent books trips, one tool call each", _CHAPTER),
        Points([f"booked {line.split()[0]}" for line in before]),
        Line(f"process {first.pid} is killed with SIGKILL, in the middle of tool call {len(before)}", "bold red"),
        Heading("2. What does its journal say? turn-journal inspect", _CHAPTER),
        *report_of(f"{demo_agent.GOAL}/{key[:19]}", inspection).blocks[:6],
        Heading("3. The same command again, in a new process", _CHAPTER),
        Points([f"booked {line.split()[0]}" for line in bookings[len(before) :]]),
        Line(f"process {again.pid} says: {said.strip()}"),
        Heading("4. What really happened, counted from the files", _CHAPTER),
        Rows(
            ("effect", "before the kill", "in all", "wanted"),
            [
                ("model calls paid", str(len(asked_before)), str(len(asked)), "1"),
                ("trips booked", str(len(before)), str(len(bookings)), str(len(demo_agent.CITIES))),
                ("booked twice", "", str(sum(count > 1 for count in counts.values())), "0"),
            ],
        ),
        Line("Nothing ran twice." if proven else "Something is wrong.", "bold green" if proven else "bold red"),
    ]
    document: DemoOutcome = {
        "ok": proven,
        "inspection": inspection,
        "status": stored,
        "bookings": bookings,
        "model_calls": len(asked),
    }
    return Report(document, blocks, code=0 if proven else 1)


def _start(work: Path) -> subprocess.Popen[str]:
    """The agent's program, as a user would start it: the same command whether its turn is new or was cut off."""
    return subprocess.Popen(
        [sys.executable, "-m", demo_agent.__name__, str(work)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def _follow(work: Path, agent: subprocess.Popen[str], booked: Callable[[str], None], until: int | None = None) -> None:
    """Tells of each booking, until the agent ends or is in the middle of the tool call to be cut."""
    deadline = time.monotonic() + _DEADLINE_SECONDS
    told = len(_lines(work / "bookings"))
    while True:
        ended = agent.poll() is not None
        made = _lines(work / "bookings")
        for line in made[told:]:
            booked(line.split()[0])
        told = len(made)
        if until is not None and told >= until:
            return
        if ended or time.monotonic() > deadline:
            if ended and until is None:
                return
            agent.kill()
            raise TurnJournalError(
                f"The demo's agent ended too early: {agent.communicate()[1].strip()[-500:]}", kind="demo_failed"
            )
        time.sleep(0.01)


def _lines(path: Path) -> list[str]:
    """The whole lines of a log of what really happened."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []
