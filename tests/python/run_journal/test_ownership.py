"""One driver at a time, and proof of life that the kernel keeps. run-journal.md, section 4."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from turn_journal_runtime.errors import TurnBusyError
from turn_journal_runtime.run_journal import AsyncDurableRun, DurableRun, RunJournal, liveness
from turn_journal_runtime.run_journal.filesystem import home

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.python.run_journal.conftest import Address

HOLDER = """
    import sys
    from turn_journal_runtime.run_journal import *
    journal = RunJournal(sys.argv[1])
    runs = [DurableRun(journal, run_id) for run_id in sys.argv[2:]]
    for run in runs:
        run.tool("t", {}, lambda: "holder")
    print("driving", flush=True)
    for line in sys.stdin:
        for run in runs:
            if line == "finish\\n":
                run.finish()
            if line == "release\\n":
                run.release()
        print("done", flush=True)
"""


class Holder:
    """Another process that drives runs."""

    def __init__(self, address: Address, *run_ids: str) -> None:
        command = [sys.executable, "-c", textwrap.dedent(HOLDER), str(address), *run_ids]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "driving\n"

    def tell(self, word: str) -> None:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@pytest.fixture
def hold(address: Address) -> Iterator[Callable[..., Holder]]:
    holders: list[Holder] = []

    def start(*run_ids: str) -> Holder:
        holders.append(Holder(address, *run_ids))
        return holders[-1]

    yield start
    for holder in holders:
        holder.kill()


def locks(address: Address) -> list[Path]:
    beside = home() / "runs" / "postgres" if isinstance(address, str) else address
    return sorted(Path(f"{beside}.owners").glob("*.lock"))


def tool(journal: RunJournal, run_id: str, name: str = "t") -> str:
    with DurableRun(journal, run_id) as run:
        found: str = run.tool(name, {}, lambda: "here")
        return found


pytestmark = pytest.mark.process


def test_a_second_driver_is_told_who_drives(hold: Callable[..., Holder], address: Address) -> None:
    holder = hold("r")
    with RunJournal(address) as journal:
        before = journal.events("r")
        with pytest.raises(TurnBusyError, match=f"process {holder.process.pid}") as caught:
            tool(journal, "r")
        owner = caught.value.details["owner"]
        assert (owner["pid"], owner["language"], caught.value.is_retryable) == (holder.process.pid, "python", True)
        assert journal.events("r") == before
        assert tool(journal, "another") == "here"


def test_interrupted_runs_leave_out_what_a_living_process_drives(hold: Callable[..., Holder], address: Address) -> None:
    holder = hold("a", "b")
    with RunJournal(address) as journal:
        journal.open_run("c")
        assert journal.interrupted_runs() == ["c"]
        assert journal.interrupted_runs(include_owned=True) == ["a", "b", "c"]
        holder.kill()
        assert journal.interrupted_runs() == ["a", "b", "c"]


@pytest.mark.parametrize("way", [signal.SIGKILL, signal.SIGTERM])
def test_a_dead_drivers_runs_are_free_at_once(hold: Callable[..., Holder], address: Address, way: int) -> None:
    holder = hold("r")
    os.kill(holder.process.pid, way)
    holder.process.wait()
    with RunJournal(address) as journal:
        assert tool(journal, "r") == "holder"
        assert not [file for file in locks(address) if file.name.startswith(f"{holder.process.pid}-")]


def test_a_stopped_driver_is_not_dead(hold: Callable[..., Holder], address: Address) -> None:
    """A laptop that sleeps, a process under a debugger: no clock may say that it died."""
    holder = hold("r")
    os.kill(holder.process.pid, signal.SIGSTOP)
    try:
        with RunJournal(address) as journal, pytest.raises(TurnBusyError):
            tool(journal, "r")
    finally:
        os.kill(holder.process.pid, signal.SIGCONT)


@pytest.mark.parametrize("word", ["finish", "release"])
def test_a_driver_that_ends_its_drive_frees_the_run(hold: Callable[..., Holder], address: Address, word: str) -> None:
    holder = hold("r")
    holder.tell(word)
    with RunJournal(address) as journal:
        assert tool(journal, "r") == "holder"


def test_a_driver_that_lost_its_run_can_no_longer_write(hold: Callable[..., Holder], address: Address) -> None:
    """Its lock is gone though it lives (somebody removed the file): the fence keeps it out."""
    journal = RunJournal(address)
    run = DurableRun(journal, "r")
    run.tool("t", {}, lambda: "first")
    for file in locks(address):
        file.unlink()
    thief = hold("r")
    before = journal.events("r")
    ran: list[int] = []
    with pytest.raises(TurnBusyError, match="no longer driven from here"):
        run.tool("mine", {}, lambda: ran.append(1))
    with pytest.raises(TurnBusyError):
        run.finish("failed")
    run.release()
    assert (ran, journal.events("r")) == ([], before)
    thief.tell("finish")
    found = journal.run_meta("r")
    assert found is not None
    assert found.outcome == "done"
    journal.close()


def test_two_handles_of_one_process_are_two_drivers(address: Address) -> None:
    with RunJournal(address) as one, RunJournal(address) as two:
        run = DurableRun(one, "r")
        run.start()
        for journal in (one, two):
            with pytest.raises(TurnBusyError):
                DurableRun(journal, "r").start()
            assert journal.interrupted_runs() == []
        run.release()
        assert tool(two, "r") == "here"


def test_a_driver_that_is_dropped_or_closed_drives_no_more(address: Address) -> None:
    with RunJournal(address) as other:
        journal = RunJournal(address)
        run: DurableRun | None = DurableRun(journal, "r")
        assert run is not None
        run.start()
        del run
        gc.collect()
        assert tool(journal, "r") == "here", "the same handle takes it up"
        journal.open_run("r")
        run = DurableRun(journal, "r")
        run.start()
        journal.close()
        assert other.interrupted_runs() == ["r"]
        assert tool(other, "r") == "here"
        with RunJournal(address) as third:
            third.open_run("s")
            forgotten = DurableRun(RunJournal(address), "s")
            forgotten.start()
            assert third.interrupted_runs() == []
            del forgotten
            gc.collect()
            assert third.interrupted_runs() == ["s"]


def test_of_many_that_want_a_run_one_gets_it(address: Address) -> None:
    with RunJournal(address) as setup:
        setup.open_run("r")
    barrier = threading.Barrier(8)
    outcomes: list[str] = []
    kept: list[DurableRun] = []

    def want(number: int) -> None:
        journal = shared if number % 2 else RunJournal(address)
        run = DurableRun(journal, "r")
        barrier.wait()
        try:
            run.start()
            kept.append(run)
            outcomes.append("driving")
        except TurnBusyError:
            outcomes.append("busy")

    with RunJournal(address) as shared:
        threads = [threading.Thread(target=want, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(outcomes) == ["busy"] * 7 + ["driving"]


def test_a_run_is_freed_when_its_async_drive_is_cancelled(address: Address) -> None:
    async def main() -> None:
        begun = asyncio.Event()

        async def tool() -> None:
            begun.set()
            await asyncio.Event().wait()

        async def drive() -> None:
            async with AsyncDurableRun(journal, "r") as run:
                await run.tool("t", {}, tool)

        task = asyncio.ensure_future(drive())
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    with RunJournal(address) as journal:
        asyncio.run(main())
        assert journal.interrupted_runs() == ["r"]
        assert [step.tool for step in journal.uncertain("r")] == ["t"], "cancelled in the middle is not known"


def test_a_run_is_freed_when_its_async_drive_is_cancelled_while_it_claims(path: Path) -> None:
    claimed = threading.Event()

    async def main() -> None:
        run = AsyncDurableRun(journal, "r")
        begin = run._begin

        def slowly() -> object:
            claimed.wait(10)
            return begin()

        run._begin = slowly  # type: ignore[assignment, method-assign]
        starting = asyncio.ensure_future(run.__aenter__())
        await asyncio.sleep(0.05)
        starting.cancel()
        await asyncio.sleep(0.05)
        claimed.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert journal.interrupted_runs() == ["r"]

    with RunJournal(path, durability="power") as journal:
        asyncio.run(main())


def test_what_dead_owners_left_is_swept(hold: Callable[..., Holder], address: Address) -> None:
    for _ in range(3):
        hold("r").kill()
    alive = hold("s")
    with RunJournal(address) as journal, DurableRun(journal, "t") as run:
        run.iteration(0)
        names = [file.name for file in locks(address)]
        assert len(names) == 2
        assert {name.split("-")[0] for name in names} == {str(os.getpid()), str(alive.process.pid)}
    assert len(locks(address)) == 1


def test_a_journal_in_memory_has_drivers_too() -> None:
    with RunJournal(":memory:") as journal:
        run = DurableRun(journal, "r")
        run.start()
        with pytest.raises(TurnBusyError):
            DurableRun(journal, "r").start()
        run.release()
        assert tool(journal, "r") == "here"


@pytest.mark.parametrize("moment", ["before it is opened", "before it is locked"])
def test_an_owner_whose_file_is_buried_as_a_dead_ones_takes_another(
    path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Many start at once: one sweeps what another has made a moment ago and not locked yet."""
    buried: list[Path] = []
    function = "create_private" if moment == "before it is opened" else "_take"
    original = getattr(liveness, function)

    def burying(file: Path) -> object:
        found = original(file)
        if not buried:
            buried.append(file)
            file.unlink()
        return found

    with RunJournal(path) as journal, RunJournal(path) as other:
        monkeypatch.setattr(liveness, function, burying)
        with DurableRun(journal, "r"):
            assert buried
            assert [file.exists() for file in (*buried, *locks(path))] == [False, True]
            with pytest.raises(TurnBusyError):
                DurableRun(other, "r").start()


