"""The agent of `turn-journal demo`: books trips, one tool call each. Nothing in it knows of crashes."""

from __future__ import annotations

import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, Final

from turn_journal_runtime import (
    Absent,
    CallableHost,
    Committed,
    TurnContext,
    current_idempotency_key,
    run_turn,
)

GOAL: Final = "travel"
AGENT: Final = "planner"
CITIES: Final = ("Lisbon", "Oslo", "Riga", "Vienna")


def ask_model(work: Path) -> list[str]:
    """Stands for a model call that is paid for."""
    note(work / "model-calls", "where to?")
    return list(CITIES)


def book(work: Path, city: str) -> str:
    """A tool with a real effect, and a slow answer that a crash can fall into."""
    note(work / "bookings", f"{city} {current_idempotency_key()}")
    time.sleep(0.4)
    return f"booked {city}"


def was_booked(work: Path, key: str) -> Committed | Absent:
    """How the tool finds out whether the call with this key had happened."""
    log = work / "bookings"
    made = log.read_text(encoding="utf-8") if log.exists() else ""
    return Committed("booked before") if key in made else Absent()


def agent(work: Path, turn: TurnContext) -> dict[str, Any]:
    """The agent's loop."""
    cities = turn.model(ask_model, work, request={"prompt": "Where to?"})
    for city in cities:
        turn.tool("book", {"city": city}, partial(book, work), readback=partial(was_booked, work))
    return {"result_kind": "validated_progress", "booked": len(cities)}


def note(log: Path, line: str) -> None:
    """Writes down what really happened, in one piece."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def main() -> None:
    """Drives the turn; running it again is the resume."""
    work = Path(sys.argv[1])
    host = CallableHost(partial(agent, work))
    print(run_turn(work, goal_id=GOAL, agent_id=AGENT, todo_id="book-trips", host=host).status)


if __name__ == "__main__":
    main()
