"""The scheduler's call back: session-recovery.md, section 3."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import JournalConflictError
from ..journal_flows import interpret, read, write
from . import transitions
from .outcome import TurnResult, blocked, result_of
from .record import read_stored

if TYPE_CHECKING:
    from ..flow import Flow
    from .root import TurnRoot


def acknowledge_flow(root: TurnRoot, *, goal_id: str, agent_id: str, turn_key: str) -> Flow[TurnResult]:
    """Commits a turn that waits for its scheduler; one that is committed already stays as it is."""
    path = root.path(goal_id, turn_key)
    yield from read_stored(path, goal_id, turn_key)  # a lease of what is not there would leave something there
    lease = yield from root.acquire(path)
    try:
        stored = yield from read(path)
        journal = stored["journal"]
        inspection = yield from interpret(journal, goal_id=goal_id, agent_id=agent_id, turn_key=turn_key)
        decision = inspection["recovery_decision"]
        if decision["action"] == "blocked":
            raise blocked(decision, turn_key, ())
        effect_id = transitions.identity(journal).get("effect_id")
        if not isinstance(effect_id, str):
            raise JournalConflictError("The turn has no scheduler to wait for: its own program drives it and ends it.")
        if journal["status"] == "committed":
            return result_of(journal, effect_id, replayed=True, decision=decision)
        if journal["status"] != "scheduler_action_required":
            raise JournalConflictError(
                f"The turn is {journal['status']} and waits for no acknowledgement: run_turn drives it on.",
                details={"status": journal["status"]},
            )
        committed = transitions.ended(transitions.completed(journal, 7), "committed")
        yield from write(
            path,
            committed,
            expected_effect_id=effect_id,
            expected_previous=stored["operation_id"],
            lease=lease.number,
        )
        return result_of(committed, effect_id, replayed=False)
    finally:
        yield from lease.give_back()
