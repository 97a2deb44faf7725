"""`python -m benchmarks.run_journal`: what recording costs, beside SQLite alone and what a user would pick instead.

The sides of a comparison take turns in the same run. BENCH_PEERS=1 installs the peers and measures them as well.
"""

from __future__ import annotations

import gc
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.bridge.report import Line
from benchmarks.bridge.timing import Times, alternate
from rich.console import Console
from rich.table import Table

from turn_journal_runtime.run_journal import KIND_TOOL_CALL, DurableRun, JournalEvent, RunJournal

from . import peers, recovery
from .sides import ARGS, PAYLOAD, Raw, Steps, filled, no_op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BATCH = 1000
BATCHES = 100
LONG_RUN = 100_000
LARGE_FILE = 1_000_000


def appends(folder: Path) -> Iterator[Line]:
    """One event at a time, and many at once."""
    journal = RunJournal(folder / "append.db")

    def append(number: int) -> None:
        journal.append(JournalEvent("run-1", number, KIND_TOOL_CALL, PAYLOAD))

    sides: dict[str, Callable[[int], object]] = {"raw": Raw(folder / "raw.db"), "append": append}
    if peers.are_wanted():
        sides["praison"] = peers.Praison(folder / "praison.db").append
    times = alternate(sides, rows=150)
    yield Line("one raw insert", times["raw"])
    yield Line.beside("append", times["append"], times["raw"], at_most=1.25)
    if peers.are_wanted():
        yield Line("praisonaiagents append", times["praison"], ratio(times["praison"], times["append"]))
    at_once = RunJournal(folder / "append-many.db")
    times = throughput(sides, at_once)
    yield Line(f"raw inserts, {BATCH:,} in a row, each", times["raw"])
    yield Line.beside(f"append, {BATCH:,} in a row, each", times["append"], times["raw"], at_most=1.25)
    if peers.are_wanted():
        what = f"praisonaiagents append, {BATCH:,} in a row, each"
        yield faster(what, times["praison"], times["append"], at_least=1.8)
    many = times["append_many"]
    yield faster(f"append_many of {BATCH:,}, each", times["append"], many, at_least=15)._replace(times=many)
    journal.close()
    at_once.close()


def throughput(sides: dict[str, Callable[[int], object]], at_once: RunJournal) -> dict[str, Times]:
    """Seconds per event over whole batches of the same events, the moving of the log into the file included, the sides
    taking turns."""
    seconds: dict[str, list[float]] = {name: [] for name in (*sides, "append_many")}
    clock = time.perf_counter
    for batch in range(BATCHES):
        numbers = range(BATCH * (100 + batch), BATCH * (101 + batch))
        for name, call in sides.items():
            begin = clock()
            for number in numbers:
                call(number)
            seconds[name].append((clock() - begin) / BATCH)
        events = [JournalEvent("run-1", number, KIND_TOOL_CALL, PAYLOAD) for number in numbers]
        begin = clock()
        at_once.append_many(events)
        seconds["append_many"].append((clock() - begin) / BATCH)
    return {name: Times.of(times) for name, times in seconds.items()}


def steps(folder: Path) -> Iterator[Line]:
    """Durable tool steps, and their replay."""
    process = Steps(folder / "process.db", "process")
    sides: dict[str, Callable[[int], object]] = {"process": process}
    if peers.are_wanted():
        sides["praison"] = peers.Praison(folder / "praison-steps.db").steps()
    times = alternate(sides, rows=60)
    yield at_most("durable tool step, process", times["process"], 150e-6)
    if peers.are_wanted():
        yield Line("praisonaiagents durable step", times["praison"], ratio(times["praison"], times["process"]))
    power = Steps(folder / "power.db", "power")
    times = alternate({"raw": Raw(folder / "raw-power.db", "FULL"), "power": power}, rows=40, row=30, warm=5)
    yield Line("one raw insert, power", times["raw"])
    yield Line.beside("durable tool step, power", times["power"], times["raw"], at_most=2.2)
    yield at_most("memoised step on replay", replays(folder / "replay.db"), 3e-6)
    if peers.are_wanted():
        for name, step in (("dbos step", peers.dbos_step), ("langgraph super-step", peers.langgraph_step)):
            seconds = step(folder / f"{name}.db", 300)
            yield Line(name, Times(seconds, seconds))


