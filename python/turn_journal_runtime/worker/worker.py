"""A worker: takes due turns from the queue and has the program's entry drive them, until it is told to stop.

It keeps its turns apart from their jobs: a queue that is lost for a while costs no turn, as long as its lease lasts.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import platform
import signal
import time
from collections import Counter, defaultdict
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psycopg
from procrastinate import JobContext, RetryDecision, exceptions
from procrastinate.jobs import Status
from procrastinate.retry import BaseRetryStrategy

from ..errors import TurnJournalError
from ..run_journal.postgres.address import Address
from ..settings import current
from .driving import Outcome, due_turn, in_thread, outcome_of, stopped_turns
from .faults import Trouble, queue_error, refuse_folder
from .log import say
from .queue import DRIVE, FIND, Job, defer, open_queue, queue_of, waiting_in
from .schema import refuse_other_version

if TYPE_CHECKING:
    from procrastinate import App
    from procrastinate.app import WorkerOptions
    from procrastinate.jobs import Job as QueuedJob

    from ..session_recovery import SessionBindingResolver
    from ..turns.due import DueTurn
    from ..turns.recovery import AtRest
    from .driving import Entry

__all__ = ["Summary", "run_worker"]

_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
#: As commands take it, and as tables show it.
_SHORT_KEY: Final = len("sha256:") + 12
#: How long a job that its worker does not finish is left with it, when the queue was lost.
_JOB_SECONDS: Final = 1.0
#: How long the queue is waited for, and after the grace the turns that are cancelled, when the database is lost.
_END_SECONDS: Final = 5.0
_FIRST_PAUSE, _LONGEST_PAUSE = 0.5, 10.0
#: Seconds in which a signal that comes twice is one: `timeout` and a terminal tell a process, and its group as well.
_AT_ONCE: Final = 0.5
_QUEUE_LOST: Final = (exceptions.ConnectorException, exceptions.AppNotOpen, psycopg.Error)


class Summary(NamedTuple):
    """What a worker did, when it has ended: how many turns came to what, and how many it left behind undriven."""

    events: dict[str, int]
    #: Turns whose entry did not come to an end in time: they are free when their leases end.
    left: int


async def run_worker(
    runtime_root: str,
    entry: Entry,
    *,
    concurrency: int = 1,
    goal_id: str | None = None,
    retry_failed: bool = False,
    session_binding_resolver: SessionBindingResolver | None = None,
    every: int = 10,
    grace: float = 30.0,
) -> Summary:
    """Drives the turns of a database that are due, until SIGTERM or SIGINT; to be run in the main thread.

    After the first signal no more turns are taken, and those at hand have `grace` seconds. Then async entries are
    cancelled and sync ones interrupted, as by Ctrl-C, which releases their turns. One that does not end by that, such
    as a sync one in a call that does not return, is left: its turn is free when its lease ends. A second signal ends
    the process at once, unless it is the same one that comes twice in half a second.

    Args:
        runtime_root: The database: `postgresql://…`.
        entry: What drives a turn: called with a `DueTurn`, sync or async, as by `turn-journal recover`.
        concurrency: How many turns are driven at a time.
        goal_id: Only the turns of this goal.
        retry_failed: Try failed turns again when their back-off has passed.
        session_binding_resolver: Handed to the entry with each turn.
        every: Seconds between two looks at the store for turns that stopped, 1 to 60; of all workers one looks.
        grace: Seconds that turns at hand get after the first signal.

    Raises:
        ValueError: A number is out of its bounds.
        InvalidJournalError: The root is no database.
        JournalStoreError: `store_schema_missing` or `store_schema_older`; or the database cannot be reached at first.

    Specified in session-recovery.md, section 3.
    """
    if concurrency < 1 or not 1 <= every <= 60 or not grace >= 0:
        raise ValueError(
            f"A worker has a concurrency of at least 1, looks every 1 to 60 seconds, and its grace is not negative: "
            f"{concurrency=}, {every=}, {grace=}."
        )
    refuse_folder(runtime_root)
    worker = _Worker(runtime_root, entry, concurrency, goal_id, retry_failed, session_binding_resolver, every, grace)
    return await worker.run()


class _NoRoom(Exception):
    """The turns of before the queue was lost still take up the worker's places."""


