"""Import, first call, and the memory of the child."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from typing import TYPE_CHECKING

import psutil

from turn_journal_runtime.bridge import RuntimeClient

from .journals import question, turn
from .report import Line
from .timing import Times

if TYPE_CHECKING:
    from collections.abc import Iterator

RUNS = 15
MEGABYTE = 1_000_000

FIRST = """
import time
begin = time.perf_counter()
import turn_journal_runtime
imported = time.perf_counter()
from turn_journal_runtime.bridge import default_client
default_client().call("turn_journal.inspect", {"journal": {}, "goal_id": "g", "agent_id": "a", "turn_key": "k"})
print(imported - begin, time.perf_counter() - imported)
"""


def lines() -> Iterator[Line]:
    """Figures of whole processes."""
    imports, firsts = starts()
    for what, seconds, target in (("import of the package", imports, 0.060), ("first call after it", firsts, 0.250)):
        times = Times.of(seconds)
        yield Line(what, times, "", f"under {target * 1000:.0f} ms", times.median < target)

    params = question(turn(0, 2048))
    with RuntimeClient() as client:
        sizes = []
        for _ in range(5):
            for _ in range(20_000):
                client.call("turn_journal.inspect", params)
            sizes.append(psutil.Process(client.pid).memory_info().rss / MEGABYTE)
    yield Line(
        "memory of the child, 100,000 calls",
        None,
        " → ".join(f"{size:.0f}" for size in sizes) + " MB",
        "under 90 MB, flat",
        max(sizes) < 90 and sizes[-1] < sizes[0] * 1.2,
    )


def starts() -> tuple[list[float], list[float]]:
    """Seconds of the import and of the first call, where compiled modules are found, as in an installation."""
    imports, firsts = [], []
    with tempfile.TemporaryDirectory(prefix="turn-journal-bench-") as folder:
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": folder}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for _ in range(RUNS + 1):
            command = [sys.executable, "-c", FIRST]
            done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
            imported, first = map(float, done.stdout.split())
            imports.append(imported)
            firsts.append(first)
    # The first of them compiled.
    return imports[1:], firsts[1:]
