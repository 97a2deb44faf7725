"""What is on record is replayed, and steps are known by number, kind, name and arguments. run-journal.md, section 4."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
from tests.python.run_journal.forms import Form, Killed, Tool, drive, interrupt

from turn_journal_runtime.errors import (
    ReplayDivergenceError,
    RunEndedError,
)
from turn_journal_runtime.run_journal import (
    AsyncDurableRun,
    DurableRun,
    RunJournal,
    current_idempotency_key,
)

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
    with pytest.raises(RunEndedError, match="has ended"):
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

    with pytest.raises(RunEndedError, match="has ended"):
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
    with pytest.raises(RunEndedError, match="has ended"):
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
