"""`python -m benchmarks.store`: writes beside their system calls alone, and questions over 10,000 and over 100,000
turns beside reading the files in plain Python.

The cost of a turn must not grow with their number, and neither must the core's memory. BENCH_TURNS names other numbers;
empty, it leaves the questions out.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil
from rich.console import Console
from rich.table import Table

from turn_journal_runtime.bridge import RuntimeClient
from turn_journal_runtime.bridge.node import locate_node
from turn_journal_runtime.settings import current

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[2]
TURNS_OF_A_GOAL = 100
QUESTIONS = 200
#: Of 20 writes each.
ROWS_OF_WRITES = 40


class Walk(NamedTuple):
    """One walk over a root."""

    seconds: float
    #: The longest that one page took.
    longest: float
    turns: int
    #: What the core had in memory at its height, in bytes.
    memory: int


def fill(root: Path, turns: int) -> None:
    """Turns as the store leaves them, without the syncs that would take an hour."""
    program = REPOSITORY / "ts" / "test" / "store" / "Fill.ts"
    node = locate_node(current()).path
    subprocess.run([node, program, root, str(turns // TURNS_OF_A_GOAL), str(turns)], cwd=REPOSITORY, check=True)


def walk(client: RuntimeClient, method: str, params: dict[str, Any]) -> Walk:
    """All pages of a question, and the core's memory meanwhile."""
    (core,) = psutil.Process().children()
    height, done = 0, threading.Event()

    def watch() -> None:
        nonlocal height
        while not done.wait(0.02):
            height = max(height, core.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    times: list[float] = []
    turns, after = 0, None
    begin = time.perf_counter()
    try:
        while True:
            start = time.perf_counter()
            page = client.call(method, {**params, "after": after, "limit": 500})
            times.append(time.perf_counter() - start)
            turns += len(page.get("turns", page.get("heads", ())))
            after = page["next"]
            if after is None:
                return Walk(time.perf_counter() - begin, max(times), turns, height)
    finally:
        done.set()
        watcher.join()


def plainly(root: Path) -> float:
    """Seconds to read the status of every journal in plain Python: no checks, no promises."""
    begin = time.perf_counter()
    for file in root.glob("goals/*/turns/*.json"):
        json.loads(file.read_bytes())["status"]
    return time.perf_counter() - begin


def settlement(client: RuntimeClient, root: Path, turns: int) -> float:
    """Seconds that the median question takes for the turn that settled a piece of work."""
    times = []
    for number in range(0, turns, max(1, turns // QUESTIONS)):
        work = {
            "runtime_root": str(root),
            "goal_id": f"goal-{number % (turns // TURNS_OF_A_GOAL):04}",
            "agent_id": "agent-1",
            "todo_id": f"todo-{number}",
            "turn_instance_id": f"turn-{number:06}",
        }
        begin = time.perf_counter()
        assert client.call("turn_journal.find_settlement", work)["turn_key"] == work["turn_instance_id"]
        times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2]


def measure(table: Table, turns: int) -> None:
    """The lines for one number of turns."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        fill(root, turns)
        name = f"{turns:,}"
        # Once before, so that all of them find the files in memory.
        plainly(root)
        seconds = plainly(root)
        table.add_row("read in plain Python", name, f"{seconds:.1f} s", _each(seconds, turns), "", "")
        with RuntimeClient() as client:
            client.call("runtime.info", {})
            walks: dict[str, Callable[[], Walk]] = {
                method: lambda method=method: walk(  # type: ignore[misc]
                    client, f"turn_journal.{method}", {"runtime_root": str(root)}
                )
                for method in ("list", "recoverable", "verify", "heads")
            }
            for method, ask in walks.items():
                found = ask()
                table.add_row(
                    method,
                    name,
                    f"{found.seconds:.1f} s",
                    _each(found.seconds, turns),
                    f"{found.longest * 1000:.0f} ms",
                    f"{found.memory / 2**20:.0f} MiB",
                )
            once = settlement(client, root, turns)
            table.add_row(f"find_settlement, of {TURNS_OF_A_GOAL}", name, f"{once * 1000:.1f} ms", "", "", "")


def _each(seconds: float, turns: int) -> str:
    return f"{seconds / turns * 1e6:.0f} µs"


def writes() -> Table:
    """What a write costs in the core alone, on the disk of the system's temporary folder."""
    names = {"alone": "draft, append, rename, 3 fsyncs", "first": "a turn's first write", "next": "a turn's next write"}
    table = Table(title="The store: one write at a time, in the core alone")
    for heading in ("", "p50", "p99", "× its system calls", "CPU"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    program = str(Path(__file__).with_name("writes.mjs"))
    with tempfile.TemporaryDirectory() as folder:
        command = [locate_node(current()).path, program, folder, str(ROWS_OF_WRITES)]
        measured = json.loads(subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True).stdout)
    for side, name in names.items():
        median, p99, cpu = measured[side]
        times = f"{median / measured['alone'][0]:.1f}"
        table.add_row(name, f"{median:.2f} ms", f"{p99:.1f} ms", times, f"{cpu:.2f} ms")
    return table


def main() -> None:
    """Measures and prints."""
    Console(width=120).print(writes())
    sizes = [int(size) for size in os.environ.get("BENCH_TURNS", "10000,100000").split(",") if size]
    if not sizes:
        return
    table = Table(title="The store: questions over many turns, 100 of each goal")
    for heading in ("", "turns", "in all", "each", "longest page", "memory of the core"):
        table.add_column(heading, justify="left" if heading == "" else "right")
    for size in sizes:
        measure(table, size)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
