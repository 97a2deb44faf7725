"""Tools and models that fail: replayed when the loop went on, else tried again. run-journal.md, section 4."""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.run_journal.forms import Form, Tool, drive, interrupt

from turn_journal_runtime.errors import (
    InvalidJournalError,
    RecordedToolError,
    ReplayDivergenceError,
)

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
