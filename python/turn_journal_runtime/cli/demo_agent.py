"""The agent of `turn-journal demo`: books trips, one tool call each. Nothing in it knows of crashes."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from turn_journal_runtime import (
    Absent,
    CallableHost,
    Committed,
    TurnContext,
    TurnResult,
    current_idempotency_key,
    run_turn,
)

work: Path = Path(sys.argv[1])


def ask_model() -> list[str]:
    """Stands for a model call that is paid for."""
    note("model-calls", "where to?")
    return ["Lisbon", "Oslo", "Riga", "Vienna"]


def book(city: str) -> str:
    """A tool with a real effect, and a slow answer that a crash can fall into."""
    note("bookings", f"{city} {current_idempotency_key()}")
    time.sleep(0.4)
    return f"booked {city}"


def was_booked(key: str) -> Committed | Absent:
    """How the tool finds out whether the call with this key had happened."""
    made = (work / "bookings").read_text() if (work / "bookings").exists() else ""
    return Committed("booked before") if key in made else Absent()


def agent(turn: TurnContext) -> dict[str, Any]:
    """The agent's loop."""
    cities = turn.model(ask_model, request={"prompt": "Where to?"})
    for city in cities:
        turn.tool("book", {"city": city}, book, readback=was_booked)
    return {"result_kind": "validated_progress", "booked": len(cities)}


def note(log: str, line: str) -> None:
    """Writes down what really happened."""
    with (work / log).open("a") as file:
        file.write(f"{line}\n")


if __name__ == "__main__":
    result: TurnResult = run_turn(
        work, goal_id="travel", agent_id="planner", todo_id="book-trips", host=CallableHost(agent)
    )
    print(result.status)
