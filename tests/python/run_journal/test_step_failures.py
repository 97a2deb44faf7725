"""Tools and models that fail: replayed when the loop went on, else tried again. run-journal.md, section 4."""

from __future__ import annotations

import asyncio
import pickle
from concurrent.futures import ThreadPoolExecutor, wait
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.run_journal.forms import Form, Tool, drive, interrupt

from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalConflictError,
    JournalStoreError,
    RecordedToolError,
    ReplayDivergenceError,
)
from turn_journal_runtime.run_journal import KIND_TOOL_CALL, KIND_TOOL_RESULT, DurableRun, JournalEvent
from turn_journal_runtime.run_journal.ending import hold

if TYPE_CHECKING:
    from collections.abc import Iterator

    from turn_journal_runtime.run_journal import (
        RunJournal,
    )


# Failures


def test_a_failure_that_the_loop_went_on_after_is_raised_again(form: Form, any_journal: RunJournal) -> None:
    tool = Tool(error=ValueError("no such city"))

    async def loop(run: Any) -> tuple[str, str]:
        try:
            await run.tool("weather", {}, tool)
        except ValueError as error:
            return str(error), await run.model(Tool("then ask"))
        raise AssertionError("it did not fail")

    interrupt(form, any_journal, "r", loop)
    assert drive(form, any_journal, "r", loop) == ("no such city", "then ask")
    assert len(tool.calls) == 1
    assert any_journal.uncertain("r") == []


