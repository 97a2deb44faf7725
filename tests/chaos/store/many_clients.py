"""Processes of both languages whose clients write to the same turns and are killed at random; what is checked then."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psutil
from tests.chaos.store.conftest import bundled

if TYPE_CHECKING:
    from collections.abc import Callable

HERE: Final = Path(__file__).parent
REPOSITORY: Final = HERE.parents[2]
SEED: Final = int(os.environ.get("TURN_JOURNAL_SEED", str(time.time_ns() % 2**31)))


class Shape(NamedTuple):
    """How many do how much."""

    #: Of each language.
    processes: int
    #: Of each process.
    clients: int
    #: Writes of each client.
    calls: int
    turns: int
    #: Writes between two kills: a process that is killed has done something before.
    kill_pace: int

    @property
    def wanted(self) -> int:
        """Writes in all."""
        return 2 * self.processes * self.clients * self.calls


class Shaking(NamedTuple):
    """What is done to the store itself meanwhile."""

    shake: Callable[[], None]
    #: Writes between two times.
    pace: int


class _Kind(NamedTuple):
    name: str
    program: list[str]


class _Writers(NamedTuple):
    kind: _Kind
    log: Path
    process: subprocess.Popen[bytes]


def many_clients(node: str, root: str, folder: Path, shape: Shape, shaking: Shaking | None = None) -> dict[str, Any]:
    """Lets them write, and checks what they logged against what stands: what the checker counted, and the kills.

    Args:
        node: The Node to run.
        root: Where the turns are: a folder, or a database that is ready for turns.
        folder: For the logs.
        shape: How many do how much.
        shaking: What is done to the store meanwhile.
    """
    print(f"TURN_JOURNAL_SEED={SEED}")
    dice = random.Random(SEED)
    logs = folder / "logs"
    logs.mkdir()
    names = iter(range(10_000))
    kinds = [
        _Kind("python", [sys.executable, str(HERE / "writer.py")]),
        _Kind("typescript", [node, str(bundled(node, "ts/test/store/Writer.ts", folder))]),
    ]

    def start(kind: _Kind) -> _Writers:
        name = f"{kind.name}-{next(names)}"
        numbers = (dice.randrange(2**31), shape.calls, shape.clients, shape.turns)
        arguments = [root, str(logs / name), name, *map(str, numbers)]
        return _Writers(kind, logs / name, subprocess.Popen([*kind.program, *arguments], cwd=REPOSITORY))

    running = [start(kind) for kind in kinds for _ in range(shape.processes)]
    killed = shaken = 0
    try:
        while running:
            time.sleep(0.05)
            calls = _count(logs)
            for writers in [writers for writers in running if writers.process.poll() is not None]:
                assert writers.process.returncode in (0, -9), f"seed {SEED}: {writers}"
                running.remove(writers)
                if writers.process.returncode == -9 and calls < shape.wanted:
                    running.append(start(writers.kind))
            at_work = [writers for writers in running if writers.log.exists()]
            due = shape.kill_pace * (killed + 1) <= calls < shape.wanted
            if due and at_work and _strike(dice.choice(at_work), dice):
                killed += 1
            if shaking is not None and shaking.pace * (shaken + 1) <= calls < shape.wanted:
                shaking.shake()
                shaken += 1
    finally:
        for writers in running:
            writers.process.kill()
            writers.process.wait(60)

    checker = [node, str(REPOSITORY / "ts" / "test" / "store" / "Linearizable.ts"), root, str(logs)]
    checked = subprocess.run(checker, cwd=REPOSITORY, capture_output=True, check=False)
    assert checked.returncode == 0, f"seed {SEED}: {checked.stderr.decode()}"
    counts: dict[str, Any] = {**json.loads(checked.stdout), "killed": killed, "shaken": shaken}
    print(f"{2 * shape.processes * shape.clients} clients in {2 * shape.processes} processes: {counts}")
    assert counts["calls"] >= 0.9 * shape.wanted
    assert counts["appended"] > 0.1 * shape.wanted
    assert counts["refused"] > 0.05 * shape.wanted
    assert counts["reads"] > 0.5 * shape.wanted
    return counts


def _count(logs: Path) -> int:
    """Writes that were begun."""
    return sum(file.read_bytes().count(b'"journal"') for file in logs.iterdir())


def _strike(writers: _Writers, dice: random.Random) -> bool:
    """Kills a process with its clients, or a core under one in Python: the façade starts another."""
    victim = psutil.Process(writers.process.pid)
    try:
        cores = victim.children(recursive=True)
        (dice.choice(cores) if cores and dice.random() < 0.5 else victim).kill()
    except psutil.NoSuchProcess:
        return False
    return True
