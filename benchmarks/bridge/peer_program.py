"""Runs inside the peer's venv: times its calls and prints them as JSON."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loopx.control_plane.effect_runtime import effect_runtime_request_scope  # type: ignore[import-not-found]
from loopx.control_plane.turn_driver import turn_journal_runtime as loopx  # type: ignore[import-not-found]

from . import journals

if TYPE_CHECKING:
    from collections.abc import Callable


def timed(call: Callable[[int], object], first: int, count: int) -> list[float]:
    """The seconds of each call."""
    times = []
    for number in range(first, first + count):
        begin = time.perf_counter()
        call(number)
        times.append(time.perf_counter() - begin)
    return times


def main(root: Path, size: int, usual: int, best: int) -> dict[str, list[float]]:
    """Both kinds of call in both modes; the journals are those of the other sides."""
    turns = {number: journals.turn(number, size) for number in range(-5, 2 * usual + 2 * best)}
    turns_folder = root / "goals" / journals.GOAL / "turns"
    turns_folder.mkdir(parents=True)

    def inspect(number: int) -> Any:
        journal = turns[number]
        answer = loopx.interpret_turn_journal_projection(
            journal, goal_id=journals.GOAL, agent_id=journals.AGENT, turn_key=journal["turn_key"]
        )
        assert answer["recovery_decision"]["can_continue"], answer

    def write(number: int) -> Any:
        journal = turns[number]
        path = turns_folder / f"{journal['turn_key'].removeprefix('sha256:')}.json"
        assert loopx.write_turn_journal(str(path), journal)["appended"]

    seconds = {}
    timed(inspect, -5, 5)
    seconds["inspect, usual"] = timed(inspect, 0, usual)
    seconds["write, usual"] = timed(write, 0, usual)
    with effect_runtime_request_scope():
        timed(inspect, -5, 5)
        seconds["inspect, best"] = timed(inspect, usual, best)
        seconds["write, best"] = timed(write, usual, best)
    return seconds


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), *map(int, sys.argv[2:5]))))
