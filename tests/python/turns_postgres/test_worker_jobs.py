"""What a worker makes of a turn that it was handed, and when it looks at it again. session-recovery.md, section 3."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections import Counter
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from procrastinate.exceptions import ConnectorException
from procrastinate.jobs import Job as QueuedJob
from tests.python.turns.world import AGENT, GOAL, TODO, KilledError, ScriptedHost, Turn, rate_limited

from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalConflictError,
    JournalStoreError,
    StoreUnavailableError,
    TurnBusyError,
    TurnSuspended,
    UncertainEffectError,
)
from turn_journal_runtime.turns import HostFailedError, RecoverableTurn, TurnResult, run_turn
from turn_journal_runtime.turns.due import DueTurn
from turn_journal_runtime.turns.outcome import TurnRecoveryBlockedError
from turn_journal_runtime.turns.plan import plan_turn
from turn_journal_runtime.turns.recovery import _as_it_stands
from turn_journal_runtime.worker import schema
from turn_journal_runtime.worker.aio import defer_turn
from turn_journal_runtime.worker.driving import FIRST_WAIT, LONGEST_WAIT, due_turn, outcome_of, stopped_turns
from turn_journal_runtime.worker.log import LOGGER
from turn_journal_runtime.worker.queue import DRIVE, FIND, Job, defer, open_queue, waiting_in
from turn_journal_runtime.worker.worker import Summary, _Again, _NoRoom, _unheard, _Worker, run_worker

if TYPE_CHECKING:
    from collections.abc import Callable

KEY = plan_turn(goal_id=GOAL, agent_id=AGENT, todo_id=TODO).turn_key
JOB = Job(GOAL, AGENT, TODO, None, KEY)
DUE = DueTurn("postgresql://host/db", GOAL, AGENT, KEY, TODO, None, "host_execute", retry_failed=False)
#: How a time is told in which a turn waits as long as one that did not get on.
LATER = "later"


def _result(**parts: Any) -> TurnResult:
    return TurnResult(**{"turn_key": KEY, "effect_id": "e", **parts})


def _fail(due: DueTurn) -> None:
    raise ValueError(due.todo_id)


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

    before = time.time()
    outcome = asyncio.run(outcome_of(entry, DUE, JOB))
    assert outcome.event == event
    if again_at is LATER:
        assert outcome.again_at is not None
        assert before + FIRST_WAIT <= outcome.again_at <= time.time() + FIRST_WAIT
    else:
        assert outcome.again_at == again_at


def test_a_failed_turn_that_is_to_be_tried_again_is_looked_at_when_its_back_off_has_passed() -> None:
    failed = _result(status="failed", retry_due=5.0, failure_kind="rate_limited")
    outcome = asyncio.run(outcome_of(lambda _: failed, DUE, JOB._replace(retry_failed=True)))
    assert outcome.again_at == 5.0


@pytest.mark.parametrize(
    "entry",
    [_fail, lambda _: _result(status="failed", failed_phase="validation"), lambda _: _result(status="failed")],
    ids=["its entry raises", "its result is refused", "its host fails without a back-off"],
)
def test_a_turn_that_does_not_get_on_waits_twice_as_long_each_time(entry: Callable[[DueTurn], Any]) -> None:
    for again, seconds in ((0, FIRST_WAIT), (1, 2 * FIRST_WAIT), (3, 8 * FIRST_WAIT), (9, LONGEST_WAIT)):
        before = time.time()
        outcome = asyncio.run(outcome_of(entry, DUE, JOB._replace(again=again, retry_failed=True)))
        assert outcome.again_at is not None
        assert before + seconds <= outcome.again_at <= time.time() + seconds


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
            async with asyncio.timeout(60):
                while not worker.done() and not await asyncio.to_thread(until):  # noqa: ASYNC110 - of the database
                    await asyncio.sleep(0.05)
        finally:
            if not worker.done():
                os.kill(os.getpid(), signal.SIGTERM)
        return await asyncio.wait_for(worker, 60)

    return asyncio.run(work())


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


@pytest.mark.process
def test_a_turn_that_sleeps_has_got_on_and_waits_no_longer_for_that_later(database: str) -> None:
    due_at = time.time() + 3600

    def sleeps(due: DueTurn) -> None:
        raise TurnSuspended("It sleeps.", details={"due_at": due_at, "todo": due.todo_id})

    asyncio.run(defer_turn(database, goal_id=GOAL, agent_id=AGENT, todo_id=TODO))
    assert _work(database, sleeps, lambda: any(at for _, at in _waiting(database))) == Summary({"sleeps": 1}, 0)
    [(args, at)] = _waiting(database)
    assert args["again"] == 0
    assert at == pytest.approx(due_at, abs=0.01)


@pytest.mark.process
def test_a_turn_that_is_released_waits_for_another_worker_at_once(database: str) -> None:
    at_work: list[str | None] = []

    async def works(due: DueTurn) -> None:
        at_work.append(due.todo_id)
        await asyncio.Event().wait()

    asyncio.run(defer_turn(database, goal_id=GOAL, agent_id=AGENT, todo_id=TODO))
    assert _work(database, works, lambda: at_work) == Summary({"released": 1}, 0)
    [(args, at)] = _waiting(database)
    assert (args["again"], at is not None and at <= time.time()) == (0, True)


@pytest.mark.parametrize(
    "moment", [float("nan"), float("inf"), 1.8e12, "soon", datetime(2030, 1, 1, tzinfo=UTC)], ids=repr
)
def test_a_time_that_is_none_is_refused_and_the_turn_does_not_wait(moment: Any, database: str) -> None:
    with pytest.raises(InvalidJournalError, match="seconds since the epoch") as refused:
        asyncio.run(defer_turn(database, goal_id=GOAL, agent_id=AGENT, todo_id=TODO, not_before=moment))
    assert refused.value.details == {"field": "not_before"}
    assert _waiting(database) == []


def test_a_turn_is_handed_over_when_its_back_off_has_passed(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = Turn(database, is_async=False).run(ScriptedHost(rate_limited()))
    assert failed.retry_due is not None
    job = JOB._replace(retry_failed=True)
    assert asyncio.run(due_turn(database, job, None)) == failed.retry_due
    monkeypatch.setattr("turn_journal_runtime.worker.driving.time", SimpleNamespace(time=lambda: failed.retry_due))
    assert isinstance(asyncio.run(due_turn(database, job, None)), DueTurn)


def test_an_open_turn_is_not_handed_over_as_one_that_failed(database: str) -> None:
    """`run_turn` would try it again also where it fails just then."""
    Turn(database, is_async=False).kill(ScriptedHost(KilledError()))
    due = asyncio.run(due_turn(database, JOB._replace(retry_failed=True), None))
    assert isinstance(due, DueTurn)
    assert not due.retry_failed


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


@pytest.mark.process
def test_a_turn_that_is_at_hand_takes_no_second_place(database: str) -> None:
    """Its entry may work for long before it takes the lease: until then the store tells of a turn that stopped."""
    turn = Turn(database, is_async=False)
    turn.kill(ScriptedHost(KilledError()))
    looks = threading.Semaphore(0)

    def entry(due: DueTurn) -> None:
        del due
        for _ in range(3):  # what the second look makes of it, the third one sees
            assert looks.acquire(timeout=10)

    def jobs() -> int:
        with psycopg.connect(database) as connection:
            asked = "SELECT count(*) FROM public_turn_queue.procrastinate_jobs WHERE task_name LIKE '%drive'"
            [(found,)] = connection.execute(asked).fetchall()
        return int(found)

    async def look(*given: Any, **wanted: Any) -> list[Any]:
        found = await stopped_turns(*given, **wanted)
        most.append(jobs())
        looks.release()
        return found

    most: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turn_journal_runtime.worker.worker.stopped_turns", look)
        done = _work(database, entry, lambda: len(most) > 3, every=1, concurrency=2)
    # With both places taken there would be no third look.
    assert ("failed" not in done.events, max(most)) == (True, 1)


@pytest.mark.process
@pytest.mark.parametrize("goal_id", [None, GOAL])
def test_a_turn_that_waits_in_the_queue_is_not_looked_into_each_time(goal_id: str | None, database: str) -> None:
    """A thousand that sleep would be three thousand questions to the database, every ten seconds."""
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT}
    for todo in ("sleeps", TODO):
        with pytest.raises(KilledError):
            run_turn(database, **names, todo_id=todo, host=ScriptedHost(KilledError()))
    asyncio.run(defer_turn(database, **names, todo_id="sleeps", not_before=time.time() + 3600))
    looks, looked_into = 0, set()

    async def look(*given: Any, **wanted: Any) -> list[Any]:
        nonlocal looks
        looks += 1
        return await stopped_turns(*given, **wanted)

    def look_into(root: Any, goal: str, key: str, *more: Any) -> Any:
        looked_into.add(key)
        return _as_it_stands(root, goal, key, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turn_journal_runtime.turns.recovery._as_it_stands", look_into)
        patch.setattr("turn_journal_runtime.worker.worker.stopped_turns", look)
        done = _work(database, lambda _: None, lambda: looks > 2, every=1, goal_id=goal_id)
    assert (done.events["done"] > 0, looked_into) == (True, {KEY})


@pytest.mark.process
def test_a_turn_that_stays_failed_is_not_looked_into_each_time(database: str) -> None:
    """They stay in the store, and become more and more."""
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT}
    run_turn(database, **names, todo_id="backs off", host=ScriptedHost(rate_limited()))
    run_turn(database, **names, todo_id="over", host=ScriptedHost(HostFailedError(kind="output_budget_exhausted")))
    run_turn(database, **names, todo_id=TODO, host=ScriptedHost(ValueError()))
    looks = 0
    looked_into: Counter[str] = Counter()

    async def look(*given: Any, **wanted: Any) -> list[Any]:
        nonlocal looks
        looks += 1
        return await stopped_turns(*given, **wanted)

    def look_into(root: Any, goal: str, key: str, *more: Any) -> Any:
        looked_into[key] += 1
        return _as_it_stands(root, goal, key, *more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turn_journal_runtime.turns.recovery._as_it_stands", look_into)
        patch.setattr("turn_journal_runtime.worker.worker.stopped_turns", look)
        done = _work(database, lambda _: None, lambda: looks > 3, every=1, retry_failed=True)
    assert done.events["done"] > 0
    assert sorted(looked_into.values())[:2] == [1, 1]
    assert (len(looked_into), looked_into[KEY] > 1) == (3, True)


@pytest.mark.process
def test_what_cannot_be_read_is_told_once(database: str, caplog: pytest.LogCaptureFixture) -> None:
    looks = 0

    async def look(*_: Any, **__: Any) -> list[RecoverableTurn]:
        nonlocal looks
        looks += 1
        return [RecoverableTurn(goal_id=GOAL, turn_key="key", damage="its lines are torn")]

    caplog.set_level("WARNING", LOGGER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turn_journal_runtime.worker.worker.stopped_turns", look)
        _work(database, _fail, lambda: looks > 1, every=1)
    assert [one.getMessage() for one in caplog.records] == [
        f"blocked {GOAL}/key: it cannot be read: its lines are torn"
    ]


@pytest.mark.process
def test_a_turn_whose_state_the_database_does_not_tell_is_looked_at_again(database: str) -> None:
    async def away(*_: Any) -> None:
        raise StoreUnavailableError("away")

    asyncio.run(defer_turn(database, goal_id=GOAL, agent_id=AGENT, todo_id=TODO))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("turn_journal_runtime.worker.worker.due_turn", away)
        until = time.time() + 61
        assert _work(database, _fail, lambda: any(at for _, at in _waiting(database))) == Summary({}, 0)
    [(args, at)] = _waiting(database)
    assert (args["again"], at is not None and until - 11 < at < until + 30) == (1, True)


@pytest.mark.process
def test_jobs_of_workers_that_died_are_given_back_or_dropped(database: str) -> None:
    """A turn's goes back to the queue, unless it waits there already; a look that was not begun is no loss."""
    asyncio.run(defer_turn(database, goal_id=GOAL, agent_id=AGENT, todo_id=TODO, not_before=time.time() + 3600))
    other = Job(GOAL, AGENT, "other", None, plan_turn(goal_id=GOAL, agent_id=AGENT, todo_id="other").turn_key)
    asyncio.run(defer_turn(database, goal_id=GOAL, agent_id=AGENT, todo_id="other"))
    with psycopg.connect(database, options="-c search_path=public_turn_queue") as connection:
        connection.execute("UPDATE procrastinate_jobs SET status = 'doing' WHERE args->>'todo_id' = 'other'")
        connection.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, queueing_lock, args, status) "
            "SELECT queue_name, task_name, queueing_lock, args, 'doing' FROM procrastinate_jobs "
            "WHERE args->>'todo_id' <> 'other'"
        )
        connection.execute(
            "INSERT INTO procrastinate_jobs (queue_name, task_name, status) VALUES ('all', %s, 'doing')", (FIND,)
        )

    def states() -> list[tuple[str, str]]:
        with psycopg.connect(database) as connection:
            return connection.execute(
                "SELECT task_name, status::text FROM public_turn_queue.procrastinate_jobs ORDER BY 1, 2"
            ).fetchall()

    driven: list[str | None] = []
    assert _work(
        database,
        lambda due: driven.append(due.todo_id),
        lambda: driven and not any(state == "doing" for _, state in states()),
        every=1,
    ) == Summary({"done": 1}, 0)
    assert driven == [other.todo_id]
    assert [one for one in states() if one[0] == DRIVE] == [(DRIVE, "todo")]