def replays(path: Path) -> Times:
    """Seconds for a memoised step, over whole replays of 10,000."""
    count = 10_000
    with RunJournal(path) as journal:
        with DurableRun(journal, "r") as run:
            for _ in range(count):
                run.tool("search", ARGS, no_op)
        rounds = []
        for _ in range(15):
            with DurableRun(journal, "r") as run:
                run.start()
                begin = time.perf_counter()
                for _ in range(count):
                    run.tool("search", ARGS, no_op)
                rounds.append((time.perf_counter() - begin) / count)
    return Times.of(rounds)


def reading(folder: Path) -> Iterator[Line]:
    """A long run in a large file."""
    path = folder / "large.db"
    journal = filled(path, LARGE_FILE, LONG_RUN)
    sides: dict[str, Callable[[int], object]] = {"replay": lambda _: journal.replay_index("large")}
    if peers.are_wanted():
        theirs = peers.Praison(folder / "praison-large.db").fill(LONG_RUN).journal
        sides["praison"] = lambda _: theirs.replay_index("large")
    times = alternate(sides, rows=10, row=2, warm=0)
    yield Line(f"replay_index of {LONG_RUN:,}", times["replay"])
    if peers.are_wanted():
        yield faster("praisonaiagents replay_index", times["praison"], times["replay"], at_least=2.5)
    gc.collect()
    times = alternate({"last": lambda _: journal.last_iteration("large")}, rows=10)
    yield at_most(f"last_iteration of {LONG_RUN:,}", times["last"], 1e-3)
    if peers.are_wanted():
        times = alternate({"praison": lambda _: theirs.last_iteration("large")}, rows=1, row=5, warm=1)
        yield Line("praisonaiagents last_iteration", times["praison"])
    journal.close()
    times = alternate({"open": lambda _: RunJournal(path).close()}, rows=2, row=30, warm=5)
    yield at_most(f"open and close a file of {LARGE_FILE:,}", times["open"], 10e-3)


def recoveries(folder: Path) -> Iterator[Line]:
    """A thousand runs taken up by one process."""
    rounds = [recovery.seconds(folder / f"recovery-{number}.db") for number in range(5)]
    times = Times.of(rounds)
    yield at_most(f"recover {recovery.RUNS:,} runs", times, 0.5)
    if peers.are_wanted():
        seconds = peers.Praison(folder / "praison-recovery.db").recovery(recovery.RUNS)
        yield Line(
            f"praisonaiagents recover {recovery.RUNS:,}", Times(seconds, seconds), f"{seconds / times.median:.1f} ×"
        )


def at_most(what: str, times: Times, seconds: float) -> Line:
    """A time that is not to be exceeded, by its median."""
    return Line(what, times, "", f"at most {shown(seconds)}", times.median <= seconds)


def faster(what: str, slow: Times, fast: Times, *, at_least: float) -> Line:
    """How many times as long the slower one takes."""
    factor = slow.median / fast.median
    return Line(what, slow, f"{factor:.1f} ×", f"at least {at_least:g} ×", factor >= at_least)


def ratio(one: Times, other: Times) -> str:
    """One as a multiple of the other."""
    return f"{one.median / other.median:.1f} ×"


def shown(seconds: float) -> str:
    """In the unit that fits."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} µs"


def main() -> None:
    """Measures and prints."""
    if peers.are_wanted():
        peers.install()
    table = Table("", "p50", "p99", "", "target", "", title="The run journal")
    with tempfile.TemporaryDirectory(prefix="turn-journal-bench-") as name:
        for part in (appends, steps, reading, recoveries):
            for line in part(Path(name)):
                mark = "" if line.holds is None else "✓" if line.holds else "✗"
                p50, p99 = (shown(line.times.median), shown(line.times.p99)) if line.times else ("", "")
                table.add_row(line.what, p50, p99, line.figure, line.target, mark)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
