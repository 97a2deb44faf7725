"""A stored run is replayed against a loop, and where the loop has changed is said; nothing is run meanwhile."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from turn_journal_runtime import (
    AsyncDurableRun,
    DurableRun,
    InvalidJournalError,
    JournalConflictError,
    RecordedToolError,
    ReplayDivergenceError,
    RunJournal,
    RunNotFoundError,
    TurnSuspended,
    UncertainEffectError,
    aio,
    check_replay,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from turn_journal_runtime.replay_check import Loop

RUN = "run-1"


class World:
    """What the loop's tools and its model do, counted."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def does(self, what: str) -> Callable[..., str]:
        def function(**_: Any) -> str:
            self.done.append(what)
            return f"{what} done"

        return function

    def breaks(self, **_: Any) -> NoReturn:
        self.done.append("broken")
        raise ConnectionError("the line is cut")


def loop_of(world: World, *steps: str) -> Loop:
    """A loop with a step for each name; `ask` is a question, `break` a tool that fails and is gone on after."""

    def loop(journal: RunJournal, run_id: str) -> None:
        with DurableRun(journal, run_id) as run:
            run.model(world.does("model"), request={"prompt": "hello"})
            for name in steps:
                if name == "ask":
                    run.approval("May I?")
                elif name == "break":
                    with suppress(ConnectionError):
                        run.tool("break", {}, world.breaks)
                else:
                    run.tool(name, {"to": "you"}, world.does(name))

    return loop


def rows(journal: RunJournal) -> tuple[list[str], Any]:
    return list(journal.export(RUN)), journal.run_meta(RUN)


@pytest.mark.parametrize("steps", [(), ("mail",), ("mail", "break", "pay")])
def test_the_loop_that_made_a_run_replays_it_and_runs_nothing(journal: RunJournal, steps: tuple[str, ...]) -> None:
    world = World()
    loop_of(world, *steps)(journal, RUN)
    before, done = rows(journal), list(world.done)
    check = check_replay(journal, RUN, loop_of(world, *steps))
    assert (check.replays, check.steps, check.replayed, check.problem) == (True, len(steps) + 1, len(steps) + 1, None)
    assert world.done == done
    assert rows(journal) == before


@pytest.mark.parametrize(
    ("now", "seq"),
    [
        (("mail", "post"), 2),
        (("look", "mail", "pay"), 1),
        (("pay", "mail"), 1),
        (("mail",), 2),
        (("mail", "pay", "mail"), 3),
    ],
    ids=["renamed", "one more before", "another order", "one less", "one more at the end"],
)
def test_a_loop_that_has_changed_parts_where_it_did(journal: RunJournal, now: tuple[str, ...], seq: int) -> None:
    world = World()
    loop_of(world, "mail", "pay")(journal, RUN)
    before, done = rows(journal), list(world.done)
    check = check_replay(journal, RUN, loop_of(world, *now))
    assert not check.replays
    assert isinstance(check.problem, ReplayDivergenceError)
    assert (check.steps, check.replayed, check.problem.details["seq"]) == (3, seq, seq)
    assert world.done == done
    assert rows(journal) == before


def test_a_run_that_did_not_end_replays_as_far_as_it_got(journal: RunJournal) -> None:
    world = World()
    with suppress(TurnSuspended):
        loop_of(world, "mail", "ask", "pay")(journal, RUN)
    assert check_replay(journal, RUN, loop_of(world, "mail", "ask", "pay")).replays
    assert check_replay(journal, RUN, loop_of(world, "mail", "ask")).replays, "nobody has seen what follows"
    assert not check_replay(journal, RUN, loop_of(world, "post", "ask")).replays
    assert not check_replay(journal, RUN, loop_of(world, "mail")).replays, "its question is on record"
    assert world.done == ["model", "mail"]
    assert journal.interrupted_runs() == [RUN], "it is as it was, and can be driven"


def test_the_end_of_the_record_is_no_problem_for_a_group_of_tasks(journal: RunJournal) -> None:
    async def loop(journal: RunJournal, run_id: str, extra: int = 2) -> None:
        async with AsyncDurableRun(journal, run_id) as run:
            await run.now()
            async with asyncio.TaskGroup() as group:
                for number in range(extra):
                    group.create_task(run.tool("t", {"number": number}, lambda number: number))

    journal.open_run(RUN)
    asyncio.run(loop(journal, RUN, extra=0))
    journal.open_run(RUN)  # as one that was killed there
    assert check_replay(journal, RUN, loop)[1:] == (1, 1, None)


def test_another_conflict_of_the_run_is_a_problem(journal: RunJournal) -> None:
    def refuses(journal: RunJournal, run_id: str) -> None:
        with DurableRun(journal, run_id) as run:
            run.now()
            raise JournalConflictError("of the loop's own", details={"run_id": run_id})

    with suppress(JournalConflictError):
        refuses(journal, RUN)
    problem = check_replay(journal, RUN, refuses).problem
    assert isinstance(problem, JournalConflictError)
    assert problem.message == "of the loop's own"


