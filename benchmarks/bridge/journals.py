"""The journals that all sides are given: turns with a valid settlement identity, made to a size."""

from __future__ import annotations

import hashlib
import json
from typing import Any

GOAL = "goal-1"
AGENT = "coder"


def turn_key(number: int) -> str:
    """One key for each turn."""
    return f"sha256:{hashlib.sha256(str(number).encode()).hexdigest()}"


def turn(number: int, size: int) -> dict[str, Any]:
    """A turn at its beginning, of about `size` bytes as compact JSON."""
    key = turn_key(number)
    identity = {
        "schema_version": "quota_settlement_identity_v0",
        "goal_id": GOAL,
        "agent_id": AGENT,
        "todo_id": "todo-9",
        "turn_instance_id": key,
        "effect_id": f"{GOAL}:{AGENT}:todo-9:{key}",
    }
    journal: dict[str, Any] = {
        "schema_version": "loopx_turn_journal_v0",
        "goal_id": GOAL,
        "turn_key": key,
        "status": "in_progress",
        "completed_phases": [],
        "plan": {
            "turn_envelope": {
                "goal_id": GOAL,
                "agent_id": AGENT,
                "action": {"selected_todo": {"todo_id": "todo-9"}},
            },
            "transaction": {
                "turn_key": key,
                "settlement_plan": {"schema_version": "quota_settlement_plan_v1", "identity": identity},
            },
            "inputs": [],
        },
    }
    inputs = journal["plan"]["inputs"]
    missing = size - len(compact(journal))
    while missing > 0:
        entry = {
            "path": f"src/module_{len(inputs):05}.py",
            "lines": 120 + len(inputs) % 7,
            "done": False,
            "note": "x" * 40,
        }
        inputs.append(entry)
        missing -= len(compact(entry)) + 1
    return journal


def compact(value: Any) -> bytes:
    """JSON without a blank."""
    return json.dumps(value, separators=(",", ":")).encode()


#: How far a turn's completed phases are after each write that follows its first.
STEPS = (
    ("host_execute", "typed_result"),
    ("host_execute", "typed_result", "validation"),
    ("host_execute", "typed_result", "validation", "durable_writeback"),
    ("host_execute", "typed_result", "validation", "durable_writeback", "quota_spend"),
)


def question(journal: dict[str, Any]) -> dict[str, Any]:
    """The parameters of an inspection."""
    return {
        "journal": journal,
        "goal_id": GOAL,
        "agent_id": AGENT,
        "turn_key": journal["turn_key"],
        "retry_failed": False,
        "session_recovery_check": None,
    }
