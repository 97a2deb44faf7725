"""A program whose clients read a few turns and write random transitions to them through the façade, and log every call
before it is made and after it was answered: `python writer.py ROOT LOG NAME SEED CALLS CLIENTS TURNS`. Every two
clients share a core. Its twin is ts/test/store/Writer.ts.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final

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
from turn_journal_runtime.bridge import RuntimeClient

if TYPE_CHECKING:
    from collections.abc import Callable

#: The core was killed, once too often in a row perhaps: what became of the call is not known.
UNANSWERED: Final = (RuntimeCrashedError, RuntimeTimeoutError, RuntimeUnavailableError)
PHASES: Final = [f"p{number}" for number in range(40)]


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


def work(
    root: str,
    turns: list[str],
    name: str,
    dice: random.Random,
    calls: int,
    core: RuntimeClient,
    note: Callable[..., None],
) -> None:
    """One client, from its first call to its last."""
    remembered: dict[str, dict[str, Any] | None] = {}

    def read(turn: str, call: int) -> None:
        path = turn_journal_path(root, goal_id="goal-1", turn_key=turn)
        note(name=name, call=f"{call}-read", turn=turn, start=time.monotonic_ns())
        try:
            remembered[turn] = dict(load_turn_journal(path, client=core))
        except JournalNotFoundError:
            remembered[turn] = None
        except TurnJournalError:
            return
        known = remembered[turn]
        found = None if known is None else operation_id(known)
        note(name=name, call=f"{call}-read", end=time.monotonic_ns(), found=found)

    for call in range(calls):
        turn = dice.choice(turns)
        if dice.random() < 0.8:
            read(turn, call)
        known = remembered.get(turn)
        journal = following(dice, turn, known, f"{name}-{call}")
        expected: dict[str, Any] = {}
        # A journal that is written again follows on itself: else it would stand twice, which would be right as well.
        if dice.random() < 0.4 or journal is known:
            expected["expected_previous"] = None if known is None else operation_id(known)
        path = turn_journal_path(root, goal_id="goal-1", turn_key=turn)
        note(name=name, call=call, turn=turn, journal=journal, start=time.monotonic_ns(), **expected)
        try:
            answer: dict[str, Any] = {**write_turn_journal(path, journal, client=core, **expected)}
        except UNANSWERED:
            continue
        except TurnJournalError as error:
            answer = {"refused": error.kind, "details": error.details}
        note(name=name, call=call, end=time.monotonic_ns(), **answer)


def main(root: str, log: str, name: str, seed: str, calls: str, clients: str, turns: str) -> None:
    dice = random.Random(int(seed))
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def note(**entry: Any) -> None:
        os.write(file, json.dumps(entry).encode() + b"\n")

    names = [f"turn-{number}" for number in range(int(turns))]
    cores: list[RuntimeClient] = []
    threads: list[threading.Thread] = []
    for client in range(int(clients)):
        if client % 2 == 0:
            cores.append(RuntimeClient())
        luck = random.Random(dice.random())
        arguments = (root, names, f"{name}.{client}", luck, int(calls), cores[-1], note)
        threads.append(threading.Thread(target=work, args=arguments))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for core in cores:
        core.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