@pytest.mark.parametrize(
    "error",
    [
        ValueError("v"),
        KeyError("k"),
        OSError(2, "no file"),
        TimeoutError("late"),
        RuntimeError(""),
        InvalidJournalError("j"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_recorded_failure_has_the_type_and_text_that_it_had(
    form: Form, journal: RunJournal, error: Exception
) -> None:
    caught: list[Exception] = []

    async def loop(run: Any) -> None:
        try:
            await run.tool("t", {}, Tool(error=error))
        except Exception as found:
            caught.append(found)
        await run.iteration(0)

    interrupt(form, journal, "r", loop)
    drive(form, journal, "r", loop)
    live, replayed = caught
    assert (type(live), str(live)) == (type(error), str(error))
    assert isinstance(replayed, RecordedToolError)
    assert isinstance(replayed, type(error))
    assert str(replayed) == str(error)
    assert replayed.details["seq"] == 0
    again = pickle.loads(pickle.dumps(replayed))  # noqa: S301 - made here
    assert (type(again).__mro__[2:], str(again), again.details) == (
        type(replayed).__mro__[2:],
        str(replayed),
        replayed.details,
    )


class NeedsMore(Exception):
    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} and {two}")


class Reads(Exception):
    def __init__(self, told: bytes) -> None:
        super().__init__(told.decode())


@pytest.mark.parametrize("error", [NeedsMore(1, 2), Reads(b"1 and 2")], ids=lambda error: type(error).__name__)
def test_a_failure_whose_type_cannot_be_made_again_keeps_its_name(
    form: Form, journal: RunJournal, error: Exception
) -> None:
    async def loop(run: Any) -> None:
        with pytest.raises((type(error), RecordedToolError)) as caught:
            await run.tool("t", {}, Tool(error=error))
        assert str(caught.value) == "1 and 2"
        if isinstance(caught.value, RecordedToolError):
            assert caught.value.details["error_type"].endswith(type(error).__name__)
        await run.iteration(0)

    interrupt(form, journal, "r", loop)
    drive(form, journal, "r", loop)


def test_a_models_failure_is_recorded_too(form: Form, journal: RunJournal) -> None:
    """Else a loop that retries with a new step would find its steps shifted on replay."""
    answers: Iterator[Any] = iter([TimeoutError("busy"), "answer"])
    asked: list[int] = []

    def model() -> Any:
        asked.append(1)
        answer = next(answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def loop(run: Any) -> Any:
        for _ in range(3):
            try:
                return await run.model(model, request={"p": 1})
            except TimeoutError:
                continue
        raise AssertionError

    interrupt(form, journal, "r", loop)
    assert (drive(form, journal, "r", loop), len(asked)) == ("answer", 2)


def test_a_model_that_failed_last_is_asked_again(form: Form, journal: RunJournal) -> None:
    async def fails(run: Any) -> None:
        await run.model(Tool(error=TimeoutError("busy")))

    with pytest.raises(TimeoutError):
        drive(form, journal, "r", fails)
    assert drive(form, journal, "r", lambda run: run.model(Tool("answer"))) == "answer"


def test_of_models_that_failed_one_after_another_only_the_last_is_asked_again(form: Form, journal: RunJournal) -> None:
    """Nothing but failures is on record: they count as steps that were taken."""
    asked: list[str] = []

    def model(name: str, works: bool) -> str:
        asked.append(name)
        if not works:
            raise TimeoutError(name)
        return name

    async def loop(run: Any, works: bool) -> Any:
        try:
            return await run.model(model, "large", False)
        except TimeoutError:
            return await run.model(model, "small", works)

    with pytest.raises(TimeoutError):
        drive(form, journal, "r", partial(loop, works=False))
    assert drive(form, journal, "r", partial(loop, works=True)) == "small"
    assert asked == ["large", "small", "small"]


def test_a_failed_step_is_compared_by_its_kind_too(form: Form, journal: RunJournal) -> None:
    async def fails(run: Any) -> None:
        await run.model(Tool(error=TimeoutError("busy")))

    with pytest.raises(TimeoutError):
        drive(form, journal, "r", fails)
    tool = Tool()
    with pytest.raises(ReplayDivergenceError):
        drive(form, journal, "r", lambda run: run.tool("t", {}, tool))
    assert tool.calls == []


def test_a_failure_of_a_run_that_is_given_up_stays_uncertain(journal: RunJournal) -> None:
    with pytest.raises(TimeoutError), DurableRun(journal, "r") as run:
        run.tool("t", {}, Tool(error=TimeoutError("late")))
    held = hold(journal, "r")
    assert held is not None
    held.end("failed")
    assert [step.tool for step in journal.uncertain("r")] == ["t"]


# Steps beside each other that fail at once


class Service:
    """What is down, and comes back."""

    def __init__(self) -> None:
        self.is_up = False
        self.calls: list[int] = []

    def __call__(self, n: int) -> int:
        self.calls.append(n)
        if not self.is_up:
            raise ConnectionError(f"refused {n}")
        return n

    async def asked(self, n: int) -> int:
        return self(n)


def test_submitted_steps_that_all_fail_at_once_are_all_tried_again(journal: RunJournal) -> None:
    """Those that were submitted after the first had failed were not submitted because of it."""
    service = Service()

    def loop() -> list[int]:
        with ThreadPoolExecutor() as pool, DurableRun(journal, "r") as run:
            steps = []
            for n in range(3):
                steps.append(run.submit(pool, "call", {"n": n}, service, restart_safe=True))
                wait(steps)
            return [step.result() for step in steps]

    with pytest.raises(ConnectionError, match="refused 0"):
        loop()
    assert [step.seq for step in journal.uncertain("r")] == [0, 1, 2]
    service.is_up = True
    assert (loop(), sorted(service.calls)) == ([0, 1, 2], [0, 0, 1, 1, 2, 2])


@pytest.mark.parametrize("ask", ["result", "exception"])
def test_a_failure_of_a_submitted_step_that_the_loop_asked_for_and_went_on_after_is_raised_again(
    journal: RunJournal, ask: str
) -> None:
    service = Service()

    def loop(stops: bool) -> str:
        with ThreadPoolExecutor() as pool, DurableRun(journal, "r") as run:
            step = run.submit(pool, "call", {"n": 0}, service, restart_safe=True)
            for _ in range(2):
                try:
                    failure = getattr(step, ask)()
                except ConnectionError as error:
                    failure = error
            run.iteration(1)
            if stops:
                raise KeyboardInterrupt
            return str(failure)

    with pytest.raises(KeyboardInterrupt):
        loop(stops=True)
    service.is_up = True
    assert journal.uncertain("r") == []
    assert (loop(stops=False), service.calls) == ("refused 0", [0])


def test_a_loop_does_not_go_on_after_a_failure_of_which_it_cannot_be_noted_that_it_knows(
    journal: RunJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    full = JournalStoreError("no space is left", details={})

    def refuse(*_: Any) -> None:
        raise full

    with ThreadPoolExecutor() as pool, DurableRun(journal, "r") as run:
        step = run.submit(pool, "call", {"n": 0}, Service())
        wait([step])
        monkeypatch.setattr(type(run._drive), "went_on", refuse)
        with pytest.raises(JournalStoreError, match="no space"):
            step.result()
        with pytest.raises(JournalStoreError, match="no space"):
            run.iteration(1)
    assert [step.tool for step in journal.uncertain("r")] == ["call"]


def test_a_failure_that_nobody_asked_for_is_what_the_loop_ended_after(journal: RunJournal) -> None:
    with ThreadPoolExecutor() as pool, DurableRun(journal, "r") as run:
        step = run.submit(pool, "call", {"n": 0}, Service())
    assert journal.uncertain("r") == []
    with pytest.raises(ConnectionError, match="refused 0"):
        step.result()


def test_tasks_whose_steps_all_fail_at_once_are_all_tried_again(any_journal: RunJournal) -> None:
    service = Service()

    async def loop(run: Any) -> list[int]:
        async def branch(n: int) -> int:
            found: int = await run.tool("call", {"n": n}, service.asked, restart_safe=True)
            return found

        return await asyncio.gather(*map(branch, range(3)))

    with pytest.raises(ConnectionError, match="refused"):
        drive("async", any_journal, "r", loop)
    assert [step.seq for step in any_journal.uncertain("r")] == [0, 1, 2]
    service.is_up = True
    assert (drive("async", any_journal, "r", loop), sorted(service.calls)) == ([0, 1, 2], [0, 0, 1, 1, 2, 2])


def test_what_was_recorded_before_a_failure_does_not_follow_from_it(journal: RunJournal) -> None:
    """The steps beside it are on record from a drive before, and this one did not come to them."""
    service = Service()
    journal.open_run("r")
    for seq, tool in enumerate("abc"):
        key = f"r:{seq}:{tool}"
        journal.append(JournalEvent("r", seq, KIND_TOOL_CALL, {"name": tool, "args": {"n": 0}, "idempotency_key": key}))
    journal.append(JournalEvent("r", 2, KIND_TOOL_RESULT, {"result": "c"}))

    async def fails_late(n: int) -> int:
        await asyncio.sleep(0.02)
        return service(n)

    async def loop(run: Any) -> list[Any]:
        async def branch(tool: str) -> Any:
            return await run.tool(tool, {"n": 0}, fails_late, restart_safe=tool == "a")

        found = await asyncio.gather(*map(branch, "abc"), return_exceptions=True)
        for one in found:
            if isinstance(one, Exception):
                raise one
        return found

    with pytest.raises(ConnectionError):
        drive("async", journal, "r", loop)
    assert service.calls == [0], "the second is in doubt, which stops the drive before the third"
    journal.settle("r", 1, result="b")
    service.is_up = True
    assert drive("async", journal, "r", loop) == [0, "b", "c"]


def test_a_step_that_no_pool_takes_cuts_the_drive_short(journal: RunJournal) -> None:
    """It has its number: a replay with a pool that takes it would take it after those that follow."""
    pool = ThreadPoolExecutor()
    pool.shutdown()
    with DurableRun(journal, "r") as run:
        with pytest.raises(RuntimeError, match="shutdown"):
            run.submit(pool, "call", {"n": 0}, Service())
        with pytest.raises(JournalConflictError, match="cut short"):
            run.iteration(0)
    assert (journal.events("r"), journal.interrupted_runs()) == ([], ["r"])