@pytest.mark.process
def test_a_worker_that_was_taken_for_dead_says_so_and_works_on(database: str, caplog: pytest.LogCaptureFixture) -> None:
    """As after a pause of its machine: the queue has forgotten it."""
    caplog.set_level("WARNING", LOGGER)
    deferred: list[bool] = []
    driven: list[str | None] = []

    def forget_the_worker_then_wait_for_a_turn() -> bool:
        with psycopg.connect(database, options="-c search_path=public_turn_queue") as connection:
            if not caplog.records:
                connection.execute("DELETE FROM procrastinate_workers")
            elif not deferred:
                deferred.append(asyncio.run(defer_turn(database, goal_id=GOAL, agent_id=AGENT, todo_id=TODO)))
        return bool(driven)

    done = _work(database, lambda due: driven.append(due.todo_id), forget_the_worker_then_wait_for_a_turn, every=1)
    assert (done, driven) == (Summary({"done": 1}, 0), [TODO])
    (said,) = {one.getMessage().split(" (")[1] for one in caplog.records}
    assert said.startswith("The queue took this worker for dead")


def test_more_turns_than_places_are_not_begun_when_the_queue_was_lost(database: str) -> None:
    """The jobs of turns at hand were lost with it: it gives out as many as if none were."""

    async def until(over: asyncio.Event) -> None:
        await over.wait()

    async def work() -> None:
        worker = _Worker(database, _fail, 1, None, False, None, 10, 0.0)
        over = asyncio.Event()
        at_hand = worker._drives[KEY] = asyncio.create_task(until(over))
        other = JOB._replace(turn_key="other")
        with pytest.raises(_NoRoom):
            await worker._drive_job(**other._asdict())
        job = asyncio.create_task(worker._drive_job(**JOB._asdict()))  # its own job waits for it
        await asyncio.sleep(0)
        assert not job.done()
        job.cancel()  # as when the queue is lost
        await asyncio.wait({job})
        assert not at_hand.done()
        over.set()
        await at_hand

    asyncio.run(work())


