"""Tool calls that may have happened: never run again by guess. run-journal.md, section 3."""

from __future__ import annotations

import asyncio
import pickle
from functools import partial
from typing import Any

import pytest
from tests.python.run_journal.forms import Form, Killed, drive

from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalConflictError,
    RunNotFoundError,
    UncertainEffectError,
)
from turn_journal_runtime.run_journal import (
    KIND_TOOL_CALL,
    Absent,
    AsyncDurableRun,
    Committed,
    JournalEvent,
    RunJournal,
    UncertainStep,
    Unknown,
    current_idempotency_key,
)


@pytest.fixture
def effects() -> list[str | None]:
    """The outside world: what the tool did, by key."""
    return []


def pay(effects: list[str | None], dies: bool = False, **_: Any) -> str:
    effects.append(current_idempotency_key())
    if dies:
        raise Killed
    return "receipt"


async def loop(run: Any, effects: list[str | None], dies: bool = False, **declared: Any) -> Any:
    await run.iteration(0)
    return await run.tool("pay", {"sum": 5}, partial(pay, effects, dies), **declared)


def kill_in_the_tool(form: Form, journal: RunJournal, effects: list[str | None], **declared: Any) -> None:
    with pytest.raises(Killed):
        drive(form, journal, "r", partial(loop, effects=effects, dies=True, **declared))


def test_an_undeclared_tool_is_not_run_again(form: Form, journal: RunJournal, effects: list[str | None]) -> None:
    kill_in_the_tool(form, journal, effects)
    for _ in range(2):
        with pytest.raises(UncertainEffectError) as caught:
            drive(form, journal, "r", partial(loop, effects=effects))
    assert effects == ["r:1:pay"]
    details = caught.value.details
    assert {k: details[k] for k in ("run_id", "seq", "tool", "idempotency_key")} == {
        "run_id": "r",
        "seq": 1,
        "tool": "pay",
        "idempotency_key": "r:1:pay",
    }
    assert details["choices"] == [
        "settle('r', 1, result=…)",
        "settle('r', 1, absent=True)",
        "declare the tool restart_safe=True",
        "declare a readback",
    ]
    assert "'r:1:pay'" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - made here
    assert (str(again), again.details, again.kind) == (str(caught.value), details, "effect_uncertain")


@pytest.mark.parametrize("name", ["read_file", "get_weather", "search", "list", "pay"])
def test_safety_is_never_guessed_from_a_name(form: Form, journal: RunJournal, name: str) -> None:
    ran: list[int] = []

    def tool() -> None:
        ran.append(1)
        raise Killed

    with pytest.raises(Killed):
        drive(form, journal, "r", lambda run: run.tool(name, {}, tool))
    with pytest.raises(UncertainEffectError):
        drive(form, journal, "r", lambda run: run.tool(name, {}, tool))
    assert len(ran) == 1


def test_a_restart_safe_tool_is_run_again_with_the_same_key(
    form: Form, journal: RunJournal, effects: list[str | None]
) -> None:
    kill_in_the_tool(form, journal, effects)
    assert drive(form, journal, "r", partial(loop, effects=effects, restart_safe=True)) == "receipt"
    assert effects == ["r:1:pay", "r:1:pay"]


def test_a_readback_that_finds_the_effect_is_taken_for_the_result(
    form: Form, journal: RunJournal, effects: list[str | None]
) -> None:
    asked: list[str] = []

    def readback(key: str) -> Committed:
        asked.append(key)
        return Committed({"found": key})

    kill_in_the_tool(form, journal, effects)
    for _ in range(2):
        found = drive(form, journal, "r", partial(loop, effects=effects, readback=readback))
        assert found == {"found": "r:1:pay"}
    assert (asked, effects) == (["r:1:pay"], ["r:1:pay"])


def test_a_readback_that_finds_nothing_lets_the_tool_run(
    form: Form, journal: RunJournal, effects: list[str | None]
) -> None:
    kill_in_the_tool(form, journal, effects)
    assert drive(form, journal, "r", partial(loop, effects=effects, readback=lambda _: Absent())) == "receipt"
    assert effects == ["r:1:pay", "r:1:pay"]


@pytest.mark.parametrize("answer", [Unknown(), None, True, "done"])
def test_a_readback_that_cannot_tell_decides_nothing(
    form: Form, journal: RunJournal, effects: list[str | None], answer: Any
) -> None:
    kill_in_the_tool(form, journal, effects)
    with pytest.raises(UncertainEffectError):
        drive(form, journal, "r", partial(loop, effects=effects, readback=lambda _: answer))
    assert effects == ["r:1:pay"]


