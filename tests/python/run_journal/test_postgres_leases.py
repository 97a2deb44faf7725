"""One driver per run, whatever host it is on, by the database's clock. run-journal.md, section 4."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.run_journal.proxy import Proxy
from tests.python.run_journal.test_ownership import Holder, tool

from turn_journal_runtime.errors import StoreUnavailableError, TurnBusyError
from turn_journal_runtime.run_journal import AsyncDurableRun, DurableRun, RunJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Eventually
    from tests.python.run_journal.databases import Schema

#: Long enough that a busy machine is in time with the renewals, three of them in a lease.
LEASE = 3.0

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def _short_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURN_JOURNAL_RUN_LEASE", str(LEASE))
    monkeypatch.setenv("TURN_JOURNAL_POSTGRES_TIMEOUT", "3")


@pytest.fixture
def elsewhere(schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Holder]]:
    """Drivers on another host: one whose lock files are not seen from here."""
    holders: list[Holder] = []

    def start(*run_ids: str) -> Holder:
        with monkeypatch.context() as other:
            other.setenv("TURN_JOURNAL_HOME", str(tmp_path / "another host"))
            holders.append(Holder(schema, *run_ids))
        return holders[-1]

    yield start
    for holder in holders:
        holder.kill()


def test_a_driver_on_another_host_that_dies_is_waited_for(
    schema: Schema, elsewhere: Callable[..., Holder], eventually: Eventually
) -> None:
    with RunJournal(schema) as journal:
        holder = elsewhere("r")
        time.sleep(1.25 * LEASE)
        assert journal.interrupted_runs() == []
        with pytest.raises(TurnBusyError, match=f"process {holder.process.pid} .* within {LEASE:g} s"):
            tool(journal, "r")
        holder.kill()
        assert journal.interrupted_runs() == [], "nobody could know at once"
        eventually(lambda: journal.interrupted_runs() == ["r"])
        assert tool(journal, "r") == "holder"


def test_a_driver_that_was_taken_for_dead_cannot_write(
    schema: Schema, elsewhere: Callable[..., Holder], eventually: Eventually
) -> None:
    """A host that sleeps: its drive goes on when it wakes, and finds its run taken."""
    holder = elsewhere("r", "s")
    os.kill(holder.process.pid, signal.SIGSTOP)
    with RunJournal(schema) as journal:
        eventually(lambda: journal.interrupted_runs() == ["r", "s"])
        run = DurableRun(journal, "r")
        assert run.tool("t", {}, lambda: "here") == "holder"
        before = journal.events("r")
        os.kill(holder.process.pid, signal.SIGCONT)
        assert holder.process.stdin is not None
        holder.process.stdin.write("finish\n")
        holder.process.stdin.flush()
        holder.process.wait(60)
        assert holder.process.returncode == 1, "TurnBusyError ended it"
        assert journal.events("r") == before
        run.tool("u", {}, lambda: "here")
        run.finish()


def test_a_lease_that_has_passed_and_that_nobody_took_is_no_loss(schema: Schema) -> None:
    with RunJournal(schema) as journal, DurableRun(journal, "r") as run:
        run.tool("t", {}, lambda: 1)
        journal._ownership._stopped.set()  # type: ignore[attr-defined]
        with RunJournal(schema) as other:
            time.sleep(1.5 * LEASE)
            assert other.interrupted_runs() == ["r"]
        assert run.tool("t", {}, lambda: 2) == 2


def test_one_of_two_hosts_is_cut_off_and_the_other_takes_over(schema: Schema, eventually: Eventually) -> None:
    effects: list[str] = []
    with Proxy(schema) as proxy, RunJournal(schema) as here, RunJournal(proxy.url) as there:
        lost = DurableRun(there, "r")
        lost.tool("t", {}, lambda: effects.append("first"))
        here._ownership._place = None  # type: ignore[attr-defined]
        proxy.cut_off()
        eventually(lambda: here.interrupted_runs() == ["r"])
        taken = DurableRun(here, "r")
        taken.tool("t", {}, lambda: effects.append("again"))
        taken.tool("u", {}, lambda: effects.append("second"))
        proxy.come_back()
        with pytest.raises(TurnBusyError, match="no longer driven from here"):
            lost.tool("u", {}, lambda: effects.append("twice"))
        taken.finish()
    assert effects == ["first", "second"]


def test_a_run_is_taken_over_from_a_driver_that_lives(schema: Schema) -> None:
    with RunJournal(schema) as one, RunJournal(schema) as two:
        hanging = DurableRun(one, "r")
        hanging.tool("t", {}, lambda: 1)
        with DurableRun(two, "r", take_over=True) as run:
            assert run.tool("t", {}, lambda: 2) == 1
            with pytest.raises(TurnBusyError):
                hanging.tool("u", {}, lambda: 2)
            run.tool("u", {}, lambda: 3)
        assert [event.payload.get("result") for event in two.events("r")][1::2] == [1, 3]


def test_a_claim_sees_all_that_the_driver_before_recorded(schema: Schema) -> None:
    """A run is taken over between its steps: what was acknowledged is in the record, and nothing comes after."""
    with RunJournal(schema) as one, RunJournal(schema) as two:
        for round_ in range(10):
            run_id = f"r{round_}"
            run = DurableRun(one, run_id)
            run.start()
            acknowledged: list[int] = []

            def drive(run: DurableRun = run, acknowledged: list[int] = acknowledged) -> None:
                try:
                    while True:
                        acknowledged.append(run.iteration(len(acknowledged)))
                except TurnBusyError:
                    pass

            driver = threading.Thread(target=drive)
            driver.start()
            time.sleep(0.02)
            successor = DurableRun(two, run_id, take_over=True)
            successor.start()
            driver.join()
            assert successor._drive is not None
            assert set(acknowledged) <= successor._drive.record.keys()
            assert successor._drive.record.keys() == {event.seq for event in two.events(run_id)}
            successor.release()


def test_an_async_drive_does_not_block_the_loop(schema: Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server is away until the loop lets it come back, and many writes wait for it."""

    let_back: list[str] = []

    def come_back(by: str) -> None:
        let_back.append(by)
        proxy.come_back()

    def go_away() -> None:
        proxy.cut_off()
        late = threading.Timer(10, come_back, ("somebody else",))
        late.start()
        asyncio.get_running_loop().call_later(1, come_back, "the loop")
        asyncio.get_running_loop().call_later(1, late.cancel)

    async def main() -> list[Any]:
        async with AsyncDurableRun(journal, "r") as run:
            go_away()
            results = await asyncio.gather(*(run.tool("t", {"n": n}, lambda n: n) for n in range(50)))
            go_away()
            with pytest.raises(RuntimeError):
                async with AsyncDurableRun(journal, "s"):
                    raise RuntimeError
        return results

    monkeypatch.setenv("TURN_JOURNAL_POSTGRES_TIMEOUT", "20")
    with Proxy(schema) as proxy, RunJournal(proxy.url) as journal:
        assert asyncio.run(main()) == list(range(50))
        assert let_back == ["the loop"] * 2
        assert journal.interrupted_runs() == ["s"]