@pytest.mark.parametrize(("raised", "seconds"), [(_NoRoom(), 1), (ConnectorException(), 60)])
def test_a_job_that_was_given_up_comes_again_soon_for_want_of_room_and_else_when_the_lease_has_ended(
    raised: Exception, seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURN_JOURNAL_TURN_LEASE", "60")
    queued = QueuedJob(id=1, queue="q", lock=None, queueing_lock=None, task_name=DRIVE)
    before = time.time()
    retry_at = _Again().get_retry_decision(exception=raised, job=queued).retry_at
    assert retry_at is not None
    assert before + seconds - 1 <= retry_at.timestamp() <= time.time() + seconds


def test_a_signal_that_comes_twice_is_one_and_a_second_one_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    ended: list[int] = []
    monkeypatch.setattr("turn_journal_runtime.worker.worker.os._exit", ended.append)
    monkeypatch.setattr("turn_journal_runtime.worker.worker.time.monotonic", lambda: now)

    async def told(*signals: tuple[float, int]) -> list[int]:
        nonlocal now
        worker = _Worker("postgresql://host/db", _fail, 1, None, False, None, 10, 0.0)
        ended.clear()
        for pause, which in signals:
            now += pause
            worker._stop(which)
        return list(ended)

    for signals, code in (
        ([(0.0, signal.SIGTERM)] * 2, []),
        ([(0.2, signal.SIGTERM)] * 4, [128 + signal.SIGTERM]),
        ([(0.0, signal.SIGINT), (0.5, signal.SIGINT)], [128 + signal.SIGINT]),
        ([(0.0, signal.SIGINT), (0.0, signal.SIGTERM)], [128 + signal.SIGTERM]),
    ):
        assert asyncio.run(told(*signals)) == code


@pytest.mark.process
def test_an_error_of_the_queues_library_that_says_nothing_of_the_database_ends_the_worker(database: str) -> None:
    async def fail(_: object) -> None:
        raise ConnectorException from ZeroDivisionError("a bug")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_Worker, "_serve_once", fail)
        with pytest.raises(ConnectorException):
            _work(database, _fail, lambda: False)


