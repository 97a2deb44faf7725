"""Another step than the recorded one is refused, and says what differs. run-journal.md, section 4."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.run_journal.forms import Form, Tool, drive, interrupt

from turn_journal_runtime.errors import (
    InvalidJournalError,
    ReplayDivergenceError,
)
from turn_journal_runtime.run_journal import DurableRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from turn_journal_runtime.run_journal import (
        RunJournal,
    )


# Divergence


async def recorded_loop(run: Any, change: Callable[[Any], Awaitable[Any]] | None = None) -> None:
    await run.tool("search", {"q": "a", "n": 1}, Tool("found"))
    await (change(run) if change is not None else run.tool("pay", {"to": "ann", "sum": {"eur": 5}}, Tool("paid")))


CHANGES: list[tuple[Callable[[Any, Tool], Awaitable[Any]], list[str], str]] = [
    (lambda run, tool: run.tool("refund", {"to": "ann", "sum": {"eur": 5}}, tool), ["name"], "tool_call"),
    (lambda run, tool: run.tool("pay", {"to": "bob", "sum": {"eur": 5}}, tool), ["args.to"], "tool_call"),
    (lambda run, tool: run.tool("pay", {"to": "ann", "sum": {"eur": 6}}, tool), ["args.sum.eur"], "tool_call"),
    (lambda run, tool: run.tool("pay", {"to": "ann", "sum": {"eur": True}}, tool), ["args.sum.eur"], "tool_call"),
    (lambda run, tool: run.tool("pay", {"to": "ann"}, tool), ["args.sum"], "tool_call"),
    (lambda run, tool: run.tool("pay", {"to": "ann", "sum": {"eur": 5}, "x": None}, tool), ["args.x"], "tool_call"),
    (lambda run, tool: run.tool("pay", ["ann"], tool), ["args"], "tool_call"),
    (lambda run, tool: run.model(tool), ["kind"], "tool_call"),
    (lambda run, tool: run.approval("pay?"), ["kind"], "tool_call"),
    (lambda run, tool: run.iteration(1), ["kind"], "tool_call"),
    (lambda run, tool: run.verification("v", True), ["kind"], "tool_call"),
    (lambda run, tool: run.now(), ["kind"], "tool_call"),
]


@pytest.mark.parametrize(("change", "fields", "kind"), CHANGES)
def test_another_step_than_the_recorded_one_is_refused(
    form: Form,
    journal: RunJournal,
    change: Callable[[Any, Tool], Awaitable[Any]],
    fields: list[str],
    kind: str,
) -> None:
    interrupt(form, journal, "r", recorded_loop)
    before = journal.events("r")
    tool = Tool()
    with pytest.raises(ReplayDivergenceError) as caught:
        drive(form, journal, "r", partial(recorded_loop, change=lambda run: change(run, tool)))
    details = caught.value.details
    assert (details["seq"], details["fields"], details["recorded"]["kind"]) == (1, fields, kind)
    assert details["recorded"]["name"] == "pay"
    assert isinstance(caught.value, RuntimeError)
    assert ", ".join(fields) in str(caught.value)
    assert "eur" not in str(caught.value).replace("args.sum.eur", ""), "no bodies in messages"
    assert (tool.calls, journal.events("r")) == ([], before), "nothing ran and the record is untouched"
    drive(form, journal, "r", recorded_loop)


def test_equal_values_are_equal_whatever_their_form(form: Form, journal: RunJournal) -> None:
    async def loop(run: Any, args: dict[str, Any]) -> Any:
        return await run.tool("t", args, lambda **_: "ran")

    interrupt(form, journal, "r", partial(loop, args={"a": 1, "b": (1, 2), "c": None}))
    assert drive(form, journal, "r", partial(loop, args={"c": None, "b": [1.0, 2], "a": 1.0})) == "ran"
    assert len(journal.events("r")) == 2


def test_nothing_is_told_apart_from_no_number(form: Form, journal: RunJournal) -> None:
    """A quick look at the record, by its text, must not take NaN for null."""
    tool = Tool("ran")
    interrupt(form, journal, "r", lambda run: run.tool("t", {"x": None}, tool))
    with pytest.raises(ReplayDivergenceError) as caught:
        drive(form, journal, "r", lambda run: run.tool("t", {"x": float("nan")}, tool))
    assert caught.value.details["fields"] == ["args.x"]
    assert drive(form, journal, "r", lambda run: run.tool("t", {"x": None}, tool)) == "ran"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (lambda run: run.iteration(1), lambda run: run.iteration(2)),
        (lambda run: run.verification("a", True), lambda run: run.verification("b", True)),
        (lambda run: run.now(), lambda run: run.random()),
        (lambda run: run.uuid(), lambda run: run.tool("uuid", {}, lambda: 1)),
        (lambda run: run.model(lambda: 1), lambda run: run.iteration(1)),
    ],
)
def test_every_kind_of_step_is_compared(form: Form, journal: RunJournal, first: Any, second: Any) -> None:
    interrupt(form, journal, "r", first)
    with pytest.raises(ReplayDivergenceError):
        drive(form, journal, "r", second)
    drive(form, journal, "r", first)


def test_steps_that_were_issued_beside_one_that_diverges_are_not_begun(form: Form, journal: RunJournal) -> None:
    """Nothing is run, and the record stays as it is."""
    tool = Tool()
    interrupt(form, journal, "r", lambda run: run.iteration(0))
    before = list(journal.export("r"))

    if form == "async":

        async def together(run: Any) -> None:
            beside = [run.tool("t", {"n": n}, tool) for n in range(3)]
            found = await asyncio.gather(*beside, return_exceptions=True)
            assert [type(one) for one in found] == [ReplayDivergenceError] * 3

        drive(form, journal, "r", together)
    else:
        with ThreadPoolExecutor(1) as pool, DurableRun(journal, "r") as run:
            issued = threading.Event()
            pool.submit(issued.wait)
            steps = [run.submit(pool, "t", {"n": n}, tool) for n in range(3)]
            issued.set()
            for step in steps:
                with pytest.raises(ReplayDivergenceError):
                    step.result()
    assert tool.calls == []
    assert list(journal.export("r"))[1:-1] == before[1:-1]


def test_after_a_divergence_the_drive_takes_no_further_step(form: Form, journal: RunJournal) -> None:
    """A loop that swallows the refusal must not go on from a record it does not follow, nor close the run."""
    tool = Tool()

    interrupt(form, journal, "r", lambda run: run.iteration(0))

    async def one_by_one(run: Any) -> None:
        with pytest.raises(ReplayDivergenceError):
            await run.iteration(9)
        with pytest.raises(ReplayDivergenceError):
            await run.tool("t", {}, tool)

    drive(form, journal, "r", one_by_one)
    assert (tool.calls, journal.interrupted_runs()) == ([], ["r"])

    async def finishing(run: Any) -> None:
        with pytest.raises(ReplayDivergenceError):
            await run.iteration(9)
        await run.finish("succeeded")

    with pytest.raises(ReplayDivergenceError):
        drive(form, journal, "r", finishing)
    assert journal.interrupted_runs() == ["r"]


# Models


def test_a_changed_request_is_a_divergence_that_names_what_changed(form: Form, journal: RunJournal) -> None:
    request = {"prompt": "p" * 1000, "model": "m", "tools": ["a"], "settings": {"t": 0.5}}

    async def loop(run: Any, **changed: Any) -> Any:
        return await run.model(Tool("answer"), request=request | changed)

    interrupt(form, journal, "r", loop)
    assert "p" * 100 not in str(journal.events("r")), "requests are recorded as digests"
    model = Tool("never")
    with pytest.raises(ReplayDivergenceError) as caught:
        drive(form, journal, "r", partial(loop, prompt="other", settings={"t": 1}))
    assert caught.value.details["fields"] == ["request.prompt", "request.settings"]
    assert model.calls == []
    assert drive(form, journal, "r", partial(loop, settings={"t": 0.5})) == "answer"


def test_a_changed_request_can_be_asked_again(form: Form, journal: RunJournal) -> None:
    async def loop(run: Any, prompt: str, answer: str) -> Any:
        return await run.model(Tool(answer), request={"prompt": prompt}, on_change="ask_again")

    interrupt(form, journal, "r", partial(loop, prompt="a", answer="one"))
    interrupt(form, journal, "r", partial(loop, prompt="a", answer="unused"))
    interrupt(form, journal, "r", partial(loop, prompt="b", answer="two"))
    interrupt(form, journal, "r", partial(loop, prompt="c", answer="three"))
    assert drive(form, journal, "r", partial(loop, prompt="c", answer="unused")) == "three"
    (event,) = journal.events("r")
    assert [old["response"] for old in event.payload["superseded"]] == ["one", "two"]


def test_an_unknown_way_to_change_is_refused(form: Form, journal: RunJournal) -> None:
    with pytest.raises(InvalidJournalError, match="on_change"):
        drive(form, journal, "r", lambda run: run.model(Tool(), on_change="guess"))