def test_an_uncertain_step_is_the_end_of_the_record(journal: RunJournal) -> None:
    world = World()

    def killed(journal: RunJournal, run_id: str, pay: Callable[..., Any]) -> None:
        with DurableRun(journal, run_id) as run:
            run.tool("pay", {}, pay, readback=lambda _: world.does("readback")())

    with suppress(KeyboardInterrupt):

        def interrupted() -> NoReturn:
            raise KeyboardInterrupt

        killed(journal, RUN, interrupted)
    assert [step.seq for step in journal.uncertain(RUN)] == [0]
    check = check_replay(journal, RUN, lambda journal, run_id: killed(journal, run_id, world.does("pay")))
    assert (check.replays, check.steps) == (True, 1)
    assert world.done == []
    with pytest.raises(UncertainEffectError):
        killed(journal, RUN, world.does("pay"))


def test_a_failure_that_ended_a_run_is_no_difference_and_one_of_the_loop_is(journal: RunJournal) -> None:
    world = World()

    def strict(journal: RunJournal, run_id: str) -> None:
        with DurableRun(journal, run_id) as run:
            with suppress(ConnectionError):
                run.tool("break", {}, world.breaks)
            run.tool("mail", {}, world.does("mail"))
            raise RuntimeError("given up")

    with suppress(RuntimeError):
        strict(journal, RUN)
    journal.close_run(RUN, "failed")
    check = check_replay(journal, RUN, strict)
    assert (check.replayed, type(check.problem)) == (2, RuntimeError), "it would fail again, and that is said"

    def unguarded(journal: RunJournal, run_id: str) -> None:
        with DurableRun(journal, run_id) as run:
            run.tool("break", {}, world.breaks)

    check = check_replay(journal, RUN, unguarded)
    assert (check.replayed, check.steps, type(check.problem).__mro__.count(RecordedToolError)) == (1, 2, 1)


def test_what_a_loop_swallows_is_said_all_the_same(journal: RunJournal) -> None:
    world = World()
    loop_of(world, "mail")(journal, RUN)

    def swallows(journal: RunJournal, run_id: str) -> None:
        run = DurableRun(journal, run_id)
        with suppress(Exception):
            run.tool("mail", {"to": "you"}, world.does("mail"))

    check = check_replay(journal, RUN, swallows)
    assert isinstance(check.problem, ReplayDivergenceError)
    assert world.done == ["model", "mail"]


def test_a_loop_that_drives_another_run_or_none_is_told_how_it_is_called(journal: RunJournal) -> None:
    loop_of(World())(journal, RUN)
    for loop, named in (
        (lambda journal, _: DurableRun(journal, "run-2").now(), "'run-2'"),
        (lambda *_: None, "none"),
    ):
        problem = check_replay(journal, RUN, loop).problem
        assert isinstance(problem, InvalidJournalError)
        assert named in problem.message
    with pytest.raises(RunNotFoundError):
        check_replay(journal, "run-3", loop_of(World()))
    assert journal.run_meta("run-2") is None


def test_a_journal_that_keeps_less_is_replayed_with_what_it_keeps(tmp_path: Path) -> None:
    def redact(payload: dict[str, Any]) -> dict[str, Any]:
        return {**payload, "args": {}} if "args" in payload else payload

    world = World()
    journal = RunJournal(tmp_path / "runs.db", redact=redact)
    loop_of(world, "mail")(journal, RUN)
    assert check_replay(journal, RUN, loop_of(world, "mail")).replays


def test_an_export_is_replayed_where_nothing_else_is(journal: RunJournal) -> None:
    world = World()
    loop_of(world, "mail")(journal, RUN)
    with RunJournal(":memory:") as other:
        run_id = other.import_run(journal.export(RUN))
        assert check_replay(other, run_id, loop_of(world, "mail")).replays
        assert not check_replay(other, run_id, loop_of(world, "post")).replays


async def _async_loop(journal: RunJournal, run_id: str) -> None:
    async with AsyncDurableRun(journal, run_id) as run:
        await asyncio.gather(*(run.tool("look", {"at": at}, lambda at: at) for at in range(3)))


def test_async_loops_are_replayed_by_both_forms(journal: RunJournal) -> None:
    asyncio.run(_async_loop(journal, RUN))
    assert check_replay(journal, RUN, _async_loop) == (RUN, 3, 3, None)
    assert asyncio.run(aio.check_replay(journal, RUN, _async_loop)) == (RUN, 3, 3, None)
    changed = loop_of(World(), "mail")
    assert not check_replay(journal, RUN, changed).replays
    assert not asyncio.run(aio.check_replay(journal, RUN, changed)).replays
