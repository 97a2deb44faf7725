"""Steps that end without an outcome on record: what a loop did after one, no replay would do again. run-journal.md,
section 4."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.run_journal.forms import Form, Killed, drive, interrupt

from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalConflictError,
    JournalCorruptError,
    JournalStoreError,
    RecordedToolError,
    ReplayDivergenceError,
    TurnSuspended,
    UncertainEffectError,
)
from turn_journal_runtime.run_journal import (
    KIND_TOOL_CALL,
    KIND_TOOL_RESULT,
    AsyncDurableRun,
    Committed,
    DurableRun,
    RunJournal,
    current_idempotency_key,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine

    from turn_journal_runtime.run_journal.drive import Drive


# Cancelled, interrupted, not recorded


@pytest.mark.parametrize("step", ["model", "tool"])
def test_a_time_out_around_a_step_ends_the_drive(journal: RunJournal, step: str) -> None:
    """The next drive takes the step again, and it may be in time: then whatever the loop had done without its answer
    would stand in the way for ever."""
    asked: list[bool] = []

    async def loop(run: AsyncDurableRun, is_late: bool) -> Any:
        async def answer() -> str:
            asked.append(is_late)
            if is_late:
                limit.reschedule(asyncio.get_running_loop().time() + 0.01)
                await asyncio.sleep(60)
            return "in time"

        try:
            async with asyncio.timeout(None) as limit:
                if step == "model":
                    return await run.model(answer)
                return await run.tool("look", {}, answer, restart_safe=True)
        except TimeoutError:
            return await run.model(lambda: "the other model")

    with pytest.raises(JournalConflictError, match=r"cut short by asyncio\.exceptions\.CancelledError") as caught:
        drive("async", journal, "r", partial(loop, is_late=True))
    assert caught.value.details == {"run_id": "r", "error_type": "asyncio.exceptions.CancelledError"}
    assert journal.interrupted_runs() == ["r"]
    assert drive("async", journal, "r", partial(loop, is_late=False)) == "in time"
    assert asked == [True, False]


@pytest.mark.parametrize("how", ["cancelled", "wait_for"])
@pytest.mark.parametrize("step", ["tool", "model", "now", "sleep"])
def test_a_step_that_is_cancelled_before_it_begins_ends_the_drive(journal: RunJournal, how: str, step: str) -> None:
    """It has its number: a replay that is in time would take it after what follows it."""

    async def loop(run: AsyncDurableRun, is_late: bool) -> list[Any]:
        steps: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
            "tool": partial(run.tool, "t", {}, lambda: "in time"),
            "model": partial(run.model, lambda: "in time"),
            "now": run.now,
            "sleep": partial(run.sleep, 0),
        }
        task = asyncio.create_task(steps[step]())
        if is_late and how == "cancelled":
            task.cancel()
        with suppress(asyncio.CancelledError, TimeoutError):
            await (asyncio.wait_for(task, 0) if is_late and how == "wait_for" else task)
        return [await run.iteration(1)]

    with pytest.raises(JournalConflictError, match=r"cut short by .*CancelledError"):
        drive("async", journal, "r", partial(loop, is_late=True))
    assert journal.events("r") == []
    assert drive("async", journal, "r", partial(loop, is_late=False)) == [1]


async def _swallowed(step: asyncio.Task[Any]) -> str:
    step.cancel()
    try:
        return str(await step)
    except asyncio.CancelledError:
        return "cancelled"


def test_a_step_on_record_may_be_cancelled_before_it_is_replayed(journal: RunJournal) -> None:
    """What the loop does then is held to the record like anything else."""

    def breaks() -> None:
        raise ValueError("no")

    async def first(run: AsyncDurableRun) -> None:
        await run.tool("t", {}, lambda: 1)
        with suppress(ValueError):
            await run.tool("u", {}, breaks)
        await run.now()
        await run.model(lambda: 2)
        await run.approval("go on?")

    async def loop(run: AsyncDurableRun) -> list[Any]:
        steps: list[Coroutine[Any, Any, Any]] = [
            run.tool("t", {}, lambda: 1),
            run.tool("u", {}, breaks),
            run.now(),
            run.model(lambda: 2),
            run.approval("go on?"),
        ]
        cancelled = [await _swallowed(asyncio.create_task(step)) for step in steps]
        return [*cancelled, await run.iteration(1)]

    with pytest.raises(TurnSuspended):
        drive("async", journal, "r", first)
    with pytest.raises(JournalConflictError, match="cut short"):
        drive("async", journal, "r", loop)  # the question has no answer yet
    journal.approve("r", 4, True, by="me")
    assert drive("async", journal, "r", loop) == [*["cancelled"] * 5, 1]


def test_a_step_on_record_may_be_cancelled_before_its_thread_replays_it(journal: RunJournal) -> None:
    def loop(run: DurableRun, is_replay: bool) -> int:
        end = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            # A thread that is at something else.
            pool.submit(end.wait, 10)
            step = run.submit(pool, "t", {}, lambda: 1)
            if is_replay:
                step.cancel()
            end.set()
        return run.iteration(1)

    interrupt("sync", journal, "r", lambda run: _done(loop(run._run, is_replay=False)))
    with DurableRun(journal, "r") as run:
        assert loop(run, is_replay=True) == 1


async def _done(value: Any) -> Any:
    return value


def test_a_time_out_in_a_function_is_a_failure_that_is_recorded(journal: RunJournal) -> None:
    asked: list[str] = []

    async def late() -> str:
        asked.append("late")
        async with asyncio.timeout(0.01):
            await asyncio.sleep(60)
        raise AssertionError

    async def loop(run: AsyncDurableRun, dies: bool) -> Any:
        try:
            found: Any = await run.tool("look", {}, late)
        except TimeoutError:
            found = await run.model(lambda: asked.append("other"))
        if dies:
            raise Killed
        return found

    with pytest.raises(Killed):
        drive("async", journal, "r", partial(loop, dies=True))
    assert drive("async", journal, "r", partial(loop, dies=False)) is None
    assert asked == ["late", "other"]


@pytest.mark.parametrize("step", ["model", "tool"])
def test_a_loop_that_swallows_an_interruption_does_not_go_on(form: Form, journal: RunJournal, step: str) -> None:
    ran: list[str] = []

    def interrupted() -> None:
        raise Killed

    async def loop(run: Any) -> None:
        with pytest.raises(Killed):
            await (run.model(interrupted) if step == "model" else run.tool("t", {}, interrupted))
        await run.tool("next", {}, lambda: ran.append("next"))

    with pytest.raises(JournalConflictError, match=r"cut short by .*Killed"):
        drive(form, journal, "r", loop)
    assert (ran, journal.interrupted_runs()) == ([], ["r"])


@pytest.mark.parametrize("kind", [KIND_TOOL_CALL, KIND_TOOL_RESULT])
def test_a_loop_that_swallows_a_full_disk_does_not_go_on(
    form: Form, journal: RunJournal, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    ran: list[str] = []

    async def loop(run: Any) -> None:
        await run.iteration(0)
        cls = type(run._drive)
        insert = cls.insert

        def full(self: Drive, seq: int, recorded: str, *rest: Any) -> None:
            if recorded == kind:
                raise JournalStoreError("full", kind="store_full")
            insert(self, seq, recorded, *rest)

        with monkeypatch.context() as patched:
            patched.setattr(cls, "insert", full)
            with pytest.raises(JournalStoreError):
                await run.tool("pay", {}, lambda: ran.append("paid"))
        await run.iteration(1)

    with pytest.raises(JournalStoreError):
        drive(form, journal, "r", loop)
    assert ran == (["paid"] if kind == KIND_TOOL_RESULT else [])
    assert [step.tool for step in journal.uncertain("r")] == (["pay"] if kind == KIND_TOOL_RESULT else [])
    assert journal.interrupted_runs() == ["r"]


def test_a_loop_that_swallows_a_readbacks_failure_does_not_go_on(form: Form, journal: RunJournal) -> None:
    def dies() -> None:
        raise Killed

    def lost(key: str) -> None:
        raise ConnectionError(key)

    async def loop(run: Any) -> None:
        try:
            await run.tool("pay", {}, dies, readback=lost)
        except ConnectionError:
            await run.iteration(1)

    with pytest.raises(Killed):
        drive(form, journal, "r", loop)
    with pytest.raises(JournalConflictError, match="cut short by ConnectionError"):
        drive(form, journal, "r", loop)
    assert [event.kind for event in journal.events("r")] == [KIND_TOOL_CALL]


def endless() -> list[Any]:
    """What has no form in JSON."""
    value: list[Any] = []
    value.append(value)
    return value


def test_a_loop_that_swallows_a_readbacks_odd_result_does_not_go_on(form: Form, journal: RunJournal) -> None:
    """The effect has happened, and nothing on record says so."""

    def dies() -> None:
        raise Killed

    def found(key: str) -> Committed:
        return Committed(endless())

    async def loop(run: Any) -> None:
        with suppress(InvalidJournalError):
            await run.tool("pay", {}, dies, readback=found)
        await run.iteration(1)

    with pytest.raises(Killed):
        drive(form, journal, "r", loop)
    with pytest.raises(InvalidJournalError, match="contains itself"):
        drive(form, journal, "r", loop)
    assert [event.kind for event in journal.events("r")] == [KIND_TOOL_CALL]


@pytest.mark.parametrize("kind", ["iteration", "model_decision", "tool_call", "tool_result", "approval"])
def test_a_loop_that_swallows_a_damaged_row_does_not_go_on(form: Form, journal: RunJournal, kind: str) -> None:
    async def loop(run: Any, dies: bool) -> None:
        steps: list[Callable[[], Awaitable[Any]]] = [
            partial(run.iteration, 0),
            partial(run.model, lambda: "a"),
            partial(run.tool, "t", {}, lambda: 1),
            partial(run.approval, "Go?"),
        ]
        for step in steps:
            with suppress(JournalCorruptError):
                await step()
        if dies:
            raise Killed
        await run.iteration(1)

    with pytest.raises(TurnSuspended):
        drive(form, journal, "r", partial(loop, dies=True))
    journal.approve("r", 3, True, by="me")
    with pytest.raises(Killed):
        drive(form, journal, "r", partial(loop, dies=True))
    journal._database.write(f"UPDATE journal SET payload = '{{' WHERE kind = '{kind}'", ())  # noqa: S608
    with pytest.raises(JournalCorruptError, match=kind):
        drive(form, journal, "r", partial(loop, dies=False))
    assert journal.last_iteration("r") in (0, None)


@pytest.mark.parametrize("step", ["model", "tool"])
def test_a_loop_may_go_on_after_what_cannot_be_recorded_and_replays(form: Form, journal: RunJournal, step: str) -> None:
    """Asked again, or run again, it would come again."""
    ran: list[str] = []

    def answer() -> list[Any]:
        ran.append(step)
        return endless()

    async def loop(run: Any, dies: bool) -> str:
        with pytest.raises(InvalidJournalError, match="contains itself"):
            await (run.model(answer) if step == "model" else run.tool("t", {}, answer))
        found = str(await run.model(lambda: "went on"))
        if dies:
            raise Killed
        return found

    with pytest.raises(Killed):
        drive(form, journal, "r", partial(loop, dies=True))
    assert drive(form, journal, "r", partial(loop, dies=False)) == "went on"
    assert ran == [step]


# A run inside of a step


def test_a_question_of_an_inner_run_suspends_the_outer_one(form: Form, journal: RunJournal) -> None:
    """Not even a loop that hands every failure to its model may take it for one."""

    def research(topic: str) -> str:
        with DurableRun(journal, current_idempotency_key() or "") as inner:
            return f"{topic}: {inner.approval('May I?')}"

    async def loop(run: Any) -> Any:
        try:
            found = await run.tool("research", {"topic": "x"}, research, restart_safe=True)
        except Exception as error:
            found = f"the tool failed: {error}"
        return await run.model(lambda: found)

    for _ in range(3):
        with pytest.raises(TurnSuspended):
            drive(form, journal, "r", loop, max_resumes=0)
    (waiting,) = journal.pending_approvals()
    assert (waiting.run_id, waiting.seq) == ("r:0:research", 0)
    journal.approve(waiting.run_id, waiting.seq, "yes", by="me")
    assert drive(form, journal, "r", loop, max_resumes=0) == "x: yes"
    assert journal.interrupted_runs() == []


@pytest.mark.parametrize("step", ["model", "tool"])
def test_a_step_inside_of_a_steps_function_is_refused(journal: RunJournal, step: str) -> None:
    """It would work until the run is replayed, which does not call the function: then its record is in the way."""

    def loop(run: DurableRun) -> Any:
        with pytest.raises(InvalidJournalError, match="inside of another step's function"):
            _ = run.model(run.now) if step == "model" else run.tool("t", {}, run.now)
        return run.tool("next", {}, lambda: "went on")

    for _ in range(2):
        with DurableRun(journal, "r") as run:
            assert loop(run) == "went on"
    assert len(journal.events("r")) == (2 if step == "model" else 3)


@pytest.mark.parametrize("step", ["model", "tool"])
def test_an_async_step_inside_of_a_steps_function_is_refused(journal: RunJournal, step: str) -> None:
    async def loop(run: AsyncDurableRun) -> Any:
        async def inner() -> float:
            return await run.now()

        with pytest.raises(InvalidJournalError, match="inside of another step's function"):
            _ = await (run.model(inner) if step == "model" else run.tool("t", {}, inner))
        return await run.tool("next", {}, lambda: "went on")

    for _ in range(2):
        assert drive("async", journal, "r", loop) == "went on"
    assert len(journal.events("r")) == (2 if step == "model" else 3)


@pytest.mark.parametrize("stop", [UncertainEffectError, ReplayDivergenceError, TurnSuspended])
@pytest.mark.parametrize("step", ["model", "tool"])
def test_an_inner_run_that_stops_is_no_failure_of_the_step(
    form: Form, journal: RunJournal, stop: type[Exception], step: str
) -> None:
    caught: list[type[Exception]] = []

    def inner() -> None:
        raise stop("the inner run has stopped")

    async def loop(run: Any, work: Any) -> Any:
        try:
            return await (run.model(work) if step == "model" else run.tool("t", {}, work, restart_safe=True))
        except RecordedToolError:
            return "taken for a failure"
        except Exception as error:
            caught.append(type(error))
            return await run.iteration(1)

    with pytest.raises(stop):
        drive(form, journal, "r", partial(loop, work=inner))
    assert caught == [stop]
    assert all(step.error_type is None for step in journal.uncertain("r"))
    assert drive(form, journal, "r", partial(loop, work=lambda: "done")) == "done"
