"""Many processes of both languages write to the same turns and are killed at random: the history is one linear order in
which every acknowledged write stands once, and every refusal is right for the state that it met.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Final, NamedTuple

import psutil
import pytest
from tests.chaos.store.conftest import bundled
from tests.conftest import SOAK

pytestmark = pytest.mark.chaos

HERE: Final = Path(__file__).parent
REPOSITORY: Final = HERE.parents[2]
#: Of each language.
WRITERS: Final = 8 if SOAK else 4
CALLS: Final = 130 if SOAK else 50
#: Calls between two kills: a process that is killed has done something before.
PACE: Final = 40
SEED: Final = int(os.environ.get("TURN_JOURNAL_SEED", str(time.time_ns() % 2**31)))


class Kind(NamedTuple):
    name: str
    program: list[str]


class Writer(NamedTuple):
    kind: Kind
    log: Path
    process: subprocess.Popen[bytes]


@pytest.mark.timeout(1800)
def test_one_linear_order(node: str, tmp_path: Path) -> None:
    print(f"TURN_JOURNAL_SEED={SEED}")
    dice = random.Random(SEED)
    turns, logs = tmp_path / "runtime", tmp_path / "logs"
    logs.mkdir()
    names = iter(range(10_000))
    kinds = [
        Kind("python", [sys.executable, str(HERE / "writer.py")]),
        Kind("typescript", [node, str(bundled(node, "ts/test/store/Writer.ts", tmp_path))]),
    ]

    def start(kind: Kind) -> Writer:
        name = f"{kind.name}-{next(names)}"
        arguments = [str(turns), str(logs / name), name, str(dice.randrange(2**31)), str(CALLS)]
        return Writer(kind, logs / name, subprocess.Popen([*kind.program, *arguments], cwd=REPOSITORY))

    running = [start(kind) for kind in kinds for _ in range(WRITERS)]
    wanted, killed = 2 * WRITERS * CALLS, 0
    try:
        while running:
            time.sleep(0.05)
            calls = count(logs)
            for writer in [writer for writer in running if writer.process.poll() is not None]:
                assert writer.process.returncode in (0, -9), f"seed {SEED}: {writer}"
                running.remove(writer)
                if writer.process.returncode == -9 and calls < wanted:
                    running.append(start(writer.kind))
            at_work = [writer for writer in running if writer.log.exists()]
            due = PACE * (killed + 1) <= calls < wanted
            if due and at_work and strike(dice.choice(at_work), dice):
                killed += 1
    finally:
        for writer in running:
            writer.process.kill()
            writer.process.wait(10)

    checker = [node, str(REPOSITORY / "ts" / "test" / "store" / "Linearizable.ts"), str(turns), str(logs)]
    checked = subprocess.run(checker, cwd=REPOSITORY, capture_output=True, check=False)
    assert checked.returncode == 0, f"seed {SEED}: {checked.stderr.decode()}"
    counts = json.loads(checked.stdout)
    print(f"many writers: {2 * WRITERS} at a time, {killed} kills, {counts}")
    assert counts["calls"] >= 0.9 * wanted
    assert counts["appended"] > 0.1 * wanted
    assert counts["refused"] > 0.05 * wanted
    assert killed > 2


def count(logs: Path) -> int:
    """Calls that were begun."""
    return sum(file.read_bytes().count(b'"start"') for file in logs.iterdir())


def strike(writer: Writer, dice: random.Random) -> bool:
    """Kills a writer, or the core under one in Python: the façade starts another."""
    victim = psutil.Process(writer.process.pid)
    try:
        cores = victim.children(recursive=True)
        (dice.choice(cores) if cores and dice.random() < 0.5 else victim).kill()
    except psutil.NoSuchProcess:
        return False
    return True
