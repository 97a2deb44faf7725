"""Steps of a durable run, in both forms. run-journal.md, section 4."""

from __future__ import annotations

import asyncio
import gc
import pickle
import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import pytest
from tests.python.run_journal.forms import Form, drive

from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalConflictError,
    RecordedToolError,
    ReplayDivergenceError,
    ResumeBudgetExhaustedError,
    TurnSuspended,
)
from turn_journal_runtime.run_journal import (
    KIND_TOOL_CALL,
    AsyncDurableRun,
    AsyncTurnContext,
    DurableRun,
    RunJournal,
    TurnContext,
    current_idempotency_key,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

    from tests.python.run_journal.conftest import Address

T = TypeVar("T")


class Killed(BaseException):
    """What ends a drive as a crash would: nothing more is recorded."""


@pytest.fixture(params=["sync", "async"])
def form(request: pytest.FixtureRequest) -> Form:
    found: Form = request.param
    return found


@pytest.fixture(params=["process", "power"])
def any_journal(request: pytest.FixtureRequest, address: Address) -> Iterator[RunJournal]:
    """For what the async form does in another thread when a write is a flush."""
    with RunJournal(address, durability=request.param) as journal:
        yield journal


class Tool:
    """A tool that notes its calls and the keys it saw."""

    def __init__(self, result: Any = None, error: BaseException | None = None) -> None:
        self.calls: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self._result, self._error = result, error

    def __call__(self, **args: Any) -> Any:
        self.calls.append(args)
        self.keys.append(current_idempotency_key())
        if self._error is not None:
            raise self._error
        return self._result


async def killed_after(loop: Awaitable[Any]) -> None:
    await loop
    raise Killed


def interrupt(form: Form, journal: RunJournal, run_id: str, loop: Callable[[Any], Awaitable[Any]]) -> None:
    async def killed(run: Any) -> None:
        await loop(run)
        raise Killed

    with pytest.raises(Killed):
        drive(form, journal, run_id, killed)


def test_turn_context_is_the_durable_run() -> None:
    assert (TurnContext, AsyncTurnContext) == (DurableRun, AsyncDurableRun)


# Replay


def test_a_replay_returns_what_is_recorded_and_runs_nothing(form: Form, any_journal: RunJournal) -> None:
    model, tool = Tool({"say": "use it"}), Tool([1, 2.5, None, {"k": "ü"}])

    async def loop(run: Any) -> list[Any]:
        return [
            await run.iteration(3),
            await run.model(model, request={"prompt": "p"}),
            await run.tool("t", {"a": 1}, tool),
            await run.verification("tests", True, returncode=0),
            await run.now(),
            await run.random(),
            await run.uuid(),
        ]

    interrupt(form, any_journal, "r", loop)
    first = drive(form, any_journal, "r", loop)
    again = drive(form, any_journal, "r", loop)
    assert first == again
    assert (len(model.calls), tool.calls, any_journal.last_iteration("r")) == (1, [{"a": 1}], 3)
    assert first[:4] == [
        3,
        {"say": "use it"},
        [1, 2.5, None, {"k": "ü"}],
        {"name": "tests", "success": True, "returncode": 0},
    ]
    assert time.time() - 60 < first[4] <= time.time()
    assert 0 <= first[5] < 1
    assert str(uuid.UUID(first[6])) == first[6]


def test_real_work_starts_at_the_first_step_that_is_not_recorded(form: Form, journal: RunJournal) -> None:
    ran: list[int] = []

    async def loop(run: Any, steps: int) -> None:
        for number in range(steps):
            await run.tool("t", {"n": number}, lambda n: ran.append(n))

    interrupt(form, journal, "r", partial(loop, steps=3))
    drive(form, journal, "r", partial(loop, steps=5))
    assert ran == [0, 1, 2, 3, 4]


def test_the_live_loop_gets_what_a_replay_will_get(form: Form, journal: RunJournal) -> None:
    """Else a loop could decide on a tuple, an object or NaN that no later drive will ever see again."""
    results = [(1, 2), {3}, float("nan"), 10**30, {"k": (1,)}]

    async def loop(run: Any) -> list[Any]:
        return [await run.tool("t", {}, Tool(result)) for result in results] + [
            await run.model(Tool(result)) for result in results
        ]

    live = drive(form, journal, "r", loop)
    assert live == drive(form, journal, "r", loop)
    assert live[:5] == [[1, 2], "{3}", "nan", 10**30, {"k": [1]}]


def test_a_run_that_has_ended_is_replayed_without_an_owner_or_a_count(form: Form, journal: RunJournal) -> None:
    async def loop(run: Any, extra: bool = False) -> Any:
        found = await run.tool("t", {}, Tool(1))
        return await run.tool("more", {}, Tool(2)) if extra else found

    drive(form, journal, "r", loop)
    for _ in range(30):
        assert drive(form, journal, "r", loop) == 1
    tool_ran = len(journal.events("r"))
    with pytest.raises(JournalConflictError, match="has ended"):
        drive(form, journal, "r", partial(loop, extra=True))
    run = journal.run_meta("r")
    assert run is not None
    assert (run.status, len(journal.events("r"))) == ("done", tool_ran)


@pytest.mark.parametrize(
    "step",
    [
        lambda run, ran: run.model(lambda: ran.append(1)),
        lambda run, ran: run.tool("t", {}, lambda: ran.append(1)),
        lambda run, ran: run.approval("Go?"),
        lambda run, ran: run.iteration(1),
        lambda run, ran: run.verification("v", True),
        lambda run, ran: run.now(),
    ],
    ids=["model", "tool", "approval", "iteration", "verification", "value"],
)
def test_a_run_that_has_ended_takes_no_new_step(form: Form, journal: RunJournal, step: Any) -> None:
    ran: list[int] = []
    drive(form, journal, "r", lambda run: run.iteration(0))

    async def longer(run: Any) -> None:
        await run.iteration(0)
        await step(run, ran)

    with pytest.raises(JournalConflictError, match="has ended"):
        drive(form, journal, "r", longer)
    assert (ran, len(journal.events("r"))) == ([], 1)


def test_an_open_call_of_a_run_that_has_ended_is_not_run_again(form: Form, journal: RunJournal) -> None:
    ran: list[int] = []

    def dies() -> None:
        ran.append(1)
        raise Killed

    with pytest.raises(Killed):
        drive(form, journal, "r", lambda run: run.tool("t", {}, dies, restart_safe=True))
    journal.close_run("r", "cancelled")
    with pytest.raises(JournalConflictError, match="has ended"):
        drive(form, journal, "r", lambda run: run.tool("t", {}, dies, restart_safe=True))
    assert ran == [1]


@pytest.mark.parametrize("outcome", ["succeeded", "failed", "cancelled", "ran dry"])
def test_finish_says_how_the_run_ended(form: Form, journal: RunJournal, outcome: str) -> None:
    async def loop(run: Any) -> None:
        await run.iteration(0)
        await run.finish(outcome)

    drive(form, journal, "r", loop)
    run = journal.run_meta("r")
    assert run is not None
    assert (run.outcome, journal.interrupted_runs()) == (outcome, [])


def test_a_run_closed_by_hand_keeps_its_outcome(form: Form, journal: RunJournal) -> None:
    async def loop(run: Any) -> None:
        journal.close_run("r", "cancelled")

    drive(form, journal, "r", loop)
    run = journal.run_meta("r")
    assert run is not None
    assert run.outcome == "cancelled"


def test_an_error_leaves_the_run_to_be_resumed(form: Form, journal: RunJournal) -> None:
    async def loop(run: Any) -> None:
        await run.iteration(0)
        raise OSError("out of luck")

    with pytest.raises(OSError, match="out of luck"):
        drive(form, journal, "r", loop)
    assert journal.interrupted_runs() == ["r"]


def test_a_loop_that_ends_before_its_record_diverges(form: Form, journal: RunJournal) -> None:
    async def loop(run: Any, steps: int) -> None:
        for number in range(steps):
            await run.iteration(number)

    interrupt(form, journal, "r", partial(loop, steps=3))
    with pytest.raises(ReplayDivergenceError, match="the loop ended") as caught:
        drive(form, journal, "r", partial(loop, steps=2))
    assert caught.value.details["seq"] == 2
    assert journal.interrupted_runs() == ["r"]


# Numbers, keys, identity


def test_steps_are_numbered_in_the_order_of_their_calls(any_journal: RunJournal) -> None:
    """Two drives whose parallel steps end in opposite orders replay each other's record."""
    order: list[str] = []

    async def loop(run: AsyncDurableRun, slow_first: bool) -> list[str]:
        names = ["a", "b", "c", "d"]
        ended = {name: asyncio.Event() for name in names}
        ends = names[::-1] if slow_first else names

        async def tool(name: str) -> str:
            for earlier in ends[: ends.index(name)]:
                await ended[earlier].wait()
            order.append(name)
            ended[name].set()
            return name

        return list(await asyncio.gather(*(run.tool("t", {"name": name}, tool) for name in names)))

    async def main() -> None:
        for run_id, slow_first in (("one", True), ("two", False)):
            order.clear()
            async with AsyncDurableRun(any_journal, run_id) as run:
                assert await loop(run, slow_first) == ["a", "b", "c", "d"]
            assert order == (["d", "c", "b", "a"] if slow_first else ["a", "b", "c", "d"])
        order.clear()
        for run_id in ("one", "two"):
            async with AsyncDurableRun(any_journal, run_id) as run:
                assert await loop(run, run_id == "two") == ["a", "b", "c", "d"]
        assert order == [], "nothing ran again"

    asyncio.run(main())
    assert any_journal.diff("one", "two") is None


def test_steps_awaited_in_another_order_replay(journal: RunJournal) -> None:
    async def main(last_first: bool) -> list[Any]:
        async with AsyncDurableRun(journal, "r") as run:
            one, two = run.tool("t", {"n": 1}, lambda n: n), run.tool("t", {"n": 2}, lambda n: n)
            return sorted([await two, await one] if last_first else [await one, await two])

    assert asyncio.run(main(False)) == asyncio.run(main(True)) == [1, 2]


def test_steps_in_threads_are_numbered_where_they_are_submitted(journal: RunJournal) -> None:
    seed = random.randrange(2**32)
    print(f"seed: {seed}")
    delays = random.Random(seed)

    def tool(n: int) -> int:
        time.sleep(delays.random() / 500)
        return n * n

    def loop(run: DurableRun) -> list[int]:
        with ThreadPoolExecutor(8) as pool:
            return [future.result() for future in [run.submit(pool, "square", {"n": n}, tool) for n in range(40)]]

    with DurableRun(journal, "r") as run:
        first = loop(run)
    with DurableRun(journal, "r") as run:
        assert loop(run) == first == [n * n for n in range(40)]
    calls = [event.payload["args"]["n"] for event in journal.events("r") if event.kind == "tool_call"]
    assert calls == list(range(40))


def test_the_key_is_made_of_run_number_and_name_and_the_tool_can_read_it(form: Form, journal: RunJournal) -> None:
    tool = Tool()

    async def loop(run: Any) -> None:
        await run.iteration(0)
        await run.tool("pay", {"amount": 5}, tool)
        await run.tool("pay", {"amount": 5}, tool)
        assert current_idempotency_key() is None

    drive(form, journal, "order 7", loop)
    assert tool.keys == ["order 7:1:pay", "order 7:2:pay"]
    recorded = [e.payload["idempotency_key"] for e in journal.events("order 7") if e.kind == "tool_call"]
    assert recorded == tool.keys


def test_keys_of_parallel_tools_do_not_mix(any_journal: RunJournal) -> None:
    async def tool(n: int) -> tuple[int, str | None]:
        await asyncio.sleep(0)
        return n, current_idempotency_key()

    async def main() -> list[Any]:
        async with AsyncDurableRun(any_journal, "r") as run:
            return list(await asyncio.gather(*(run.tool("t", {"n": n}, tool) for n in range(10))))

    assert asyncio.run(main()) == [[n, f"r:{n}:t"] for n in range(10)]


def test_a_providers_id_is_a_label_and_never_identity(form: Form, journal: RunJournal) -> None:
    """Some servers give every call the same id; each call still runs once and keeps its own result."""

    async def loop(run: Any, label: str) -> list[Any]:
        return [await run.tool("t", {"n": n}, lambda n: n * 10, label=label) for n in (1, 2)]

    interrupt(form, journal, "r", partial(loop, label="call_0"))
    assert drive(form, journal, "r", partial(loop, label="another")) == [10, 20]
    calls = [event.payload["tool_call_id"] for event in journal.events("r") if event.kind == "tool_call"]
    assert calls == ["call_0", "call_0"]


def test_a_key_among_the_arguments_is_an_argument(form: Form, journal: RunJournal) -> None:
    tool = Tool()

    async def loop(run: Any) -> None:
        await run.tool("t", {"idempotency_key": "forged"}, tool)

    drive(form, journal, "r", loop)
    assert (tool.calls, tool.keys) == ([{"idempotency_key": "forged"}], ["r:0:t"])


@pytest.mark.parametrize(
    ("args", "expected"), [(None, ()), ({}, ()), ([1, "a"], (1, "a")), ((1,), (1,)), ({"x": 1}, (("x", 1),))]
)
def test_arguments_reach_the_tool(form: Form, journal: RunJournal, args: Any, expected: Any) -> None:
    seen: list[Any] = []

    async def loop(run: Any) -> None:
        await run.tool("t", args, lambda *a, **k: seen.append((*a, *k.items())))

    drive(form, journal, "r", loop)
    drive(form, journal, "r", loop)
    assert seen == [expected]


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


# Refusals


def test_arguments_that_cannot_be_recorded_are_refused_before_the_tool_runs(form: Form, journal: RunJournal) -> None:
    tool = Tool()
    with pytest.raises(InvalidJournalError, match="keys are text"):
        drive(form, journal, "r", lambda run: run.tool("t", {"a": {1: 2}}, tool))
    assert (tool.calls, journal.events("r")) == ([], [])


@pytest.mark.parametrize("value", [object(), lambda: None, [{"deep": object().__str__}]])
def test_arguments_that_no_replay_would_know_again_are_refused(form: Form, journal: RunJournal, value: Any) -> None:
    """`<object object at 0x7f…>` is another text in every process."""
    tool = Tool()
    for step in (
        lambda run: run.tool("t", {"x": value}, tool),
        lambda run: run.model(tool, request={"x": value}),
        lambda run: run.approval("Go?", {"x": value}),
    ):
        with pytest.raises(InvalidJournalError, match="its address in memory") as caught:
            drive(form, journal, "r", step)
        assert str(caught.value.details["path"]).startswith("$.")
        assert caught.value.details["reason"] == "has_address"
    assert (tool.calls, journal.events("r")) == ([], [])


def test_text_with_an_address_is_text_and_a_value_with_a_text_of_its_own_is_known_again(
    form: Form, journal: RunJournal
) -> None:
    args = {"text": "crashed at 0xdeadbeef", "id": uuid.UUID(int=7), "kinds": {KIND_TOOL_CALL}}

    async def loop(run: Any) -> Any:
        # A result is what it was recorded as, whatever that is.
        return await run.tool("t", args, lambda **_: object())

    with pytest.raises(Killed):
        drive(form, journal, "r", lambda run: killed_after(loop(run)))
    assert "object object at" in drive(form, journal, "r", loop)


def test_a_result_that_cannot_be_recorded_says_that_the_tool_has_run(form: Form, journal: RunJournal) -> None:
    tool = Tool({1: "key"})
    with pytest.raises(InvalidJournalError, match="has run and its result cannot be recorded"):
        drive(form, journal, "r", lambda run: run.tool("t", {}, tool))
    assert [step.tool for step in journal.uncertain("r")] == ["t"]


def test_an_async_function_in_the_sync_form_is_refused(journal: RunJournal) -> None:
    async def tool() -> int:
        return 1

    with pytest.raises(InvalidJournalError, match="AsyncDurableRun"), DurableRun(journal, "r") as run:
        _ = run.model(tool)


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_tool_has_a_name(form: Form, journal: RunJournal, name: Any) -> None:
    with pytest.raises(InvalidJournalError):
        drive(form, journal, "r", lambda run: run.tool(name, {}, Tool()))


def test_a_drive_that_has_ended_takes_no_step(form: Form, journal: RunJournal) -> None:
    kept: list[Any] = []

    async def loop(run: Any) -> None:
        kept.append(run)

    drive(form, journal, "r", loop)
    with pytest.raises(JournalConflictError, match="has ended"):
        asyncio.run(kept[0].iteration(0))


def test_steps_begin_a_drive_by_themselves(journal: RunJournal) -> None:
    run = DurableRun(journal, "r")
    assert run.tool("t", {}, Tool(1)) == 1
    assert journal.interrupted_runs() == []
    run.release()
    assert journal.interrupted_runs() == ["r"]


# Resumes


def test_resumes_are_counted_and_bounded_and_other_runs_go_on(form: Form, any_journal: RunJournal) -> None:
    tool = Tool()
    for _ in range(4):
        interrupt(form, any_journal, "r", lambda run: run.iteration(0))

    async def loop(run: Any) -> None:
        await run.iteration(0)
        await run.tool("t", {}, tool)

    with pytest.raises(ResumeBudgetExhaustedError) as caught:
        drive(form, any_journal, "r", loop, max_resumes=3)
    assert (tool.calls, caught.value.details) == ([], {"run_id": "r", "resumes": 3, "max_resumes": 3})
    drive(form, any_journal, "other", loop, max_resumes=3)
    assert any_journal.interrupted_runs() == ["r"]
    drive(form, any_journal, "r", loop, max_resumes=4)
    assert len(tool.calls) == 2


def test_twenty_resumes_are_the_default(form: Form, journal: RunJournal) -> None:
    for _ in range(21):
        interrupt(form, journal, "r", lambda run: run.iteration(0))
    with pytest.raises(ResumeBudgetExhaustedError):
        drive(form, journal, "r", lambda run: run.iteration(0))


def test_resuming_what_was_recorded_without_a_driver_counts(form: Form, journal: RunJournal) -> None:
    journal.open_run("r")
    from turn_journal_runtime.run_journal import KIND_ITERATION, JournalEvent

    journal.append(JournalEvent("r", 0, KIND_ITERATION, {"index": 0}))
    with pytest.raises(ResumeBudgetExhaustedError):
        drive(form, journal, "r", lambda run: run.iteration(0), max_resumes=0)


def test_a_resume_counts_whatever_the_drive_before_it_ended_with(form: Form, journal: RunJournal) -> None:
    """Only one that waited for a decision, and was not driven since, is no recovery."""

    async def asking(run: Any, dies: bool = True) -> None:
        await run.approval("Go?")
        if dies:
            raise Killed

    with pytest.raises(TurnSuspended):
        drive(form, journal, "r", asking, max_resumes=0)
    journal.approve("r", 0, "yes", by="me")
    with pytest.raises(Killed):
        drive(form, journal, "r", asking, max_resumes=0)
    with pytest.raises(ResumeBudgetExhaustedError):
        drive(form, journal, "r", asking, max_resumes=0)

    with pytest.raises(TurnSuspended):
        drive(form, journal, "killed", asking, max_resumes=0)
    journal.approve("killed", 0, "yes", by="me")
    run = DurableRun(journal, "killed", max_resumes=0)
    assert run.approval("Go?") == "yes"
    del run  # as by SIGKILL: it could say nothing
    gc.collect()
    with pytest.raises(ResumeBudgetExhaustedError):
        drive(form, journal, "killed", asking, max_resumes=0)

    interrupt(form, journal, "s", lambda run: run.iteration(0))
    with pytest.raises(ReplayDivergenceError):
        drive(form, journal, "s", lambda run: run.iteration(1), max_resumes=1)
    with pytest.raises(ResumeBudgetExhaustedError):
        drive(form, journal, "s", lambda run: run.iteration(0), max_resumes=1)


# Redaction


def test_redaction_spares_the_loop_and_the_tool_and_replay_still_matches(form: Form, path: Path) -> None:
    def redact(payload: Any) -> Any:
        if isinstance(payload, dict):
            return {key: "***" if key == "token" else redact(value) for key, value in payload.items()}
        return [redact(item) for item in payload] if isinstance(payload, list) else payload

    tool = Tool({"token": "out-s3cret", "n": 1})

    async def loop(run: Any) -> list[Any]:
        return [
            await run.tool("t", {"token": "in-s3cret", "n": 1}, tool),
            await run.model(Tool({"token": "model-s3cret"}), request={"token": "key-s3cret", "prompt": "p"}),
        ]

    with RunJournal(path.with_name("redacted.db"), redact=redact) as journal:
        interrupt(form, journal, "r", loop)
        assert tool.calls == [{"token": "in-s3cret", "n": 1}]
        assert tool.keys == ["r:0:t"]
        assert drive(form, journal, "r", loop) == [{"token": "***", "n": 1}, {"token": "***"}]
        assert len(tool.calls) == 1
    assert not [file for file in path.parent.iterdir() if file.is_file() and b"s3cret" in file.read_bytes()]
