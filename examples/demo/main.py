"""Kills a durable turn in the middle of a tool call, shows why it may go on, and proves that nothing ran twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from worker import AGENT, GOAL, TODO

from turn_journal_runtime import inspect_turn_journal, load_turn_journal, turn_journal_path

HERE = Path(__file__).parent
KILL_AFTER_FILES = 4
DEADLINE_SECONDS = 60.0
console = Console(width=100, highlight=False, record=os.environ.get("TURN_JOURNAL_DEMO_SVG") is not None)


def lines_of(path: Path) -> list[str]:
    """What a log says so far."""
    return path.read_text(encoding="utf-8").splitlines() if path.exists() else []


def start_worker(work: Path) -> subprocess.Popen[bytes]:
    """The agent program, as a user would start it: the same command whether the turn is new or interrupted."""
    return subprocess.Popen([sys.executable, str(HERE / "worker.py"), str(work)], stdout=subprocess.PIPE)


def wait_for_files(work: Path, worker: subprocess.Popen[bytes], count: int) -> None:
    """Waits until so many files are migrated; the tool of the last one is still running then."""
    deadline = time.monotonic() + DEADLINE_SECONDS
    while len(lines_of(work / "tool-calls.log")) < count:
        if worker.poll() is not None or time.monotonic() > deadline:
            raise SystemExit("The worker ended before it could be killed: see its output above.")
        time.sleep(0.005)


def find_turn_key(work: Path) -> str:
    """The key of the one turn there is."""
    (path,) = (work / "root" / "goals" / GOAL / "turns").glob("*.json")
    return f"sha256:{path.stem}"


def show_inspection(inspection: Any) -> None:
    """The verdict first, then why."""
    decision = inspection["recovery_decision"]
    table = Table(show_header=False, box=None, padding=(0, 2, 0, 0))
    replay = "no: " + ", ".join(inspection["violations"]) if inspection["violations"] else "yes"
    table.add_row("may be replayed as a record", replay)
    table.add_row("may go on", f"[bold green]{decision['action']}[/] ({decision['reason']})")
    table.add_row("from", f"{decision['resume_from']}")
    table.add_row(
        "the host was started", "not known" if inspection["recorded_effects"]["host_invoked"] is None else "no"
    )
    table.add_row("its report was written", str(inspection["recorded_effects"]["state_written"]).lower())
    console.print(Panel(table, title="turn-journal inspect", title_align="left", border_style="cyan"))


def show_proof(work: Path, model_calls_before: int, calls_before: int) -> bool:
    """Counts what really happened, from the files alone."""
    calls = Counter(line.split("\t")[0] for line in lines_of(work / "tool-calls.log"))
    wanted = sorted(path.stem for path in (work / "legacy").glob("*.ini"))
    migrated = sorted(path.stem for path in (work / "migrated").glob("*.json"))
    model_calls = len(lines_of(work / "model-calls.log"))
    table = Table(title="What really happened, counted from the files", title_justify="left")
    table.add_column("effect")
    table.add_column("before the kill", justify="right")
    table.add_column("in all", justify="right")
    table.add_column("wanted", justify="right")
    table.add_row("model calls paid", str(model_calls_before), str(model_calls), "1")
    table.add_row("files migrated", str(calls_before), str(len(migrated)), str(len(wanted)))
    table.add_row("tool calls", str(calls_before), str(calls.total()), str(len(wanted)))
    table.add_row("tool calls made twice", "", str(sum(count > 1 for count in calls.values())), "0")
    console.print(table)
    return calls == Counter(wanted) and migrated == wanted and model_calls == 1


def main() -> int:
    """The whole story, in a folder that is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="turn-journal-demo-") as folder:
        work = Path(folder)
        shutil.copytree(HERE / "legacy", work / "legacy")
        (work / "migrated").mkdir()
        console.rule("[bold]1. An agent migrates a folder of .ini files, one tool call per file")
        worker = start_worker(work)
        wait_for_files(work, worker, KILL_AFTER_FILES)
        worker.send_signal(signal.SIGKILL)
        worker.wait()
        asked, done = len(lines_of(work / "model-calls.log")), lines_of(work / "tool-calls.log")
        for line in done:
            console.print(f"   migrated {line.split(chr(9))[0]}")
        console.print(f"   [bold red]SIGKILL[/] to process {worker.pid}, in the middle of tool call {len(done)}\n")

        console.rule("[bold]2. What does its journal say?")
        turn_key = find_turn_key(work)
        show_inspection(inspect_turn_journal(work / "root", goal_id=GOAL, agent_id=AGENT, turn_key=turn_key))

        console.rule("[bold]3. The same command again, in a new process")
        again = start_worker(work)
        output, _ = again.communicate(timeout=DEADLINE_SECONDS)
        for line in lines_of(work / "tool-calls.log")[len(done) :]:
            console.print(f"   migrated {line.split(chr(9))[0]}")
        console.print(f"   process {again.pid} ended with {again.returncode}: {output.decode().strip()}\n")

        console.rule("[bold]4. Did anything run twice?")
        proven = again.returncode == 0 and show_proof(work, asked, len(done))
        journal = load_turn_journal(turn_journal_path(work / "root", goal_id=GOAL, turn_key=turn_key))
        proven = proven and journal["status"] == "committed"
        console.print(f"   The turn for [bold]{TODO}[/] is [bold]{journal['status']}[/].")
        console.print("[bold green]   Nothing ran twice.[/]" if proven else "[bold red]   Something is wrong.[/]")
    svg = os.environ.get("TURN_JOURNAL_DEMO_SVG")
    if svg:
        console.save_svg(svg, title="make demo")
    return 0 if proven else 1


if __name__ == "__main__":
    raise SystemExit(main())
