"""The queue as it is used here: what a job says, and where it waits."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from procrastinate import App, PsycopgConnector, exceptions
from psycopg_pool import AsyncConnectionPool, AsyncNullConnectionPool

from ..run_journal.postgres.address import Address
from .schema import ENTER

if TYPE_CHECKING:
    from datetime import datetime

    from psycopg import AsyncConnection

__all__ = ["DRIVE", "FIND", "Job", "defer", "open_queue", "queue_of", "waiting_in"]

#: The names of the tasks.
DRIVE: Final = "turn_journal_runtime.drive"
FIND: Final = "turn_journal_runtime.find_due"

_MAX_CONNECTIONS: Final = 4
#: Seconds to wait for a connection: a queue that cannot be had is tried again, and holds up no stop.
_PATIENCE: Final = 5.0
#: Seconds to wait for the pool's own tasks when it is closed: one may be with a server that does not answer.
_CLOSE_SECONDS: Final = 1.0


class Job(NamedTuple):
    """A turn that is to be looked at, and driven if it may go on."""

    goal_id: str
    agent_id: str
    todo_id: str
    turn_instance_id: str | None
    turn_key: str
    #: Whether it is tried again when it has failed.
    retry_failed: bool = False
    #: How often in a row it was looked at and did not get on.
    again: int = 0


def open_queue(root: str, *, for_one_call: bool = False) -> App:
    """The queue of a runtime root, to be opened with `open_async`."""
    return App(
        connector=PsycopgConnector(
            conninfo=Address(root).conninfo(),
            configure=_enter,
            min_size=0 if for_one_call else 1,
            max_size=_MAX_CONNECTIONS,
            timeout=_PATIENCE,
            pool_factory=_PoolOfOneCall if for_one_call else _Pool,
        )
    )


class _Pool(AsyncConnectionPool):
    """Waits neither when it is opened nor when it is closed for a server that does not answer."""

    async def open(self, wait: bool = False, timeout: float = _PATIENCE) -> None:  # noqa: ASYNC109 - as the pool has it
        """Gets ready; who needs a connection waits for it."""
        await super().open(wait=False, timeout=timeout)

    async def close(self, timeout: float = _CLOSE_SECONDS) -> None:  # noqa: ASYNC109 - as the pool has it
        """Closes the connections."""
        await super().close(timeout)


class _PoolOfOneCall(_Pool, AsyncNullConnectionPool):
    """Connects when the call does: a server that is not there is said at once, and why."""


async def _enter(connection: AsyncConnection[Any]) -> None:
    await connection.set_autocommit(True)
    await connection.execute(ENTER)


def queue_of(goal_id: str) -> str:
    """The name of a goal's queue: short enough to be listened to, whatever the goal's is."""
    return f"goal-{hashlib.sha256(goal_id.encode()).hexdigest()[:24]}"


async def defer(queue: App, job: Job, *, at: datetime | None = None, sooner: bool = False) -> bool:
    """Has a turn looked at, at a time or at once. A turn waits at most once; whether it was put in now.

    Args:
        queue: An open queue.
        job: The turn.
        at: Not before.
        sooner: Take the place of one that waits for a later time.
    """
    lock = f"{job.goal_id}/{job.turn_key}"
    task = queue.configure_task(DRIVE, queue=queue_of(job.goal_id), queueing_lock=lock, schedule_at=at)
    while True:
        try:
            await task.defer_async(**job._asdict())
        except exceptions.AlreadyEnqueued:
            waiting = await queue.job_manager.list_jobs_async(queueing_lock=lock, status="todo") if sooner else ()
            later = [one for one in waiting if one.scheduled_at and (at is None or one.scheduled_at > at)]
            if not later:
                return False
            for one in later:
                if one.id is not None:
                    await queue.job_manager.cancel_job_by_id_async(one.id, delete_job=True)
        else:
            return True


async def waiting_in(queue: App, goal_id: str | None) -> set[tuple[str, str]]:
    """The turns that wait to be looked at, now or later, by goal and key; of one goal, or of all."""
    own = None if goal_id is None else queue_of(goal_id)
    jobs = await queue.job_manager.list_jobs_async(queue=own, task=DRIVE, status="todo")
    return {(str(job.task_kwargs["goal_id"]), str(job.task_kwargs["turn_key"])) for job in jobs}