FORKING = """
    import os, signal, sys, time
    from turn_journal_runtime.run_journal import *
    journal = RunJournal(sys.argv[1])
    run = DurableRun(journal, "r")
    run.tool("t", {}, lambda: "parent")
    if os.fork():
        os.kill(os.getpid(), signal.SIGKILL)
    while os.getppid() == int(sys.argv[2]) or RunJournal(sys.argv[1]).interrupted_runs() != ["r"]:
        time.sleep(0.01)
    with DurableRun(journal, "r") as run:
        print(run.tool("t", {}, lambda: "child"), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform does not fork")
def test_a_child_takes_up_the_run_of_the_parent_that_died(path: Path) -> None:
    """The child inherits what the parent knew of its own locks, but not the locks."""
    # The parent's number is not known before it runs: it is the shell's, which becomes it.
    command = ["sh", "-c", 'exec "$0" -c "$1" "$2" $$', sys.executable, textwrap.dedent(FORKING), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "parent\n"), done.stderr


class Broken:
    """A workspace that can be neither kept nor brought back."""

    def snapshot(self) -> str:
        raise OSError("no space")

    def restore(self, checkpoint_id: str) -> None:
        raise OSError("no space")


@pytest.mark.parametrize("checkpoint", [None, "one"], ids=["first", "again"])
def test_a_run_whose_workspace_cannot_be_brought_back_is_free(address: Address, checkpoint: str | None) -> None:
    with RunJournal(address) as journal, RunJournal(address) as other:
        journal.open_run("r", checkpoint_id=checkpoint)
        # Kept, so that it is not freed as a drive that nobody has any more.
        run = DurableRun(journal, "r", checkpoints=Broken())
        with pytest.raises(OSError, match="no space"):
            run.start()
        assert other.interrupted_runs() == ["r"]
        assert tool(other, "r") == "here"
