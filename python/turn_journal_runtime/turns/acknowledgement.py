"""The scheduler's call back: session-recovery.md, section 3."""

from __future__ import annotations

import os
from pathlib import Path

from ..address import turn_journal_path
from ..errors import JournalConflictError, JournalNotFoundError
from ..flow import Ask, Flow
from ..journal_flows import interpret, read, write
from . import transitions
from .lease import acquire_lease
from .outcome import TurnResult, blocked, result_of


def acknowledge_flow(
    runtime_root: str | os.PathLike[str], *, goal_id: str, agent_id: str, turn_key: str
) -> Flow[TurnResult]:
    """Commits a turn that waits for its scheduler; one that is committed already stays as it is."""
    root = Path(os.path.abspath(runtime_root))
    path = turn_journal_path(root, goal_id=goal_id, turn_key=turn_key)
    if not path.exists():
        raise JournalNotFoundError(
            "No such turn is stored: see its goal_id and turn_key.", details={"goal_id": goal_id, "turn_key": turn_key}
        )
    lease = yield Ask(acquire_lease, (root, path))
    try:
        stored = yield from read(path)
        journal = stored["journal"]
        inspection = yield from interpret(journal, goal_id=goal_id, agent_id=agent_id, turn_key=turn_key)
        decision = inspection["recovery_decision"]
        if decision["action"] == "blocked":
            raise blocked(decision, turn_key, ())
        effect_id = str(journal["plan"]["transaction"]["settlement_plan"]["identity"]["effect_id"])
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
        lease.release()
