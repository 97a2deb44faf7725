"""Sleeps that outlive their process. run-journal.md, section 4."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta, tzinfo
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.run_journal.forms import Form, Killed, Tool, drive, interrupt

from turn_journal_runtime import check_replay
from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalConflictError,
    ReplayDivergenceError,
    StoreUnavailableError,
    TurnBusyError,
    TurnSuspended,
)
from turn_journal_runtime.run_journal import (
    KIND_TOOL_RESULT,
    AsyncDurableRun,
    DurableRun,
    JournalEvent,
    PendingSleep,
    RunJournal,
    sleeps,
)

if TYPE_CHECKING:
    from collections.abc import Callable

HOUR = 3600.0
NOON = datetime(2030, 5, 1, 12, tzinfo=UTC)


class Clocks:
    """The wall clock and the one that nobody sets, which go on while a step waits, and not otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.wall, self.steady = NOON.timestamp(), 0.0
        self.waited: list[float] = []
        #: Done at each wait.
        self.meanwhile: Callable[[], object] = bool  # nothing
        monkeypatch.setattr(sleeps, "time", self)
        monkeypatch.setattr(DurableRun, "_pause", self._pause)
        monkeypatch.setattr(AsyncDurableRun, "_pause", self._pause_async)

    def time(self) -> float:
        return self.wall

    def monotonic(self) -> float:
        return self.steady

    def _pause(self, seconds: float) -> None:
        self.waited.append(seconds)
        self.wall += seconds
        self.steady += seconds
        self.meanwhile()

    async def _pause_async(self, seconds: float) -> None:
        self._pause(seconds)

    @property
    def slept(self) -> float:
        """How long was waited since this was last asked."""
        slept, self.waited = sum(self.waited), []
        return slept


@pytest.fixture
def clocks(monkeypatch: pytest.MonkeyPatch) -> Clocks:
    return Clocks(monkeypatch)


async def an_hour(run: Any, **options: Any) -> str:
    await run.sleep(HOUR, **options)
    return str(await run.tool("wake", {}, lambda: "awake"))


async def till_noon(run: Any, moment: Any = NOON, **options: Any) -> str:
    await run.sleep_until(moment, **options)
    return str(await run.tool("wake", {}, lambda: "awake"))


def test_a_sleep_is_recorded_as_a_value_before_it_is_waited_for(
    form: Form, journal: RunJournal, clocks: Clocks
) -> None:
    clocks.meanwhile = lambda: seen.append(journal.replay_index("r"))
    seen: list[Any] = []
    assert drive(form, journal, "r", an_hour) == "awake"
    assert clocks.slept == HOUR
    payload = {"name": "sleep", "seconds": HOUR, "result": NOON.timestamp() + HOUR}
    assert seen[0] == {(0, KIND_TOOL_RESULT): payload}
    assert journal.uncertain("r") == []
    drive(form, journal, "s", partial(till_noon, moment=NOON + timedelta(hours=3)))
    assert clocks.slept == 2 * HOUR
    until = NOON.timestamp() + 3 * HOUR
    assert journal.replay_index("s")[0, KIND_TOOL_RESULT] == {"name": "sleep_until", "until": until, "result": until}


@pytest.mark.parametrize("loop", [an_hour, partial(till_noon, moment=NOON + timedelta(hours=1))])
def test_a_later_drive_waits_for_what_is_left(form: Form, journal: RunJournal, clocks: Clocks, loop: Any) -> None:
    def dies() -> None:
        if len(clocks.waited) == 3:
            raise Killed

    clocks.meanwhile = dies
    for left in (HOUR, HOUR - 15):
        with pytest.raises(Killed):
            drive(form, journal, "r", loop)
        assert clocks.waited[0] == min(left, sleeps.LOOK)
        assert clocks.slept == 15
    assert [sleep.until for sleep in journal.pending_sleeps()] == [NOON.timestamp() + HOUR]
    clocks.wall += HOUR - 30 - 7
    assert drive(form, journal, "r", loop) == "awake"
    assert clocks.slept == 7


def test_one_that_is_over_is_not_waited_for(form: Form, journal: RunJournal, clocks: Clocks) -> None:
    interrupt(form, journal, "r", an_hour)
    assert clocks.slept == HOUR
    assert drive(form, journal, "r", an_hour) == "awake"
    assert drive(form, journal, "r", an_hour) == "awake"
    drive(form, journal, "s", till_noon)
    drive(form, journal, "t", lambda run: run.sleep(0))
    assert clocks.waited == []


