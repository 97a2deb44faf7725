"""`python -m benchmarks.bridge`: what a call costs, beside what nothing can be faster than and what a user would pick.

The sides of a comparison take turns in the same run. BENCH_PEERS=1 installs the peer in a venv of its own and measures
it as well.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from turn_journal_runtime.bridge import RuntimeClient

from . import crowd, peer, process
from .baseline import Echo, SyncedWrite
from .journals import GOAL, STEPS, compact, question, turn
from .placement import placed, placements
from .report import Line, milliseconds
from .timing import alternate

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .timing import Times

SMALL = 2048
LARGE = 1_000_000
ROWS_OF_WRITES = 20
WRITES_IN_A_ROW = 20

ECHO = "bare round trip"
SYNCED = f"{SyncedWrite.FSYNCS} fsyncs alone"


def single_calls(folder: Path) -> dict[str, Times]:
    """Inspections and writes, one at a time, beside their floors."""
    journal, large = turn(0, SMALL), question(turn(1, LARGE))
    params = question(journal)
    stored = {"runtime_root": str(folder), **{name: value for name, value in params.items() if name != "journal"}}
    frame = compact({"jsonrpc": "2.0", "id": 1, "method": "turn_journal.inspect", "params": params}) + b"\n"
    with RuntimeClient() as client, Echo(frame) as echo:
        client.call("turn_journal.write", _write(folder, journal))
        calls = {
            "inspect": lambda _: client.call("turn_journal.inspect", params),
            "inspect stored": lambda _: client.call("turn_journal.inspect_stored", stored),
        }
        times = alternate(calls, rows=120)
        for place, cores in placements().items():
            with placed(*cores, echo.pid, client.call("runtime.info", {})["pid"]):
                there = alternate({ECHO: echo, **calls}, rows=120)
            times |= {f"{name}, {place}": measured for name, measured in there.items()}
        times |= alternate({"inspect 1 MB": lambda _: client.call("turn_journal.inspect", large)}, rows=1, row=60)
        return times | writes(client, folder)


def writes(client: RuntimeClient, folder: Path) -> dict[str, Times]:
    """First writes of turns and the writes that follow them, beside the disk alone."""
    count = ROWS_OF_WRITES * WRITES_IN_A_ROW
    first = [turn(number, SMALL) for number in range(1, count + 1)]
    begun = [turn(-number, SMALL) for number in range(1, count // len(STEPS) + 1)]
    following = [_write(folder, {**journal, "completed_phases": [*step]}) for journal in begun for step in STEPS]
    for journal in begun:
        client.call("turn_journal.write", _write(folder, journal))
    asked = [_write(folder, journal) for journal in first]
    synced = SyncedWrite(folder / "alone", compact(first[0]))
    times = alternate(
        {
            SYNCED: synced,
            "write": lambda number: client.call("turn_journal.write", asked[number]),
            "write next": lambda number: client.call("turn_journal.write", following[number]),
        },
        rows=ROWS_OF_WRITES,
        row=WRITES_IN_A_ROW,
        warm=5,
    )
    synced.close()
    return times


def _write(root: Path, journal: dict[str, object]) -> dict[str, object]:
    name = f"{str(journal['turn_key']).removeprefix('sha256:')}.json"
    return {"path": str(root / "goals" / GOAL / "turns" / name), "journal": journal, "expected_effect_id": None}


def lines(times: dict[str, Times]) -> Iterator[Line]:
    """The table's lines for single calls."""
    yield Line("inspect, 2 KB, placed by the system", times["inspect"])
    yield Line("inspect stored, 2 KB, placed by the system", times["inspect stored"])
    for place in placements():
        echo = times[f"{ECHO}, {place}"]
        yield Line(f"{ECHO}, {place}", echo)
        yield Line.beside(f"inspect, 2 KB, {place}", times[f"inspect, {place}"], echo, at_most=2.5)
        yield Line.beside(f"inspect stored, 2 KB, {place}", times[f"inspect stored, {place}"], echo, at_most=4.0)
    large = times["inspect 1 MB"]
    yield Line("inspect, 1 MB", large, "", "at most 40 ms", large.median <= 0.040)
    synced = times[SYNCED]
    yield Line(SYNCED, synced)
    yield Line.beside("write, a turn's first", times["write"], synced, at_most=1.6)
    yield Line.beside("write, a turn's next", times["write next"], synced, at_most=1.6)


def peer_lines(times: dict[str, Times], peers: dict[str, Times]) -> Iterator[Line]:
    """The table's lines for the peer: how many times as long it takes."""
    for name, target in (("inspect, usual", 100), ("inspect, best", 2.5), ("write, usual", 25), ("write, best", 5)):
        ours = times[name.split(",")[0]].median
        factor = peers[name].median / ours
        figure, wanted = f"{factor:.1f} × ours", f"at least {target:g} ×"
        yield Line(f"loopx 2.1.1 {name}", peers[name], figure, wanted, factor >= target)


def main() -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory(prefix="turn-journal-bench-") as name:
        folder = Path(name)
        times = single_calls(folder / "core")
        table = [*lines(times)]
        if peer.is_wanted():
            table += peer_lines(times, peer.measure(folder / "peer", size=SMALL, usual=60, best=400))
    table += [*crowd.lines(), *process.lines()]
    shown = Table("", "p50", "p99", "", "target", "", title="The bridge, one call at a time and many")
    for line in table:
        mark = "" if line.holds is None else "✓" if line.holds else "✗"
        p50, p99 = (milliseconds(line.times.median), milliseconds(line.times.p99)) if line.times else ("", "")
        shown.add_row(line.what, p50, p99, line.figure, line.target, mark)
    Console(width=120).print(shown)


if __name__ == "__main__":
    main()
