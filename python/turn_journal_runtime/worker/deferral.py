"""How a program has a turn driven by the workers."""

from __future__ import annotations

from typing import Any

from ..flow import wait_for
from . import aio

__all__ = ["defer_turn"]


def defer_turn(
    runtime_root: str,
    *,
    goal_id: str,
    agent_id: str,
    todo_id: str,
    turn_instance_id: str | None = None,
    retry_failed: bool = False,
    not_before: float | None = None,
) -> bool:
    """Has a turn driven by one of the workers; the same again while it waits is the same turn.

    Args:
        runtime_root: The database: `postgresql://…`.
        goal_id: The goal.
        agent_id: The agent that does the turn.
        todo_id: The work of the turn.
        turn_instance_id: Tells several turns for the same todo apart.
        retry_failed: Whether it is tried again when it has failed.
        not_before: Seconds since the epoch; at once when None, also when it waits for its time already.

    Returns:
        Whether it was put into the queue now; False when it waits there already.

    Raises:
        InvalidJournalError: An argument is not acceptable, or the root is no database.
        JournalStoreError: The database cannot be reached, or lacks the queue's tables (`store_schema_missing`).
    """
    given: dict[str, Any] = {
        "goal_id": goal_id,
        "agent_id": agent_id,
        "todo_id": todo_id,
        "turn_instance_id": turn_instance_id,
        "retry_failed": retry_failed,
        "not_before": not_before,
    }
    deferred: bool = wait_for(aio.defer_turn(runtime_root, **given))
    return deferred