def test_a_jobs_end_that_could_not_be_noted_is_not_told_and_any_other_error_is() -> None:
    told: list[dict[str, Any]] = []
    with pytest.MonkeyPatch.context() as patch:
        loop = asyncio.new_event_loop()
        patch.setattr(loop, "default_exception_handler", told.append)
        for error in (ConnectorException(), ValueError()):
            _unheard(loop, {"exception": error})
        loop.close()
    assert [type(one["exception"]) for one in told] == [ValueError]


def test_what_waits_of_one_goal_is_told_without_that_of_others(database: str) -> None:
    async def put() -> list[set[tuple[str, str]]]:
        queue = open_queue(database, for_one_call=True)
        async with queue.open_async():
            for job in (JOB, JOB._replace(goal_id="other")):
                await defer(queue, job)
            return [await waiting_in(queue, goal_id) for goal_id in (GOAL, "other", None, "none")]

    own, other = (GOAL, KEY), ("other", KEY)
    assert asyncio.run(put()) == [{own}, {other}, {own, other}, set()]


@pytest.mark.process
def test_a_program_that_had_a_worker_has_its_own_handlers_again(database: str) -> None:
    def handler(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None: ...

    async def work() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(handler)
        worker = asyncio.create_task(run_worker(database, _fail, every=60, grace=0))
        await asyncio.sleep(0)
        assert loop.get_exception_handler() is _unheard
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(worker, 30)
        assert loop.get_exception_handler() is handler
        assert [loop.remove_signal_handler(which) for which in (signal.SIGTERM, signal.SIGINT)] == [False, False]

    asyncio.run(work())


def test_a_turn_waits_once_for_the_earlier_of_two_times(database: str) -> None:
    soon, late = (datetime.fromtimestamp(time.time() + seconds, UTC) for seconds in (60, 600))

    async def put() -> list[bool]:
        queue = open_queue(database, for_one_call=True)
        async with queue.open_async():
            return [await defer(queue, JOB, at=at, sooner=True) for at in (late, soon, late, None, soon)]

    assert asyncio.run(put()) == [True, True, False, True, False]
    assert [at for _, at in _waiting(database)] == [None]


def test_tables_that_are_older_are_not_said_to_be_missing(database: str, postgres_url: str) -> None:
    names = schema._names()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(schema, "_names", lambda: [*names, "99.01.01_01_later"])
        for url, kind in ((database, "store_schema_older"), (postgres_url, "store_schema_missing")):
            with pytest.raises(JournalStoreError, match="store migrate") as refused:
                schema.refuse_other_version(url)
            assert refused.value.kind == kind
    schema.refuse_other_version(database)