def test_a_readback_that_fails_decides_nothing(form: Form, journal: RunJournal, effects: list[str | None]) -> None:
    def readback(key: str) -> Committed:
        raise ConnectionError(key)

    kill_in_the_tool(form, journal, effects)
    with pytest.raises(ConnectionError):
        drive(form, journal, "r", partial(loop, effects=effects, readback=readback))
    assert effects == ["r:1:pay"]
    assert [step.seq for step in journal.uncertain("r")] == [1]


def test_an_async_readback_is_awaited(journal: RunJournal, effects: list[str | None]) -> None:
    async def readback(key: str) -> Committed:
        return Committed(key)

    kill_in_the_tool("async", journal, effects)
    assert drive("async", journal, "r", partial(loop, effects=effects, readback=readback)) == "r:1:pay"


def test_a_readback_is_not_asked_about_a_step_that_is_on_record(form: Form, journal: RunJournal) -> None:
    def never(_: str) -> Committed:
        raise AssertionError

    async def fresh(run: Any) -> Any:
        return await run.tool("t", {}, lambda: 1, readback=never)

    assert drive(form, journal, "r", fresh) == drive(form, journal, "r", fresh) == 1


def test_an_uncertain_effect_keeps_its_key_in_a_fork(
    form: Form, journal: RunJournal, effects: list[str | None]
) -> None:
    """The outside knows it under the key that it was tried with."""
    kill_in_the_tool(form, journal, effects)
    for fork, declared in (("s", {"restart_safe": True}), ("t", {"readback": lambda key: Committed(key)})):
        journal.fork("r", fork, upto=1)
        assert [step.idempotency_key for step in journal.uncertain(fork)] == ["r:1:pay"]
        drive(form, journal, fork, partial(loop, effects=effects, **declared))
    assert effects == ["r:1:pay", "r:1:pay"]
    assert journal.replay_index("t")[1, "tool_result"] == {"result": "r:1:pay"}


# Settling


def test_uncertain_lists_the_open_calls(form: Form, journal: RunJournal, effects: list[str | None]) -> None:
    kill_in_the_tool(form, journal, effects)
    (step,) = journal.uncertain("r")
    created_at = next(event.created_at for event in journal.events("r") if event.kind == KIND_TOOL_CALL)
    assert step == UncertainStep("r", 1, "pay", {"sum": 5}, "r:1:pay", created_at)
    assert journal.uncertain("nobody") == []


def test_twins_stay_two_entries_with_two_keys(form: Form, journal: RunJournal) -> None:
    for seq in (0, 1):
        call = {"name": "pay", "args": {"sum": 5}, "idempotency_key": f"r:{seq}:pay"}
        journal.append(JournalEvent("r", seq, KIND_TOOL_CALL, call))
    journal.open_run("r")
    assert [(step.seq, step.idempotency_key) for step in journal.uncertain("r")] == [(0, "r:0:pay"), (1, "r:1:pay")]
    journal.settle("r", 0, result="first")
    assert [step.seq for step in journal.uncertain("r")] == [1]
    journal.settle("r", 1, result="second")

    async def twins(run: Any) -> list[Any]:
        return [await run.tool("pay", {"sum": 5}, lambda sum: "again") for _ in range(2)]

    assert drive(form, journal, "r", twins) == ["first", "second"]


def test_settling_with_a_result_makes_it_the_outcome(
    form: Form, journal: RunJournal, effects: list[str | None]
) -> None:
    kill_in_the_tool(form, journal, effects)
    journal.settle("r", 1, result={"receipt": 7})
    assert journal.uncertain("r") == []
    assert drive(form, journal, "r", partial(loop, effects=effects)) == {"receipt": 7}
    assert effects == ["r:1:pay"]


def test_none_is_a_result(form: Form, journal: RunJournal, effects: list[str | None]) -> None:
    kill_in_the_tool(form, journal, effects)
    journal.settle("r", 1, result=None)
    assert drive(form, journal, "r", partial(loop, effects=effects)) is None


def test_settling_as_absent_lets_it_run_once_more(form: Form, journal: RunJournal, effects: list[str | None]) -> None:
    kill_in_the_tool(form, journal, effects)
    journal.settle("r", 1, absent=True)
    assert journal.uncertain("r") == []
    kill_in_the_tool(form, journal, effects)
    assert effects == ["r:1:pay", "r:1:pay"]
    # The word held for one attempt; that one died too, and nobody has spoken of it.
    with pytest.raises(UncertainEffectError) as caught:
        drive(form, journal, "r", partial(loop, effects=effects))
    assert "attempt ended" not in str(caught.value)
    journal.settle("r", 1, absent=True)
    assert drive(form, journal, "r", partial(loop, effects=effects)) == "receipt"
    assert effects == ["r:1:pay"] * 3


