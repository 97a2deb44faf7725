"""What a worker makes of a turn that it was handed, and when it looks at it again. session-recovery.md, section 3."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.python.turns.world import AGENT, GOAL, TODO, ScriptedHost, Turn, rate_limited

from turn_journal_runtime.errors import (
    JournalConflictError,
    StoreUnavailableError,
    TurnBusyError,
    TurnSuspended,
    UncertainEffectError,
)
from turn_journal_runtime.turns import TurnResult, run_turn
from turn_journal_runtime.turns.due import DueTurn
from turn_journal_runtime.turns.outcome import TurnRecoveryBlockedError
from turn_journal_runtime.turns.plan import plan_turn
from turn_journal_runtime.worker.aio import defer_turn
from turn_journal_runtime.worker.driving import FIRST_WAIT, LONGEST_WAIT, due_turn, outcome_of
from turn_journal_runtime.worker.queue import Job
from turn_journal_runtime.worker.worker import Summary, run_worker

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = plan_turn(goal_id=GOAL, agent_id=AGENT, todo_id=TODO).turn_key
JOB = Job(GOAL, AGENT, TODO, None, KEY)
DUE = DueTurn("postgresql://host/db", GOAL, AGENT, KEY, TODO, None, "host_execute", retry_failed=False)
#: How a time is told in which a turn waits as long as one that did not get on.
LATER = "later"


def _result(**parts: Any) -> TurnResult:
    return TurnResult(**{"turn_key": KEY, "effect_id": "e", **parts})


@pytest.mark.parametrize(
    ("what", "event", "again_at"),
    [
        (None, "done", None),
        (_result(status="committed"), "done", None),
        (_result(status="scheduler_action_required"), "waits", LATER),
        (_result(status="failed", retry_due=5.0, failure_kind="rate_limited"), "failed", None),
        (TurnBusyError("busy", details={"until": 7.0}), "waits", 7.0),
        (TurnBusyError("busy"), "waits", LATER),
        (TurnRecoveryBlockedError("blocked"), "blocked", LATER),
        (TurnSuspended("asks"), "waits", LATER),
        (TurnSuspended("sleeps", details={"due_at": 9.0}), "sleeps", 9.0),
        (UncertainEffectError("in doubt"), "waits", LATER),
        (JournalConflictError("lost", kind="turn_lease_lost"), "lost", LATER),
        (JournalConflictError("other"), "failed", LATER),
        (StoreUnavailableError("away"), "failed", LATER),
        (KeyError("bug"), "failed", LATER),
    ],
    ids=repr,
)
def test_what_an_entry_answers_or_raises_says_when_its_turn_is_looked_at_again(
    what: Any, event: str, again_at: Any
) -> None:
    def entry(_: DueTurn) -> Any:
        if isinstance(what, Exception):
            raise what
        return what

    outcome = asyncio.run(outcome_of(entry, DUE, JOB))
    assert outcome.event == event
    if again_at is LATER:
        assert outcome.again_at is not None
        assert FIRST_WAIT - 1 < outcome.again_at - time.time() <= FIRST_WAIT
    else:
        assert outcome.again_at == again_at


def test_a_failed_turn_that_is_to_be_tried_again_is_looked_at_when_its_back_off_has_passed() -> None:
    failed = _result(status="failed", retry_due=5.0, failure_kind="rate_limited")
    outcome = asyncio.run(outcome_of(lambda _: failed, DUE, JOB._replace(retry_failed=True)))
    assert outcome.again_at == 5.0


def test_a_turn_that_does_not_get_on_waits_twice_as_long_each_time() -> None:
    for again, seconds in ((0, FIRST_WAIT), (1, 2 * FIRST_WAIT), (3, 8 * FIRST_WAIT), (9, LONGEST_WAIT)):
        outcome = asyncio.run(outcome_of(lambda _: 1 / 0, DUE, JOB._replace(again=again)))
        assert outcome.again_at is not None
        assert seconds - 1 < outcome.again_at - time.time() <= seconds


# With a queue


def _waiting(url: str) -> list[tuple[dict[str, Any], float | None]]:
    """The turns that wait, and until when."""
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT args, EXTRACT(EPOCH FROM scheduled_at)::float8 FROM public_turn_queue.procrastinate_jobs "
            "WHERE task_name LIKE '%drive' AND status = 'todo'"
        ).fetchall()


def _work(url: str, entry: Callable[[DueTurn], Any], until: Callable[[], object], **options: Any) -> Summary:
    """A worker in this process, until something holds."""

    async def work() -> Summary:
        worker = asyncio.create_task(run_worker(url, entry, **{"every": 60, "grace": 0.5, **options}))
        try:
            async with asyncio.timeout(30):
                while not worker.done() and not await asyncio.to_thread(until):  # noqa: ASYNC110 - of the database
                    await asyncio.sleep(0.05)
        finally:
            if not worker.done():
                os.kill(os.getpid(), signal.SIGTERM)
        return await asyncio.wait_for(worker, 30)

    return asyncio.run(work())


def _fail(due: DueTurn) -> None:
    raise ValueError(due.todo_id)


@pytest.mark.process
def test_a_back_off_that_has_not_passed_is_waited_for(database: str) -> None:
    turn = Turn(database, is_async=False)
    failed = turn.run(ScriptedHost(rate_limited()))
    assert failed.retry_due is not None
    asyncio.run(defer_turn(database, goal_id=GOAL, agent_id=AGENT, todo_id=TODO, retry_failed=True))

    def is_put_off() -> bool:
        return any(at is not None for _, at in _waiting(database))

    assert _work(database, _fail, is_put_off) == Summary({}, 0)
    [(args, at)] = _waiting(database)
    assert at == pytest.approx(failed.retry_due, abs=0.01)
    assert (args["again"], args["retry_failed"]) == (0, True)


@pytest.mark.process
def test_a_turn_that_did_not_get_on_is_put_off_and_one_that_is_handed_in_again_is_not(database: str) -> None:
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "todo_id": TODO}
    asyncio.run(defer_turn(database, **names))
    until = time.time() + 2 * FIRST_WAIT - 1

    def is_put_off() -> bool:
        return any(at is not None for _, at in _waiting(database))

    assert _work(database, _fail, is_put_off) == Summary({"failed": 1}, 0)
    [(args, at)] = _waiting(database)
    assert (args["again"], at is not None and at < until) == (1, True)
    # Later it waits for already; sooner is sooner; at once is at once.
    assert not asyncio.run(defer_turn(database, **names, not_before=time.time() + 60))
    assert _waiting(database) == [(args, at)]
    assert asyncio.run(defer_turn(database, **names))
    [(args, at)] = _waiting(database)
    assert (args["again"], at) == (0, None)
    assert not asyncio.run(defer_turn(database, **names))


def test_a_turn_is_handed_over_as_it_stands(database: str) -> None:
    def resolver(_: Any) -> None: ...

    new = asyncio.run(due_turn(database, JOB, resolver))
    assert isinstance(new, DueTurn)
    assert (new.resume_from, new.retry_failed, new.session_binding_resolver) == ("host_execute", False, resolver)
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "todo_id": TODO}
    run_turn(database, **names, host=ScriptedHost(), validate=lambda _: False)
    assert asyncio.run(due_turn(database, JOB, None)) is None  # it has failed, and is not to be tried again
    again = asyncio.run(due_turn(database, JOB._replace(retry_failed=True), None))
    assert isinstance(again, DueTurn)
    assert (again.resume_from, again.retry_failed) == ("host_execute", True)