@pytest.mark.parametrize(("left", "set_to"), [(10.0, HOUR - 10), (0.0, 2 * HOUR), (HOUR, -2 * HOUR)])
def test_a_clock_that_is_set(form: Form, journal: RunJournal, clocks: Clocks, left: float, set_to: float) -> None:
    """Forward, and the sleep ends earlier; back, and it is no longer than it was to be."""

    def set_once() -> None:
        if len(clocks.waited) == 1 and clocks.steady < HOUR:
            clocks.wall = NOON.timestamp() + set_to

    clocks.meanwhile = set_once
    assert drive(form, journal, "r", an_hour) == "awake"
    assert clocks.slept == (HOUR if set_to < 0 else sleeps.LOOK + left)


def test_a_replay_with_a_clock_set_back_waits_no_longer_than_the_sleep_was(
    form: Form, journal: RunJournal, clocks: Clocks
) -> None:
    interrupt(form, journal, "r", an_hour)
    clocks.wall -= 100 * HOUR
    clocks.waited.clear()
    drive(form, journal, "r", an_hour)
    assert clocks.slept == HOUR


def test_another_sleep_is_another_step(form: Form, journal: RunJournal, clocks: Clocks) -> None:
    async def loop(run: Any, sleeps: Any) -> None:
        await sleeps(run)
        await run.iteration(1)

    hour = partial(loop, sleeps=lambda run: run.sleep(HOUR))
    noon = partial(loop, sleeps=lambda run: run.sleep_until(NOON))
    interrupt(form, journal, "r", hour)
    interrupt(form, journal, "s", noon)
    same = [
        ("r", lambda run: run.sleep(timedelta(hours=1))),
        ("r", lambda run: run.sleep(3600)),
        ("s", lambda run: run.sleep_until(NOON.astimezone())),
        ("s", lambda run: run.sleep_until(int(NOON.timestamp()))),
    ]
    for run_id, step in same:
        interrupt(form, journal, run_id, partial(loop, sleeps=step))
    others: list[tuple[str, Any, list[str]]] = [
        ("r", lambda run: run.sleep(HOUR + 1), ["seconds"]),
        ("r", lambda run: run.sleep_until(NOON), ["name", "until"]),
        ("r", lambda run: run.now(), ["name"]),
        ("r", lambda run: run.tool("sleep", {"seconds": HOUR}, Tool()), ["kind"]),
        ("s", lambda run: run.sleep_until(NOON + timedelta(microseconds=1)), ["until"]),
        ("s", lambda run: run.sleep(HOUR), ["name", "seconds"]),
    ]
    for run_id, step, fields in others:
        with pytest.raises(ReplayDivergenceError) as caught:
            drive(form, journal, run_id, partial(loop, sleeps=step))
        assert caught.value.details["fields"] == fields
    interrupt(form, journal, "t", lambda run: run.tool("sleep", {}, Tool()))
    with pytest.raises(ReplayDivergenceError, match="the value 'sleep' here"):
        drive(form, journal, "t", lambda run: run.sleep(HOUR))


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), True, "60", None, 10**400, timedelta(seconds=-1)])
def test_a_sleep_is_a_number_of_seconds(form: Form, journal: RunJournal, seconds: Any) -> None:
    with pytest.raises(InvalidJournalError, match="number of seconds that is not negative"):
        drive(form, journal, "r", lambda run: run.sleep(seconds))
    assert journal.events("r") == []


class Nowhere(tzinfo):
    """A time zone that does not say where it is."""

    def utcoffset(self, _: datetime | None) -> None:
        return None

    tzname = dst = utcoffset


#: Without a time zone; some of these have no time in this one.
LOCAL = [NOON.replace(tzinfo=None), datetime.min, datetime.max, NOON.replace(tzinfo=Nowhere())]
TOO_LATE = datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize("moment", [float("nan"), float("inf"), False, "noon", None, 1e12, TOO_LATE, *LOCAL])
def test_a_moment_is_a_time_that_everybody_reads_alike(form: Form, journal: RunJournal, moment: Any) -> None:
    with pytest.raises(InvalidJournalError, match="a datetime with a time zone"):
        drive(form, journal, "r", lambda run: run.sleep_until(moment))
    assert journal.events("r") == []


# What ends a wait