def test_settling_again_is_harmless_and_otherwise_refused(
    form: Form, journal: RunJournal, effects: list[str | None]
) -> None:
    kill_in_the_tool(form, journal, effects)
    journal.settle("r", 1, absent=True)
    journal.settle("r", 1, absent=True)
    journal.settle("r", 1, result=(1, 2.0))
    journal.settle("r", 1, result=[1.0, 2])
    with pytest.raises(JournalConflictError):
        journal.settle("r", 1, result="other")
    with pytest.raises(JournalConflictError):
        journal.settle("r", 1, absent=True)
    assert drive(form, journal, "r", partial(loop, effects=effects)) == [1, 2.0]


@pytest.mark.parametrize("choice", [{}, {"result": 1, "absent": True}])
def test_settling_takes_one_choice(
    form: Form, journal: RunJournal, effects: list[str | None], choice: dict[str, Any]
) -> None:
    kill_in_the_tool(form, journal, effects)
    with pytest.raises(InvalidJournalError, match="one of the two"):
        journal.settle("r", 1, **choice)
    assert len(journal.uncertain("r")) == 1


@pytest.mark.parametrize(("run_id", "seq"), [("nobody", 0), ("r", 0), ("r", 99)])
def test_settling_what_was_never_begun_is_refused(
    form: Form, journal: RunJournal, effects: list[str | None], run_id: str, seq: int
) -> None:
    kill_in_the_tool(form, journal, effects)
    with pytest.raises(RunNotFoundError, match="No run 'nobody'" if run_id == "nobody" else "no tool call at step"):
        journal.settle(run_id, seq, result=1)


def test_a_step_settled_while_its_tool_runs_keeps_its_first_outcome(form: Form, journal: RunJournal) -> None:
    def tool() -> str:
        journal.settle("r", 0, result="settled")
        return "ran"

    with pytest.raises(JournalConflictError, match="settled while the tool ran"):
        drive(form, journal, "r", lambda run: run.tool("t", {}, tool))
    assert [event.payload for event in journal.events("r") if event.kind == "tool_result"] == [{"result": "settled"}]

    def same_tool() -> str:
        journal.settle("s", 0, result="ran")
        return "ran"

    assert drive(form, journal, "s", lambda run: run.tool("t", {}, same_tool)) == "ran"


# Failed attempts


def test_a_failure_that_was_the_last_word_is_tried_again_only_as_declared(form: Form, journal: RunJournal) -> None:
    effects: list[str | None] = []

    async def failing(run: Any, **declared: Any) -> Any:
        def tool() -> str:
            effects.append(current_idempotency_key())
            if len(effects) == 1:
                raise TimeoutError("no answer")
            return "worked"

        return await run.tool("pay", {}, tool, **declared)

    with pytest.raises(TimeoutError):
        drive(form, journal, "r", failing)
    (step,) = journal.uncertain("r")
    assert (step.error_type, step.message) == ("TimeoutError", "no answer")
    with pytest.raises(UncertainEffectError, match="ended with TimeoutError"):
        drive(form, journal, "r", failing)
    assert len(effects) == 1
    assert drive(form, journal, "r", partial(failing, restart_safe=True)) == "worked"
    assert effects == ["r:0:pay", "r:0:pay"]


def test_a_failure_that_the_run_went_on_after_cannot_be_settled(form: Form, journal: RunJournal) -> None:
    def fails() -> None:
        raise ValueError("no")

    async def going_on(run: Any) -> None:
        with pytest.raises(ValueError, match="no"):
            await run.tool("t", {}, fails)
        await run.iteration(1)

    drive(form, journal, "r", going_on)
    assert journal.uncertain("r") == []
    with pytest.raises(JournalConflictError, match="went on"):
        journal.settle("r", 0, result=1)


def test_a_failure_beside_a_parallel_step_is_not_taken_for_gone_on_after(journal: RunJournal) -> None:
    """The step beside it was issued before the failure: the loop has not decided anything on it yet."""

    async def main() -> None:
        done = asyncio.Event()

        async def fails() -> None:
            await done.wait()
            raise ConnectionError("lost")

        async def works() -> str:
            done.set()
            return "ok"

        async with AsyncDurableRun(journal, "r") as run:
            await asyncio.gather(run.tool("a", {}, fails), run.tool("b", {}, works))

    with pytest.raises(ConnectionError):
        asyncio.run(main())
    assert [step.tool for step in journal.uncertain("r")] == ["a"]


def test_a_model_in_flight_is_asked_again(form: Form, journal: RunJournal) -> None:
    asked: list[int] = []

    def model(dies: bool) -> str:
        asked.append(1)
        if dies:
            raise Killed
        return "answer"

    with pytest.raises(Killed):
        drive(form, journal, "r", lambda run: run.model(model, True))
    assert drive(form, journal, "r", lambda run: run.model(model, False)) == "answer"
    assert len(asked) == 2
