"""Many threads and processes on one file, and writers that are killed: nothing is lost, nobody is locked out."""

from __future__ import annotations

import os
import random
import time
from typing import TYPE_CHECKING

import pytest

from turn_journal_runtime.run_journal import RunJournal

if TYPE_CHECKING:
    from pathlib import Path

    from tests.chaos.run_journal.conftest import Start

SOAK = os.environ.get("TURN_JOURNAL_SOAK") == "1"

pytestmark = [pytest.mark.chaos, pytest.mark.process]

WRITERS = """
    import sys, threading
    from turn_journal_runtime.run_journal import *
    path, name, threads, count = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    journal = RunJournal(path)
    failed = []
    def write(run_id):
        try:
            journal.open_run(run_id)
            for n in range(0, count, 2):
                journal.append(JournalEvent(run_id, n, KIND_ITERATION, {"index": n}))
                journal.append_many([JournalEvent(run_id, n + 1, KIND_ITERATION, {"index": n + 1})])
            with DurableRun(journal, f"{run_id}, driven") as run:
                for n in range(count // 4):
                    run.tool("t", {"n": n}, lambda n: n)
        except BaseException as error:
            failed.append(repr(error))
    workers = [threading.Thread(target=write, args=(f"{name}-{t}",)) for t in range(threads)]
    print("ready", flush=True)
    sys.stdin.readline()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    journal.close()
    print(failed or "ok")
"""


@pytest.mark.timeout(900)
def test_eight_processes_of_eight_threads_append_to_one_file(tmp_path: Path, start: Start) -> None:
    path = tmp_path / "journal.db"
    count = 400 if SOAK else 20
    writers = [start(WRITERS, path, f"process {number}", 8, count) for number in range(8)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [writer.communicate(timeout=800)[0] for writer in writers] == ["ok\n"] * 8
    with RunJournal(path) as journal:
        runs = journal.interrupted_runs()
        assert len(runs) == 64
        for run_id in runs:
            assert [event.seq for event in journal.events(run_id)] == list(range(count))
            assert len(journal.events(f"{run_id}, driven")) == 2 * (count // 4)
        assert journal._database.read("PRAGMA integrity_check") == [("ok",)]


ACKNOWLEDGING = """
    import os, sys
    from turn_journal_runtime.run_journal import *
    journal = RunJournal(sys.argv[1], durability=sys.argv[2])
    journal.open_run("r")
    n = int(sys.argv[3])
    while True:
        if n % 5:
            journal.append(JournalEvent("r", n, KIND_ITERATION, {"index": n, "fill": "x" * (n % 3000)}))
        else:
            journal.append_many([JournalEvent("r", n, KIND_ITERATION, {"index": n, "fill": "x" * (n % 3000)})])
        os.write(1, f"{n}\\n".encode())
        n += 1
"""


@pytest.mark.timeout(900)
@pytest.mark.parametrize("durability", ["process", "power"])
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, start: Start, durability: str) -> None:
    path = tmp_path / "journal.db"
    seed = int(os.environ.get("TURN_JOURNAL_SEED") or random.randrange(2**32))
    print(f"seed: {seed} (TURN_JOURNAL_SEED={seed} runs it again)")
    dice = random.Random(seed)
    acknowledged = -1
    for _ in range(50 if SOAK else 4):
        writer = start(ACKNOWLEDGING, path, durability, acknowledged + 1)
        assert writer.stdout is not None
        first = writer.stdout.readline()
        time.sleep(dice.random() * 0.2)
        writer.kill()
        # `communicate` would not see the lines that came together with the first one.
        lines = [first, *writer.stdout.read().splitlines()]
        writer.communicate()
        acknowledged = int(lines[-1])
        with RunJournal(path) as journal:
            recorded = [event.seq for event in journal.events("r")]
            # One more may have been stored whose acknowledgment was killed.
            assert recorded[: acknowledged + 1] == list(range(acknowledged + 1))
            assert len(recorded) <= acknowledged + 2
            acknowledged = recorded[-1]
            assert journal.settings["synchronous"] == 1
        with RunJournal(path, durability="power") as journal:
            assert journal.settings["synchronous"] == 2