def test_another_driver_ends_the_wait(form: Form, address: Any, clocks: Clocks) -> None:
    with RunJournal(address) as journal, RunJournal(address) as other:
        taker = DurableRun(other, "r", take_over=True)
        clocks.meanwhile = taker.start
        with pytest.raises(TurnBusyError, match="another driver has taken it over"):
            drive(form, journal, "r", an_hour)
        assert clocks.slept == sleeps.LOOK
        assert [event.seq for event in journal.events("r")] == [0]


def test_a_database_that_does_not_answer_ends_no_wait(
    form: Form, journal: RunJournal, clocks: Clocks, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, looks = journal._database.read, []

    def away(sql: str, *rest: Any) -> Any:
        if sql.startswith("SELECT 1 FROM run_drives"):
            looks.append(sql)
            raise StoreUnavailableError("it is away")
        return read(sql, *rest)

    monkeypatch.setattr(journal._database, "read", away)
    assert drive(form, journal, "r", an_hour) == "awake"
    assert (clocks.slept, len(looks)) == (HOUR, HOUR / sleeps.LOOK)


def test_a_time_out_around_a_sleep_ends_the_drive(journal: RunJournal) -> None:
    async def loop(run: Any) -> None:
        try:
            async with asyncio.timeout(0.01):
                await run.sleep(HOUR)
        except TimeoutError:
            await run.iteration(1)

    with pytest.raises(JournalConflictError, match="cut short"):
        drive("async", journal, "r", loop)
    assert [event.seq for event in journal.events("r")] == [0]
    assert journal.interrupted_runs() == ["r"]


def test_ctrl_c_ends_a_sleep_and_lets_the_run_go(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), DurableRun(journal, "r") as run:  # noqa: PT012
        monkeypatch.setattr(threading.Event, "wait", interrupted)
        run.sleep(HOUR)
    monkeypatch.undo()
    assert journal.interrupted_runs() == ["r"]


def test_a_cancelled_drive_lets_its_run_go(any_journal: RunJournal) -> None:
    async def main() -> None:
        async def agent() -> None:
            async with AsyncDurableRun(any_journal, "r") as run:
                await run.sleep(HOUR)

        driving = asyncio.create_task(agent())
        async with asyncio.timeout(60):
            while not any_journal.pending_sleeps():  # noqa: ASYNC110 - the journal tells nobody
                await asyncio.sleep(0.01)
        driving.cancel()
        await asyncio.wait([driving], timeout=30)
        assert driving.cancelled()

    asyncio.run(main())
    assert any_journal.interrupted_runs() == ["r"]


def test_a_step_that_stops_the_drive_wakes_the_one_that_sleeps(
    journal: RunJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleeps, "LOOK", HOUR)

    async def loop(run: Any) -> Any:
        return await asyncio.gather(run.sleep(HOUR), run.approval("go on?"), return_exceptions=True)

    with pytest.raises(TurnSuspended):
        drive("async", journal, "r", lambda run: asyncio.gather(run.sleep(HOUR), run.approval("go on?")))
    woken = []

    async def both(run: Any) -> None:
        woken.extend(await loop(run))

    drive("async", journal, "s", both)
    assert [type(error) for error in woken] == [TurnSuspended, TurnSuspended]

    def asks() -> None:
        with DurableRun(journal, "inner") as inner:
            inner.approval("go on?")

    with ThreadPoolExecutor(1) as pool, pytest.raises(TurnSuspended), DurableRun(journal, "t") as run:  # noqa: PT012
        run.submit(pool, "asks", {}, asks)
        run.sleep(HOUR)


@pytest.mark.parametrize("error", [None, ValueError("the loop fails")])
def test_a_loop_that_is_left_waits_for_no_sleep(
    journal: RunJournal, error: Exception | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleeps, "LOOK", HOUR)
    kept: list[asyncio.Task[Any]] = []

    async def naps(run: AsyncDurableRun) -> None:
        await run.sleep(HOUR)
        raise AssertionError("nobody has slept that long")

    async def main() -> None:
        try:
            async with asyncio.timeout(60), AsyncDurableRun(journal, "r") as run:
                kept.append(asyncio.create_task(naps(run)))
                await asyncio.sleep(0.01)
                if error is not None:
                    raise error
        except ValueError:
            pass
        with pytest.raises(JournalConflictError, match="has ended"):
            await kept[0]

    asyncio.run(main())
    assert journal.interrupted_runs() == ([] if error is None else ["r"])


def test_a_thread_that_sleeps_is_woken_when_its_loop_is_left(
    journal: RunJournal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sleeps, "LOOK", HOUR)
    with ThreadPoolExecutor(1) as pool:
        with DurableRun(journal, "r") as run:
            sleeping = pool.submit(run.sleep, HOUR)
            while not journal.pending_sleeps():
                time.sleep(0.01)
        assert isinstance(sleeping.exception(60), JournalConflictError)
    assert journal.interrupted_runs() == []


def test_sleeps_beside_each_other_are_waited_for_together(journal: RunJournal) -> None:
    async def loop(run: Any) -> Any:
        begun = time.monotonic()
        await asyncio.gather(*(run.sleep(0.5) for _ in range(20)))
        return time.monotonic() - begun

    assert 0.5 <= drive("async", journal, "r", loop) < 8


# Without a process


def test_a_run_sleeps_in_no_process(form: Form, address: Any, clocks: Clocks) -> None:
    loop = partial(an_hour, suspend=True)
    with RunJournal(address) as journal:
        due = NOON.timestamp() + HOUR
        for _ in range(3):
            with pytest.raises(TurnSuspended, match="until 2030-05-01 13:00:00 UTC") as caught:
                drive(form, journal, "r", loop, max_resumes=0)
            assert caught.value.details == {"run_id": "r", "seq": 0, "due_at": due}
            clocks.wall += 60
        assert journal.interrupted_runs() == ["r"]
    with RunJournal(address) as journal:
        assert journal.pending_sleeps() == journal.pending_sleeps("r") == [PendingSleep("r", 0, due)]
        assert journal.pending_sleeps("s") == []
        clocks.wall = due
        assert journal.pending_sleeps() == []
        assert drive(form, journal, "r", loop, max_resumes=0) == "awake"
        assert clocks.waited == []


def test_where_a_sleep_is_waited_for_is_no_part_of_it(form: Form, journal: RunJournal, clocks: Clocks) -> None:
    with pytest.raises(TurnSuspended):
        drive(form, journal, "r", partial(an_hour, suspend=True))
    clocks.wall += HOUR / 2
    assert drive(form, journal, "r", an_hour) == "awake"
    assert clocks.slept == HOUR / 2


def test_a_run_that_ended_sleeps_no_more(form: Form, journal: RunJournal, clocks: Clocks) -> None:
    with pytest.raises(TurnSuspended):
        drive(form, journal, "r", partial(an_hour, suspend=True))
    assert len(journal.pending_sleeps()) == 1
    journal.close_run("r", "cancelled")
    assert journal.pending_sleeps() == []
    drive(form, journal, "r", lambda run: run.sleep(HOUR))
    assert clocks.waited == []


def test_what_is_called_sleep_and_is_none_is_not_listed(form: Form, journal: RunJournal) -> None:
    interrupt(form, journal, "r", lambda run: run.tool("t", {}, lambda: {"name": "sleep", "result": 1e10}))
    interrupt(form, journal, "r", lambda run: run.tool("t", {}, Tool()))
    assert journal.pending_sleeps() == []


@pytest.mark.parametrize("result", [None, "soon", True, -1, 1e300, 1e10])
def test_a_sleep_that_another_program_has_noted_is_listed_when_it_has_a_time(journal: RunJournal, result: Any) -> None:
    journal.open_run("r")
    journal.append(JournalEvent("r", 0, KIND_TOOL_RESULT, {"name": "sleep", "result": result}))
    assert [sleep.until for sleep in journal.pending_sleeps()] == ([1e10] if result == 1e10 else [])


def test_a_sleep_is_listed_whatever_redact_puts_beside_it(form: Form, address: Any, clocks: Clocks) -> None:
    with RunJournal(address, redact=lambda payload: {"by": "us", **payload}) as journal:
        for _ in range(2):
            with pytest.raises(TurnSuspended):
                drive(form, journal, "r", partial(an_hour, suspend=True))
        assert [sleep.until for sleep in journal.pending_sleeps()] == [NOON.timestamp() + HOUR]


def test_a_rehearsal_waits_for_nothing(journal: RunJournal, clocks: Clocks) -> None:
    def loop(journal: RunJournal, run_id: str, suspend: bool = False) -> None:
        with DurableRun(journal, run_id) as run:
            run.sleep(HOUR, suspend=suspend)
            run.iteration(0)

    with pytest.raises(TurnSuspended):
        loop(journal, "r", suspend=True)
    assert check_replay(journal, "r", loop)[1:] == (1, 1, None)
    loop(journal, "r")
    clocks.wall = NOON.timestamp()
    clocks.waited.clear()
    assert check_replay(journal, "r", loop)[1:] == (2, 2, None)
    assert clocks.waited == []
