"""Steps in flight when their loop ends: waited for, recorded, and no dead end. run-journal.md, section 4."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.run_journal.forms import Form, drive

from turn_journal_runtime.errors import InvalidJournalError, JournalConflictError, TurnBusyError, TurnSuspended
from turn_journal_runtime.run_journal import KIND_TOOL_RESULT, AsyncDurableRun, DurableRun, RunJournal

if TYPE_CHECKING:
    from pathlib import Path


def test_steps_beside_a_failed_one_are_recorded_before_the_run_is_let_go(journal: RunJournal) -> None:
    """`gather` raises the first failure and leaves the others under way."""
    ran: list[str] = []

    async def fails() -> None:
        raise ValueError("no")

    async def works(name: str) -> str:
        ran.append(name)
        await asyncio.sleep(0.02)
        return name

    async def loop(run: Any) -> Any:
        slow = [run.tool("work", {"name": name}, works) for name in ("a", "b")]
        return await asyncio.gather(run.tool("fail", {}, fails), *slow)

    with pytest.raises(ValueError, match="no"):
        drive("async", journal, "r", loop)
    assert [step.tool for step in journal.uncertain("r")] == ["fail"]
    journal.settle("r", 2, result="done by hand")
    assert drive("async", journal, "r", loop) == ["done by hand", "a", "b"]
    assert sorted(ran) == ["a", "b"]


def test_a_step_that_nobody_awaits_is_recorded_before_the_run_is_closed(journal: RunJournal) -> None:
    async def loop(run: Any) -> None:
        task = asyncio.create_task(run.tool("work", {}, partial(asyncio.sleep, 0.02, "worked")))
        await asyncio.sleep(0)
        kept.append(task)

    kept: list[asyncio.Task[Any]] = []
    drive("async", journal, "r", loop)
    assert journal.replay_index("r")[0, KIND_TOOL_RESULT] == {"result": "worked"}
    assert journal.interrupted_runs() == []


def test_a_run_is_finished_when_its_steps_have_ended(journal: RunJournal) -> None:
    async def loop(run: Any) -> Any:
        task = asyncio.create_task(run.tool("work", {}, partial(asyncio.sleep, 0.02, "worked")))
        await asyncio.sleep(0)
        await run.finish("succeeded")
        return await task

    assert drive("async", journal, "r", loop) == "worked"
    with ThreadPoolExecutor(1) as pool, DurableRun(journal, "s") as run:
        future = run.submit(pool, "work", {}, partial(time.sleep, 0.02))
        run.finish("succeeded")
        assert future.done()
    for run_id in ("r", "s"):
        found = journal.run_meta(run_id)
        assert found is not None
        assert (found.outcome, journal.uncertain(run_id)) == ("succeeded", [])


@pytest.mark.parametrize("finished", [False, True])
def test_steps_in_threads_of_the_callers_own_are_waited_for(finished: bool, journal: RunJournal) -> None:
    began = threading.Event()

    def work() -> str:
        began.set()
        time.sleep(0.2)
        return "worked"

    with DurableRun(journal, "r") as run:
        own = threading.Thread(target=run.tool, args=("work", {}, work))
        own.start()
        began.wait()
        if finished:
            run.finish("succeeded")
    own.join()
    assert (journal.uncertain("r"), journal.interrupted_runs()) == ([], [])
    assert journal.replay_index("r")[0, KIND_TOOL_RESULT] == {"result": "worked"}


def test_a_step_does_not_finish_its_run(form: Form, journal: RunJournal) -> None:
    """It would wait for itself, or be refused its own result."""

    async def loop(run: Any) -> Any:
        def submit_answer() -> None:
            outcome = (run._run if form == "sync" else run).finish("succeeded")
            if outcome is not None:
                asyncio.run(outcome)

        with pytest.raises(InvalidJournalError, match="or its end, was begun inside"):
            await run.tool("submit_answer", {}, submit_answer)
        await run.finish("succeeded")

    drive(form, journal, "r", loop)
    assert journal.interrupted_runs() == []


def test_a_question_waits_for_the_tools_beside_it(journal: RunJournal) -> None:
    async def loop(run: Any) -> Any:
        return await asyncio.gather(
            run.tool("work", {}, partial(asyncio.sleep, 0.02, "worked")), run.approval("go on?")
        )

    with pytest.raises(TurnSuspended):
        drive("async", journal, "r", loop, max_resumes=0)
    assert journal.uncertain("r") == []
    journal.approve("r", 1, True, by="me")
    assert drive("async", journal, "r", loop, max_resumes=0) == ["worked", True]


def test_a_cancelled_drive_waits_for_nothing(journal: RunJournal) -> None:
    async def main() -> None:
        started, never = asyncio.Event(), asyncio.Event()
        kept: list[asyncio.Task[Any]] = []

        async def tool() -> None:
            started.set()
            await never.wait()

        async def agent() -> None:
            async with AsyncDurableRun(journal, "r") as run:
                kept.append(asyncio.create_task(run.tool("t", {}, tool)))
                await never.wait()

        driving = asyncio.create_task(agent())
        await started.wait()
        driving.cancel()
        await asyncio.wait([driving], timeout=30)
        assert driving.cancelled()
        kept[0].cancel()

    asyncio.run(main())
    assert [step.tool for step in journal.uncertain("r")] == ["t"]
    assert journal.interrupted_runs() == ["r"]


def test_steps_in_threads_are_recorded_before_the_run_is_let_go(journal: RunJournal) -> None:
    begun, end = threading.Event(), threading.Event()
    futures: list[Future[Any]] = []

    def works() -> str:
        begun.set()
        assert end.wait(60)
        return "worked"

    def loop(run: DurableRun, pool: ThreadPoolExecutor) -> None:
        futures.append(run.submit(pool, "first", {}, works))
        futures.append(run.submit(pool, "second", {}, works))
        assert begun.wait(60)
        threading.Timer(0.02, end.set).start()
        raise ValueError("meanwhile")

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(ValueError, match="meanwhile"), DurableRun(journal, "r") as run:
            loop(run, pool)
        assert (futures[0].result(), futures[1].cancelled()) == ("worked", True)
    assert journal.uncertain("r") == []
    with ThreadPoolExecutor(1) as pool, DurableRun(journal, "r") as run:
        futures = [run.submit(pool, name, {}, works) for name in ("first", "second")]
    assert [future.result() for future in futures] == ["worked", "worked"]
    assert journal.interrupted_runs() == []


def test_no_step_is_begun_once_the_loop_is_left(journal: RunJournal) -> None:
    """A heart-beat beside the loop would keep its exit waiting for ever."""
    beats: list[int] = []
    kept: list[asyncio.Task[Any]] = []

    async def beat() -> None:
        beats.append(1)
        await asyncio.sleep(0.01)

    async def heartbeat(run: AsyncDurableRun) -> None:
        while True:
            await run.tool("beat", {}, beat)

    async def loop(run: Any, error: bool) -> None:
        kept.append(asyncio.create_task(heartbeat(run)))
        await asyncio.sleep(0)
        if error:
            raise ValueError("the loop fails")

    async def main() -> list[Any]:
        for run_id, error in (("fails", True), ("ends", False)):
            try:
                async with asyncio.timeout(60), AsyncDurableRun(journal, run_id) as run:
                    await loop(run, error)
            except ValueError:
                pass
        return await asyncio.gather(*kept, return_exceptions=True)

    refused = asyncio.run(main())
    assert [type(error) for error in refused] == [JournalConflictError] * 2
    assert "has ended" in str(refused[0])
    assert len(beats) == 2
    assert (journal.interrupted_runs(), journal.uncertain("fails"), journal.uncertain("ends")) == (["fails"], [], [])


def test_a_task_made_as_the_loop_ends_still_takes_its_step(journal: RunJournal) -> None:
    kept: list[asyncio.Task[Any]] = []

    async def loop(run: Any) -> None:
        kept.append(asyncio.create_task(run.tool("work", {}, partial(asyncio.sleep, 0.01, "worked"))))

    drive("async", journal, "r", loop)
    assert journal.replay_index("r")[0, KIND_TOOL_RESULT] == {"result": "worked"}


def test_a_run_finished_twice_at_once_ends(journal: RunJournal) -> None:
    async def loop(run: Any) -> None:
        task = asyncio.create_task(run.tool("work", {}, partial(asyncio.sleep, 0.02)))
        await asyncio.sleep(0)
        await asyncio.gather(run.finish("succeeded"), run.finish("succeeded"), task)

    async def main() -> None:
        async with asyncio.timeout(60), AsyncDurableRun(journal, "r") as run:
            await loop(run)

    asyncio.run(main())
    assert journal.run_meta("r").outcome == "succeeded"  # type: ignore[union-attr]


def test_a_finish_that_is_given_up_leaves_the_drive_as_it_was(journal: RunJournal) -> None:
    async def loop(run: Any) -> Any:
        may_end = asyncio.Event()

        async def works() -> str:
            await may_end.wait()
            return "worked"

        task = asyncio.create_task(run.tool("work", {}, works))
        await asyncio.sleep(0)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await run.finish("failed")
        may_end.set()
        return [await task, await run.tool("more", {}, lambda: "more")]

    assert drive("async", journal, "r", loop) == ["worked", "more"]


def test_a_cancelled_exit_lets_the_run_go(journal: RunJournal) -> None:
    """The exit waits for a tool that hangs; who cancels it is free at once, and the step is in doubt."""

    async def main() -> None:
        begun, never = asyncio.Event(), asyncio.Event()

        async def hangs() -> None:
            begun.set()
            await never.wait()

        async def agent() -> None:
            async with AsyncDurableRun(journal, "r") as run:
                kept.append(asyncio.create_task(run.tool("t", {}, hangs)))
                await begun.wait()

        kept: list[asyncio.Task[Any]] = []
        driving = asyncio.create_task(agent())
        await begun.wait()
        await asyncio.sleep(0.01)
        assert not driving.done()
        driving.cancel()
        await asyncio.wait([driving], timeout=30)
        assert driving.cancelled()
        assert journal.interrupted_runs() == ["r"]
        never.set()
        with pytest.raises(TurnBusyError):
            await kept[0]

    asyncio.run(main())
    assert [step.tool for step in journal.uncertain("r")] == ["t"]


@pytest.mark.parametrize("place", ["in its loop", "at its exit"])
def test_the_end_of_the_event_loop_lets_the_run_go(any_journal: RunJournal, place: str) -> None:
    kept: list[asyncio.Task[Any]] = []

    async def main() -> None:
        begun, never = asyncio.Event(), asyncio.Event()

        async def hangs() -> None:
            begun.set()
            await never.wait()

        async def agent() -> None:
            async with AsyncDurableRun(any_journal, "r") as run:
                kept.append(asyncio.create_task(run.tool("t", {}, hangs)))
                await begun.wait()
                if place == "in its loop":
                    await never.wait()

        kept.append(asyncio.create_task(agent()))
        await begun.wait()
        await asyncio.sleep(0.01)

    asyncio.run(main())
    assert [task.cancelled() for task in kept] == [True, True]
    assert any_journal.interrupted_runs() == ["r"]
    assert [step.tool for step in any_journal.uncertain("r")] == ["t"]


def test_an_interrupted_exit_lets_the_run_go(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    end = threading.Event()

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with ThreadPoolExecutor(1) as pool:
        run = DurableRun(journal, "r")
        future = run.submit(pool, "t", {}, partial(end.wait, 60))
        monkeypatch.setattr(run._returned, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            run.__exit__(None, None, None)
        assert journal.interrupted_runs() == ["r"]
        end.set()
        assert isinstance(future.exception(), TurnBusyError)


def test_steps_that_a_shut_down_pool_never_runs_are_not_waited_for(journal: RunJournal) -> None:
    """`concurrent.futures.wait` would wait for ever; and a replay would run what was cancelled here."""
    end = threading.Event()
    pool = ThreadPoolExecutor(1)

    def shut_down() -> None:
        pool.shutdown(wait=False, cancel_futures=True)
        end.set()

    with DurableRun(journal, "r") as run:
        run.submit(pool, "first", {}, partial(end.wait, 60))
        second = run.submit(pool, "second", {}, lambda: "never")
        threading.Timer(0.02, shut_down).start()
    assert second.cancelled()
    assert journal.replay_index("r")[0, KIND_TOOL_RESULT] == {"result": True}
    assert journal.interrupted_runs() == ["r"]


def test_a_cancelled_step_in_a_thread_cuts_the_drive_short(journal: RunJournal) -> None:
    end = threading.Event()
    with ThreadPoolExecutor(1) as pool, DurableRun(journal, "r") as run:
        run.submit(pool, "first", {}, partial(end.wait, 60))
        assert run.submit(pool, "second", {}, lambda: "never").cancel()
        end.set()
        with pytest.raises(JournalConflictError, match="cut short"):
            run.iteration(0)
    assert journal.last_iteration("r") is None


def test_a_steps_thread_is_in_the_callers_context(journal: RunJournal) -> None:
    """So that a step of an outer run is refused there too, and a trace goes on."""
    with ThreadPoolExecutor(1) as pool, DurableRun(journal, "outer") as outer:

        def inner() -> None:
            with DurableRun(journal, "inner") as run:
                run.submit(pool, "t", {}, outer.now).result()

        with pytest.raises(InvalidJournalError, match="inside of another step's function"):
            outer.tool("inner", {}, inner)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
@pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")
def test_a_forked_child_waits_for_no_thread_of_its_parent(journal: RunJournal) -> None:
    end = threading.Event()
    with ThreadPoolExecutor(1) as pool, DurableRun(journal, "r") as run:
        future = run.submit(pool, "t", {}, partial(end.wait, 100))
        child = os.fork()
        if child == 0:
            run.__exit__(None, None, None)
            os._exit(0)
        until = time.monotonic() + 60
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < until:
            time.sleep(0.01)
        if ended[0] == 0:
            os.kill(child, 9)
        end.set()
        assert ended == (child, 0)
        assert future.result() is True


def test_tools_in_every_thread_do_not_hold_up_the_record(path: Path) -> None:
    """Where a record is flushed to the disk in a thread, that is one of the journal's own."""

    async def main() -> None:
        end = threading.Event()

        async def tool() -> None:
            end.set()

        async def free(run: AsyncDurableRun) -> None:
            await asyncio.sleep(0.05)
            await run.tool("free", {}, tool)

        async with AsyncDurableRun(journal, "r") as run:
            waiting = [run.tool("wait", {"n": n}, lambda n: end.wait(30)) for n in range(3)]
            assert (await asyncio.gather(free(run), *waiting))[1:] == [True] * 3

    async def with_few_threads() -> None:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(3))
        await main()

    with RunJournal(path, durability="power") as journal:
        asyncio.run(with_few_threads())
        assert journal.uncertain("r") == []
