"""A program that writes random transitions to a few turns through the façade, and logs every call before it is made and
after it was answered: `python writer.py ROOT LOG NAME SEED CALLS`. Its twin is ts/test/store/Writer.ts.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import sys
import time
from typing import Any, Final

import rfc8785

from turn_journal_runtime import (
    JournalNotFoundError,
    RuntimeCrashedError,
    RuntimeTimeoutError,
    RuntimeUnavailableError,
    TurnJournalError,
    load_turn_journal,
    turn_journal_path,
    write_turn_journal,
)

#: The core was killed, once too often in a row perhaps: what became of the call is not known.
UNANSWERED: Final = (RuntimeCrashedError, RuntimeTimeoutError, RuntimeUnavailableError)
PHASES: Final = [f"p{number}" for number in range(40)]
TURNS: Final = ["turn-0", "turn-1", "turn-2", "turn-3"]


def following(dice: random.Random, turn: str, known: dict[str, Any] | None, mark: str) -> dict[str, Any]:
    """A transition that may follow, or one that may not."""
    base: dict[str, Any] = {
        "schema_version": "loopx_turn_journal_v0",
        "goal_id": "goal-1",
        "agent_id": "agent-1",
        "turn_key": turn,
        "effect_id": f"effect-of-{turn}",
        "status": "in_progress",
        "plan": {"phases": PHASES},
        "mark": mark,
    }
    completed = 0 if known is None else len(known["completed_phases"])
    luck = dice.random()
    if known is None or luck < 0.55:
        more = known is not None and completed < len(PHASES) - 1 and dice.random() < 0.1
        return {**base, "completed_phases": PHASES[: completed + more]}
    if luck < 0.65:
        receipt = {"failed_phase": PHASES[completed]}
        return {**base, "status": "failed", "receipt": receipt, "completed_phases": PHASES[:completed]}
    if luck < 0.8:
        return known
    if luck < 0.9:
        return {**base, "completed_phases": PHASES[: max(0, completed - 1)]}
    return {**base, "completed_phases": PHASES[:completed], "plan": {"phases": ["other"]}}


def operation_id(journal: dict[str, Any]) -> str:
    return f"sha256:{hashlib.sha256(rfc8785.dumps(journal)).hexdigest()}"


def main(root: str, log: str, name: str, seed: str, calls: str) -> None:
    dice = random.Random(int(seed))
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(**entry: Any) -> None:
        os.write(file, json.dumps(entry).encode() + b"\n")

    remembered: dict[str, dict[str, Any]] = {}
    for call in range(int(calls)):
        turn = dice.choice(TURNS)
        path = turn_journal_path(root, goal_id="goal-1", turn_key=turn)
        if dice.random() < 0.8:
            with contextlib.suppress(JournalNotFoundError, *UNANSWERED):
                remembered[turn] = dict(load_turn_journal(path))
        known = remembered.get(turn)
        journal = following(dice, turn, known, f"{name}-{call}")
        expected: dict[str, Any] = {}
        # A journal that is written again follows on itself: else it would stand twice, which would be right as well.
        if dice.random() < 0.4 or journal is known:
            expected["expected_previous"] = None if known is None else operation_id(known)
        note(name=name, call=call, turn=turn, journal=journal, start=time.monotonic_ns(), **expected)
        try:
            answer: dict[str, Any] = {**write_turn_journal(path, journal, **expected)}
        except UNANSWERED:
            continue
        except TurnJournalError as error:
            answer = {"refused": error.kind}
        note(name=name, call=call, end=time.monotonic_ns(), **answer)


if __name__ == "__main__":
    main(*sys.argv[1:])