class _Again(BaseRetryStrategy):
    """A job that its worker gave up goes back to the queue; its turn decides whether it is driven."""

    def get_retry_decision(self, *, exception: BaseException, job: QueuedJob) -> RetryDecision:
        del job
        seconds = 1 if isinstance(exception, _NoRoom) else round(current().turn_lease)
        return RetryDecision(retry_in={"seconds": seconds})


class _Worker:
    def __init__(
        self,
        root: str,
        entry: Entry,
        concurrency: int,
        goal_id: str | None,
        retry_failed: bool,
        resolver: SessionBindingResolver | None,
        every: int,
        grace: float,
    ) -> None:
        self._root = root
        self._shown = Address(root).shown
        self._entry = entry
        self._concurrency = concurrency
        self._goal_id = goal_id
        self._retry_failed = retry_failed
        self._resolver = resolver
        self._every = every
        self._grace = grace
        self._drives: dict[str, asyncio.Task[None]] = {}
        #: By what is looked for.
        self._looks: dict[tuple[str | None, bool], asyncio.Task[None]] = {}
        #: By the same: failed turns stay in the store, and need not be read again at each look.
        self._at_rest: defaultdict[tuple[str | None, bool], AtRest] = defaultdict(dict)
        self._events: Counter[str] = Counter()
        self._stopping = asyncio.Event()
        #: By the monotonic clock, once it is told to stop: when the turns at hand have had their grace.
        self._grace_ends = 0.0
        #: The last signal that was heard, and when.
        self._told = (0, 0.0)
        self._damaged: set[str] = set()
        self._queue = self._make_queue()

    async def run(self) -> Summary:
        loop = asyncio.get_running_loop()
        handler = loop.get_exception_handler()
        loop.set_exception_handler(_unheard)
        for one in _SIGNALS:
            loop.add_signal_handler(one, self._stop, one)
        left = 0
        try:
            if await self._may_start():
                which = "all goals" if self._goal_id is None else f"goal {self._goal_id}"
                place = f"process {os.getpid()} on {platform.node()}"
                say("started", f": {place}, {which} of {self._shown}, {self._concurrency} at a time")
                async with self._queue.open_async():
                    await self._serve()
                    left = await self._finish()
        finally:
            loop.set_exception_handler(handler)
            for one in _SIGNALS:
                loop.remove_signal_handler(one)
        counted = ", ".join(f"{count} {event}" for event, count in self._events.items())
        say("stopped", f": {counted or 'no turns'}", self._events)
        return Summary(dict(self._events), left)

    async def _may_start(self) -> bool:
        """Looks at the queue's tables; False when it is told to stop meanwhile."""
        check = in_thread(partial(refuse_other_version, self._root), "tables")
        await self._unless_stopped(check)
        if not check.done():
            check.cancel()
            return False
        check.result()
        return not self._stopping.is_set()

    async def _unless_stopped(self, work: asyncio.Future[Any]) -> None:
        """Waits until something is done, or the worker is told to stop."""
        stop = asyncio.create_task(self._stopping.wait())
        try:
            await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            stop.cancel()

    # The queue

    def _make_queue(self) -> App:
        queue = open_queue(self._root)
        own = None if self._goal_id is None else queue_of(self._goal_id)
        queue.task(name=DRIVE, retry=_Again())(self._drive_job)
        find = queue.task(name=FIND, pass_context=True)(self._find_job)
        name = f"{own or 'all'}{'+failed' if self._retry_failed else ''}"
        queue.periodic(
            cron=f"* * * * * {'0' if self._every == 60 else f'*/{self._every}'}",
            periodic_id=name,
            queue=own or "all",
            queueing_lock=f"find {name}",
            priority=1,
            task_kwargs={"goal_id": self._goal_id, "retry_failed": self._retry_failed},
        )(find)
        return queue

    async def _serve(self) -> None:
        """Works the queue; when it is lost, waits for it to come back while the turns at hand go on."""
        pause = _FIRST_PAUSE
        while not self._stopping.is_set():
            begun = time.monotonic()
            with Trouble() as trouble:
                try:
                    await self._serve_once()
                except (psycopg.Error, exceptions.ConnectorException) as error:
                    trouble.error = error
            if self._stopping.is_set():
                return
            why = None if trouble.error is None else queue_error(trouble.error, self._root)
            if why is not None and not isinstance(why, TurnJournalError):
                raise why
            pause = _FIRST_PAUSE if time.monotonic() - begun > _LONGEST_PAUSE else min(pause * 2, _LONGEST_PAUSE)
            say("unreachable", f": the queue is tried again in {pause:g} s ({why or 'it ended by itself'})")
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)

    async def _serve_once(self) -> None:
        lease = current().turn_lease
        options: WorkerOptions = {
            "concurrency": self._concurrency,
            "install_signal_handlers": False,
            "delete_jobs": "always",
            "fetch_job_polling_interval": float(self._every),
            "update_heartbeat_interval": lease / 3,
            "stalled_worker_timeout": lease,
            "shutdown_graceful_timeout": _JOB_SECONDS,
        }
        if self._goal_id is not None:
            options["queues"] = [queue_of(self._goal_id)]
        work = asyncio.create_task(self._queue.run_worker_async(**options))
        try:
            await self._unless_stopped(work)
        finally:
            work.cancel()
            await asyncio.wait({work}, timeout=_JOB_SECONDS + _END_SECONDS)
        if work.done() and not work.cancelled() and (error := work.exception()) is not None:
            raise error

    # Jobs

    async def _find_job(self, context: JobContext, timestamp: int, goal_id: str | None, retry_failed: bool) -> None:
        """Begins a look for what stopped, unless one is under way: a store may take longer for it than there is between
        two of them, and turns are driven meanwhile."""
        del context, timestamp
        look = self._looks.get((goal_id, retry_failed))
        if look is None or look.done():
            self._looks[goal_id, retry_failed] = asyncio.create_task(self._find(goal_id, retry_failed))

    async def _find(self, goal_id: str | None, retry_failed: bool) -> None:
        """Puts the turns that stopped into the queue, and the jobs of workers that died back into it."""
        lease = current().turn_lease
        try:
            for job in await self._queue.job_manager.get_stalled_jobs(seconds_since_heartbeat=lease):
                await self._give_back(job)
            # Those come up by themselves: a thousand that sleep are not looked into each time.
            waiting = await waiting_in(self._queue, goal_id)
            rests = self._at_rest[goal_id, retry_failed]
            stopped = stopped_turns(self._root, goal_id=goal_id, retry_failed=retry_failed, but=waiting, at_rest=rests)
            for turn in await stopped:
                if turn.damage is not None:
                    self._tell_damage(f"{turn.goal_id}/{turn.turn_key}", turn.damage)
                elif turn.turn_key not in self._drives and turn.agent_id is not None and turn.todo_id is not None:
                    names = (turn.goal_id, turn.agent_id, turn.todo_id, turn.turn_instance_id, turn.turn_key)
                    await defer(self._queue, Job(*names, retry_failed))
        except TurnJournalError as error:
            say("unreachable", f": no look for turns that stopped ({error.message})")
        except _QUEUE_LOST:
            pass  # said by who serves it

    async def _give_back(self, job: QueuedJob) -> None:
        manager = self._queue.job_manager
        # Another worker may have done it just now.
        with contextlib.suppress(exceptions.ConnectorException):
            if job.task_name == DRIVE:
                with contextlib.suppress(exceptions.UniqueViolation):  # its turn waits there already
                    await manager.retry_job(job)
                    return
            await manager.finish_job(job, Status.FAILED, delete_job=True)

    def _tell_damage(self, name: str, damage: str) -> None:
        if name not in self._damaged:
            self._damaged.add(name)
            say("blocked", f" {name}: it cannot be read: {damage}")

    async def _drive_job(self, **said: Any) -> None:
        """A job lasts as long as its turn is driven here, and no longer than its queue is there."""
        job = Job(**said)
        drive = self._drives.get(job.turn_key)
        if drive is None:
            if len(self._drives) >= self._concurrency:
                raise _NoRoom
            drive = self._drives[job.turn_key] = asyncio.create_task(self._drive(job))
            drive.add_done_callback(lambda _: self._drives.pop(job.turn_key, None))
        await asyncio.shield(drive)

    # Turns

    async def _drive(self, job: Job) -> None:
        try:
            due = await due_turn(self._root, job, self._resolver)
            if isinstance(due, float):
                await self._look_again(job, due)
            elif isinstance(due, Outcome):
                self._tell(job, due)
            elif due is not None:
                outcome = await self._driven(due, job)
                if outcome.again_at is not None:
                    again = 0 if outcome.event == "sleeps" else job.again + 1
                    await self._look_again(job._replace(again=again), outcome.again_at)
        except asyncio.CancelledError:
            self._tell(job, Outcome("released", "it was not over in time, and is free"))
            await asyncio.shield(self._look_again(job, time.time()))
        except TurnJournalError as error:
            say("unreachable", f": {_name(job)} is left alone for now ({error.message})")
            await self._look_again(job._replace(again=job.again + 1), time.time() + self._every)
        except Exception as error:
            say("failed", f" {_name(job)}: not by its entry, but by its worker", error=error)
            raise

    async def _driven(self, due: DueTurn, job: Job) -> Outcome:
        say("took", f" {_name(job)}: from {due.resume_from}", _fields(job))
        begun = time.monotonic()
        outcome = await outcome_of(self._entry, due, job)
        self._tell(job, outcome, f", after {time.monotonic() - begun:.1f} s")
        return outcome

    def _tell(self, job: Job, outcome: Outcome, after: str = "") -> None:
        self._events[outcome.event] += 1
        when = "" if outcome.again_at is None else f"; again at {_moment(outcome.again_at)}"
        say(outcome.event, f" {_name(job)}: {outcome.text.rstrip('.')}{after}{when}", _fields(job))

    async def _look_again(self, job: Job, at: float) -> None:
        """Has the turn looked at again; where the queue cannot be had, the store tells of it."""
        with contextlib.suppress(*_QUEUE_LOST):
            await defer(self._queue, job, at=datetime.fromtimestamp(at, UTC), sooner=True)

    # The end

    def _stop(self, which: int) -> None:
        name = signal.Signals(which).name
        (before, at), now = self._told, time.monotonic()
        if which == before and now - at < _AT_ONCE:
            return
        self._told = which, now
        if self._stopping.is_set():
            say("stopped at once", f": {name} again; {len(self._drives)} turns are free when their leases end")
            logging.shutdown()
            os._exit(128 + which)
        say("stopping", f": {name}; {len(self._drives)} turns at hand have {self._grace:g} s")
        self._grace_ends = now + self._grace
        self._stopping.set()

    async def _finish(self) -> int:
        """Waits for the turns at hand, and cancels those that are not over; how many of them are still driven."""
        for look in self._looks.values():
            look.cancel()
        if self._drives:
            await asyncio.wait(set(self._drives.values()), timeout=max(self._grace_ends - time.monotonic(), 0.0))
        late = set(self._drives.values())
        for drive in late:
            drive.cancel()
        if not late:
            return 0
        _, stuck = await asyncio.wait(late, timeout=_END_SECONDS)
        return self._events["left"] + len(stuck)


def _unheard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """A job whose end could not be noted is nobody's trouble: it is given out again, and its turn is over."""
    if not isinstance(context.get("exception"), exceptions.ConnectorException):
        loop.default_exception_handler(context)


def _name(job: Job) -> str:
    return f"{job.goal_id}/{job.turn_key[:_SHORT_KEY]} ({job.todo_id})"


def _fields(job: Job) -> dict[str, str]:
    return {"goal_id": job.goal_id, "agent_id": job.agent_id, "turn_key": job.turn_key}


def _moment(seconds: float) -> str:
    return time.strftime("%H:%M:%SZ", time.gmtime(seconds))
