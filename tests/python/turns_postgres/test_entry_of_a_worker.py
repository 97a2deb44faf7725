"""What an entry raises, and what a worker makes of it. session-recovery.md, section 3."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from procrastinate import App
from procrastinate.exceptions import ConnectorException
from procrastinate.testing import InMemoryConnector

from turn_journal_runtime.errors import TurnSuspended
from turn_journal_runtime.flow import is_async
from turn_journal_runtime.turns.due import DueTurn
from turn_journal_runtime.worker.aio import defer_turn
from turn_journal_runtime.worker.driving import LONGEST_WAIT, Outcome, in_thread, outcome_of
from turn_journal_runtime.worker.faults import Trouble
from turn_journal_runtime.worker.queue import Job
from turn_journal_runtime.worker.worker import Summary, run_worker

if TYPE_CHECKING:
    from collections.abc import Callable

JOB = Job("goal", "agent", "todo", None, "key")
DUE = DueTurn("postgresql://host/db", "goal", "agent", "key", "todo", None, "host_execute", retry_failed=False)


def cancels_itself(_: DueTurn) -> None:
    raise asyncio.CancelledError


def exits(_: DueTurn) -> None:
    sys.exit(3)


@pytest.mark.parametrize("entry", [cancels_itself, exits])
@pytest.mark.parametrize("form", ["sync", "async", "awaitable"])
def test_an_entry_that_ends_itself_has_failed_and_waits(entry: Callable[[DueTurn], None], form: str) -> None:
    async def awaited(due: DueTurn) -> None:
        entry(due)

    given = {"sync": entry, "async": awaited, "awaitable": lambda due: awaited(due)}[form]
    outcome = asyncio.run(outcome_of(given, DUE, JOB))
    assert outcome.event == "failed"
    assert outcome.again_at is not None
    assert outcome.again_at > time.time() + 5


@pytest.mark.parametrize("due_at", [2e9, 2_000_000_000])
def test_a_turn_that_sleeps_comes_back_when_it_is_time(due_at: float) -> None:
    def asleep(_: DueTurn) -> None:
        raise TurnSuspended("it sleeps", details={"run_id": "r", "seq": 0, "due_at": due_at})

    assert asyncio.run(outcome_of(asleep, DUE, JOB._replace(again=5))) == ("sleeps", "it sleeps", due_at)


def test_a_drive_that_the_worker_cancels_is_cancelled() -> None:
    async def hangs(_: DueTurn) -> None:
        await asyncio.sleep(60)

    async def work() -> None:
        drive = asyncio.create_task(outcome_of(hangs, DUE, JOB))
        await asyncio.sleep(0)
        drive.cancel()
        with pytest.raises(asyncio.CancelledError):
            await drive

    asyncio.run(work())


@pytest.mark.parametrize("does", ["ends", "answers all the same", "goes on"])
def test_a_sync_entry_whose_drive_is_cancelled_is_interrupted(does: str) -> None:
    begun, interrupted, go_on, over = (threading.Event() for _ in range(4))

    def entry(_: DueTurn) -> None:
        try:
            begun.set()
            while True:
                time.sleep(0.005)
        except KeyboardInterrupt:
            interrupted.set()
            if does == "goes on":
                go_on.wait(60)
            if does == "ends":
                raise
        finally:
            over.set()

    async def work() -> Outcome:
        drive = asyncio.create_task(outcome_of(entry, DUE, JOB))
        await asyncio.to_thread(begun.wait, 60)
        drive.cancel()
        try:
            return await drive
        except asyncio.CancelledError:
            assert over.is_set()
            return Outcome("released", "")

    outcome = asyncio.run(work())
    go_on.set()
    assert interrupted.is_set()
    assert outcome.event == {"ends": "released", "answers all the same": "done", "goes on": "left"}[does]
    assert outcome.again_at is None
    assert over.wait(60)


def test_a_thread_has_the_context_of_whoever_began_it_and_answers_nobody_who_left() -> None:
    kept = ContextVar("kept", default="nothing")
    go_on, told = threading.Event(), []

    async def work() -> str:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        kept.set("what the worker knows")
        left = in_thread(lambda: go_on.wait(10), "left")
        left.cancel()
        go_on.set()
        known: str = await in_thread(kept.get, "known")
        assert await in_thread(lambda: threading.current_thread().daemon, "kind")  # no process waits for it
        await asyncio.sleep(0.1)
        return known

    assert (asyncio.run(work()), told) == ("what the worker knows", [])


class Agent:
    async def __call__(self, _: DueTurn) -> None: ...

    async def drive(self, _: DueTurn) -> None: ...


@pytest.mark.parametrize("entry", [Agent(), Agent().drive, partial(Agent.drive, Agent())])
def test_whatever_is_called_as_a_coroutine_function_is_async(entry: Callable[[DueTurn], object]) -> None:
    assert is_async(entry)
    assert not is_async(cancels_itself)


@pytest.mark.parametrize("again", [0, 10, 100_000])
def test_what_has_waited_often_waits_no_longer_than_the_longest(again: int) -> None:
    outcome = asyncio.run(outcome_of(exits, DUE, JOB._replace(again=again)))
    assert outcome.again_at is not None
    assert 5 < outcome.again_at - time.time() <= LONGEST_WAIT


def test_a_due_turn_shows_no_password() -> None:
    due = replace(DUE, runtime_root="postgresql://user:s3cret@host/db")
    assert (due.runtime_root.count("s3cret"), repr(due).count("s3cret")) == (1, 0)


@pytest.mark.parametrize("number", [{"concurrency": 0}, {"every": 0}, {"every": 61}, {"grace": -1}])
def test_a_worker_that_could_do_nothing_is_refused(number: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="concurrency of at least 1"):
        asyncio.run(run_worker("postgresql://nobody@127.0.0.1:1/none", lambda _: None, **number))


@pytest.mark.process
def test_a_look_that_takes_long_keeps_no_turn_from_being_driven(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one place and looks that take longer than what is between two of them, looks would be all that is done."""
    looks = 0
    looked = asyncio.Event()

    async def look(*_: Any, **__: Any) -> list[Any]:
        nonlocal looks
        looks += 1
        looked.set()
        await asyncio.sleep(3600)
        return []

    async def entry(_: DueTurn) -> None:
        os.kill(os.getpid(), signal.SIGTERM)

    async def work() -> Summary:
        worker = asyncio.create_task(run_worker(database, entry, every=1))
        await looked.wait()
        await asyncio.sleep(2.5)  # it is time for another one, twice
        await defer_turn(database, goal_id="goal", agent_id="agent", todo_id="beside-a-look")
        summary = await asyncio.wait_for(worker, 60)
        await asyncio.sleep(0)
        assert not [task for task in asyncio.all_tasks() if "_find" in repr(task.get_coro())]
        return summary

    monkeypatch.setattr("turn_journal_runtime.worker.worker.stopped_turns", look)
    assert asyncio.run(work()) == Summary({"done": 1}, 0)
    assert looks == 1


def test_why_a_queue_was_lost_is_not_what_a_job_raised_meanwhile() -> None:
    """The worker would take the program's error for its own, and end."""
    log, lost = logging.getLogger("procrastinate.worker"), ConnectorException("lost")

    async def fail() -> None:
        raise ValueError("of the job")

    async def worked() -> None:
        queue = App(connector=InMemoryConnector())
        task = queue.task(name="fail")(fail)
        async with queue.open_async():
            await task.defer_async()
            await queue.run_worker_async(wait=False, install_signal_handlers=False, listen_notify=False)

    with Trouble() as trouble:
        log.error("as procrastinate says it", exc_info=lost, extra={"action": "side_task_failed"})
        asyncio.run(worked())
    assert trouble.error is lost