def test_tools_that_fill_the_loops_threads_do_not_hold_up_the_record(schema: Schema) -> None:
    waiting = threading.Event()

    async def main() -> None:
        # Two threads, which are both taken when two tools run.
        loop, both = asyncio.get_running_loop(), asyncio.Event()
        loop.set_default_executor(ThreadPoolExecutor(2))
        running: list[int] = []

        def slow() -> bool:
            running.append(1)
            if len(running) == 2:
                loop.call_soon_threadsafe(both.set)
            return waiting.wait(30)

        async with AsyncDurableRun(journal, "r") as run:
            tools = [asyncio.ensure_future(run.tool("slow", {}, slow)) for _ in range(20)]
            await both.wait()
            try:
                await asyncio.wait_for(run.iteration(0), 25)
            finally:
                waiting.set()
            assert await asyncio.gather(*tools) == [True] * 20

    with RunJournal(schema) as journal:
        asyncio.run(main())


def test_a_server_that_is_away_ends_a_drive_with_an_error_that_may_pass(schema: Schema) -> None:
    ran: list[int] = []
    with Proxy(schema) as proxy, RunJournal(proxy.url) as journal:
        run = DurableRun(journal, "r")
        run.start()
        proxy.__exit__(None, None, None)
        with pytest.raises(StoreUnavailableError) as caught:
            run.tool("t", {}, lambda: ran.append(1))
        assert (ran, caught.value.is_retryable) == ([], True)


#: Stops itself in the middle of a claim: it holds locks there, and the server does not hear that it is gone.
_STOPPED = """
import os, signal, sys
from turn_journal_runtime.run_journal import DurableRun, RunJournal, drive

def stop(*_):
    os.kill(os.getpid(), signal.SIGSTOP)

drive.read_attempts = stop
DurableRun(RunJournal(sys.argv[1]), "r").start()
"""


def test_a_host_that_is_silent_in_the_middle_of_a_claim_holds_up_nobody(schema: Schema) -> None:
    with subprocess.Popen([sys.executable, "-c", _STOPPED, schema]) as stopped:
        try:
            os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
            with RunJournal(schema) as journal, DurableRun(journal, "r") as run:
                run.iteration(0)
        finally:
            stopped.kill()


def test_what_is_locked_for_too_long_is_an_error_that_may_pass(schema: Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURN_JOURNAL_POSTGRES_TIMEOUT", "0.5")
    with RunJournal(schema) as journal, schema.connection() as other:
        journal.open_run("r")
        other.execute("BEGIN")
        other.execute("UPDATE turn_journal_runs SET agent = 'other'")
        with pytest.raises(StoreUnavailableError) as caught:
            journal.close_run("r", "done")
        assert caught.value.kind == "store_unavailable"
