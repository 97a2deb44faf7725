"""Which turns stopped and may go on now: session-recovery.md, section 3, and turn-journal.md, sections 5 and 8."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeAlias

from .. import store_flows
from ..errors import TurnJournalError
from ..journal_flows import BINDING_CHECK_UNAVAILABLE, interpret, read
from . import transitions
from .due import names_of
from .outcome import retry_due

if TYPE_CHECKING:
    from collections.abc import Container

    from ..flow import Flow
    from .root import TurnRoot


#: The failed turns that do not go on as they stand, by goal and key: as which operation id they were looked into, and
#: until when that holds, in seconds since the epoch.
AtRest: TypeAlias = dict[tuple[str, str], tuple[str, float]]


@dataclass(frozen=True, kw_only=True)
class RecoverableTurn:
    """A turn that stopped and may go on, or one that cannot be read.

    Args:
        goal_id: Its goal.
        turn_key: Its key.
        agent_id: Its owner.
        todo_id: Its work.
        turn_instance_id: Which of several turns for that work it is; None when there is one.
        status: `in_progress`, `scheduler_action_required` or `failed`.
        resume_from: The phase that it goes on from.
        reason: The reason of the core's decision; `binding_check_unavailable` when it depends on the host's session.
        due_at: Since when it may go on, in seconds since the epoch, where a back-off had to pass.
        damage: What is wrong with its files; nothing else is known of it then.
    """

    goal_id: str
    turn_key: str
    agent_id: str | None = None
    todo_id: str | None = None
    turn_instance_id: str | None = None
    status: str | None = None
    resume_from: str | None = None
    reason: str | None = None
    due_at: float | None = None
    damage: str | None = None

    @property
    def names(self) -> dict[str, Any]:
        """The names to give to `run_turn`; pass `retry_failed=True` for one that is `failed`."""
        return names_of(self)


def recoverable_flow(
    root: TurnRoot,
    *,
    goal_id: str | None,
    retry_failed: bool,
    now: float | None,
    but: Container[tuple[str, str]] = (),
    at_rest: AtRest | None = None,
) -> Flow[list[RecoverableTurn]]:
    """Open turns without a driver, failed ones whose back-off has passed. One that cannot be read stops no other, and
    those in `but`, by goal and key, are not looked into; nor are those that are `at_rest` since an earlier look, where
    this one notes what it finds."""
    moment = time.time() if now is None else now
    rests: AtRest = {} if at_rest is None else at_rest
    found: list[RecoverableTurn] = []
    stopped = yield from store_flows.each(store_flows.recoverable(root.address, goal_id, False))
    failed = (yield from store_flows.each(store_flows.turns(root.address, goal_id, "failed"))) if retry_failed else []
    seen: set[tuple[str, str]] = set()
    for listed in (*stopped, *failed):
        address = (listed["goal_id"], listed["turn_key"])
        if address in seen:
            continue
        seen.add(address)
        if listed["damage"] is not None:
            found.append(_damaged(*address, listed["damage"]["message"]))
            continue
        stands = listed.get("operation_id")  # told of those that have failed
        rested_as, until = rests.get(address, ("", 0.0))
        if address in but or (rested_as == stands and moment < until):
            continue
        try:
            turn = yield from _as_it_stands(root, *address, retry_failed, _seconds(listed.get("updated_at")))
            due_at = math.inf if turn is None else turn.due_at or 0.0
            if turn is None or due_at > moment:
                if stands is not None:
                    rests[address] = (stands, due_at)
            elif not (yield from root.is_driven(root.path(*address))):
                found.append(turn)
        except TurnJournalError as error:
            found.append(_damaged(*address, error.message))
    for gone in rests.keys() - seen:
        del rests[gone]
    return found


def look_at(root: TurnRoot, goal_id: str, turn_key: str, retry_failed: bool) -> Flow[RecoverableTurn | None]:
    """A turn as it stands now, also before its `due_at`; None when it may not go on, or somebody drives it."""
    turn = yield from _as_it_stands(root, goal_id, turn_key, retry_failed)
    return None if turn is None or (yield from root.is_driven(root.path(goal_id, turn_key))) else turn


def _as_it_stands(
    root: TurnRoot, goal_id: str, turn_key: str, retry_failed: bool, updated_at: float | None = None
) -> Flow[RecoverableTurn | None]:
    """What its journal says, whoever may drive it; None when it may not go on."""
    stored = yield from read(root.path(goal_id, turn_key))
    journal = stored["journal"]
    identity = transitions.identity(journal)
    agent_id, todo_id = identity.get("agent_id"), identity.get("todo_id")
    if not isinstance(agent_id, str) or not isinstance(todo_id, str):
        return None  # a plain turn, or one of a replan: its own program drives it
    # One that somebody gave up is tried again only by whoever asks for that turn.
    retry = retry_failed and transitions.giving_up(journal) is None
    inspection = yield from interpret(
        journal, goal_id=goal_id, agent_id=agent_id, turn_key=turn_key, retry_failed=retry
    )
    decision = inspection["recovery_decision"]
    if not decision["can_continue"] and decision["reason"] != BINDING_CHECK_UNAVAILABLE:
        return None
    instance = identity.get("turn_instance_id")
    return RecoverableTurn(
        goal_id=goal_id,
        turn_key=turn_key,
        agent_id=agent_id,
        todo_id=todo_id,
        turn_instance_id=instance if instance != turn_key else None,
        status=journal["status"],
        resume_from=decision["resume_from"],
        reason=decision["reason"],
        due_at=retry_due(journal, updated_at),
    )


def _damaged(goal_id: str, turn_key: str, message: str) -> RecoverableTurn:
    return RecoverableTurn(goal_id=goal_id, turn_key=turn_key, damage=message)


def _seconds(moment: Any) -> float | None:
    return datetime.fromisoformat(moment).timestamp() if isinstance(moment, str) else None
