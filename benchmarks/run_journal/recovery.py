"""A thousand runs that died after three steps, taken up by one process: three steps replayed, one new, closed."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import TYPE_CHECKING

from turn_journal_runtime.run_journal import DurableRun, RunJournal

from .sides import no_op

if TYPE_CHECKING:
    from pathlib import Path

RUNS = 1000

DYING = f"""
import os, sys
from turn_journal_runtime.run_journal import *
from benchmarks.run_journal.sides import no_op
journal = RunJournal(sys.argv[1])
runs = [DurableRun(journal, f"run-{{number}}") for number in range({RUNS})]
for run in runs:
    for limit in range(3):
        run.tool("search", {{"query": "q", "limit": limit}}, no_op)
os._exit(9)
"""


def seconds(path: Path) -> float:
    """How long the survivor takes, from opening the journal to the last run's end."""
    subprocess.run([sys.executable, "-c", DYING, str(path)], check=False)
    begin = time.perf_counter()
    with RunJournal(path) as journal:
        run_ids = journal.interrupted_runs()
        for run_id in run_ids:
            with DurableRun(journal, run_id) as run:
                for limit in range(4):
                    run.tool("search", {"query": "q", "limit": limit}, no_op)
        took = time.perf_counter() - begin
        if len(run_ids) != RUNS or journal.interrupted_runs():
            raise AssertionError("not every run was recovered")
    return took
