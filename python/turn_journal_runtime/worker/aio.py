"""The same for asyncio: names, arguments, results and errors as in `worker`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import psycopg
from procrastinate import exceptions
from psycopg import errors

from ..address import is_database, turn_journal_path
from ..errors import InvalidJournalError, JournalStoreError
from ..run_journal.postgres.address import Address
from ..run_journal.postgres.faults import typed_error
from ..turns.plan import plan_turn
from .queue import Job, defer, open_queue

__all__ = ["defer_turn", "queue_error", "refuse_folder"]

_NOT_MIGRATED: Final = (errors.UndefinedFunction, errors.UndefinedObject, errors.UndefinedTable)


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
    at = None if not_before is None else datetime.fromtimestamp(not_before, UTC)
    queue = open_queue(runtime_root, for_one_call=True)
    try:
        async with queue.open_async():
            return await defer(queue, job, at=at, sooner=at is None)
    except (psycopg.Error, exceptions.ConnectorException) as error:
        raise queue_error(error, runtime_root) from error


def refuse_folder(runtime_root: str) -> None:
    """Raises when a root is no database.

    Raises:
        InvalidJournalError: `invalid_request`.
    """
    if not is_database(runtime_root):
        raise InvalidJournalError(
            "Workers drive the turns of a database: give postgresql://…. Those of a folder are driven by run_turn and "
            "`turn-journal recover --yes`.",
            kind="invalid_request",
            details={"field": "runtime_root"},
        )


def queue_error(error: Exception, runtime_root: str) -> Exception:
    """What procrastinate or its driver raised, in the errors of the tree."""
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    shown = Address(runtime_root).shown
    if isinstance(
        cause, psycopg.errors.UndefinedObject | psycopg.errors.UndefinedFunction | psycopg.errors.UndefinedTable
    ):
        return JournalStoreError(
            f"The database {shown} lacks the queue's tables: run `turn-journal store migrate` with its address.",
            kind="store_schema_missing",
            details={"path": shown},
        )
    return typed_error(cause, shown) if isinstance(cause, psycopg.Error) else error
