"""An agent of 30 steps with a fake model and tools that have real effects: each appends a line to a file of its own.

The outside world is a folder: `model.txt` has a line for each question that the model was asked, `<tool>.txt` a line
with the idempotency key for each time the tool ran.
"""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

from turn_journal_runtime.errors import UncertainEffectError
from turn_journal_runtime.run_journal import (
    Absent,
    Committed,
    DurableRun,
    RunJournal,
    current_idempotency_key,
)

if TYPE_CHECKING:
    from pathlib import Path

STEPS = 30
RUN = "agent"
#: The tools and what they declare.
UNSAFE, SAFE, READ_BACK = "send", "fetch", "pay"
TOOLS = (UNSAFE, SAFE, READ_BACK)


class World:
    """What is outside of the process, and survives it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def lines(self, name: str) -> list[str]:
        file = self._folder / f"{name}.txt"
        return file.read_text().splitlines() if file.exists() else []

    def add(self, name: str, line: str) -> None:
        descriptor = os.open(self._folder / f"{name}.txt", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.write(descriptor, f"{line}\n".encode())
        os.close(descriptor)

    def ask(self, number: int, seen: list[Any]) -> dict[str, Any]:
        """The model: what to do next, from what it is told."""
        self.add("model", str(number))
        known = hashlib.sha256(repr(seen).encode()).hexdigest()[:8]
        return {"tool": TOOLS[number % len(TOOLS)], "args": {"number": number, "known": known}}

    def run(self, name: str, number: int, known: str) -> str:
        """A tool."""
        key = current_idempotency_key() or "no key"
        self.add(name, key)
        return result_of(key, known)

    def has_done(self, name: str, key: str) -> bool:
        return key in self.lines(name)


def result_of(key: str, known: str) -> str:
    """What a tool answers can be told from its key and arguments, also by somebody who only finds its trace."""
    return hashlib.sha256(f"{key} {known}".encode()).hexdigest()[:12]


def loop(run: DurableRun, world: World) -> str:
    """The agent; its answer depends on every result."""
    seen: list[Any] = []
    for number in range(STEPS):
        run.iteration(number)
        decision = run.model(world.ask, number, seen, request={"seen": seen, "number": number})
        name, args = decision["tool"], decision["args"]

        def readback(key: str, name: str = name, known: str = args["known"]) -> Committed | Absent:
            return Committed(result_of(key, known)) if world.has_done(name, key) else Absent()

        result = run.tool(
            name,
            args,
            lambda number, known, name=name: world.run(name, number, known),
            restart_safe=name == SAFE,
            readback=readback if name == READ_BACK else None,
        )
        seen = [*seen[-5:], result]
        if number % 7 == 0:
            run.verification("consistent", True, number=number)
    return hashlib.sha256(repr(seen).encode()).hexdigest()


def drive(address: Path | str, folder: Path) -> str | None:
    """One drive to the end: the answer, or None when a person had to settle a step first."""
    world = World(folder)
    with RunJournal(address) as journal:
        try:
            with DurableRun(journal, RUN, max_resumes=10_000) as run:
                return loop(run, world)
        except UncertainEffectError:
            settle(journal, world)
            return None


def settle(journal: RunJournal, world: World) -> None:
    """The person: looks outside with the key, and says what happened."""
    for step in journal.uncertain(RUN):
        if world.has_done(step.tool, step.idempotency_key):
            journal.settle(RUN, step.seq, result=result_of(step.idempotency_key, step.args["known"]))
        else:
            journal.settle(RUN, step.seq, absent=True)
