"""The same for asyncio: names, arguments, results and errors as in `worker`."""

from __future__ import annotations

from datetime import UTC, datetime

import psycopg
from procrastinate import exceptions

from ..address import turn_journal_path
from ..errors import InvalidJournalError
from ..turns.plan import plan_turn
from .faults import queue_error, refuse_folder
from .queue import Job, defer, open_queue

__all__ = ["defer_turn"]


async def defer_turn(
    runtime_root: str,
    *,
    goal_id: str,
    agent_id: str,
    todo_id: str,
    turn_instance_id: str | None = None,
    retry_failed: bool = False,
    not_before: float | None = None,
) -> bool:
    """Has a turn driven by one of the workers; see `worker.defer_turn`."""
    refuse_folder(runtime_root)
    plan = plan_turn(goal_id=goal_id, agent_id=agent_id, todo_id=todo_id, turn_instance_id=turn_instance_id)
    turn_journal_path(runtime_root, goal_id=goal_id, turn_key=plan.turn_key)
    job = Job(goal_id, agent_id, todo_id, turn_instance_id, plan.turn_key, retry_failed)
    at = None if not_before is None else _moment(not_before)
    queue = open_queue(runtime_root, for_one_call=True)
    try:
        async with queue.open_async():
            return await defer(queue, job, at=at, sooner=at is None)
    except (psycopg.Error, exceptions.ConnectorException) as error:
        raise queue_error(error, runtime_root) from error


def _moment(seconds: float) -> datetime:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (TypeError, ValueError, OverflowError, OSError) as error:
        raise InvalidJournalError(
            f"The not_before is a number of seconds since the epoch, as time.time() gives it, not {seconds!r:.80}.",
            kind="invalid_request",
            details={"field": "not_before"},
        ) from error
