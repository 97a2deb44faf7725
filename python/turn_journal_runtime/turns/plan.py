"""What a turn is, before anything of it is done: its envelope, its settlement identity, its key."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import rfc8785

from ..errors import InvalidJournalError

if TYPE_CHECKING:
    from collections.abc import Mapping

PHASES: Final = (
    "host_execute",
    "typed_result",
    "validation",
    "durable_writeback",
    "quota_spend",
    "scheduler_apply",
    "scheduler_ack",
)

#: Hashed together with a turn's identity, so that a later way to make keys makes other ones.
_IDENTITY_SCHEMA: Final = "turn_journal_runtime_turn_identity_v1"


@dataclass(frozen=True)
class TurnPlan:
    """The plan of a turn. The same inputs make the same plan, so that calling again is resuming."""

    goal_id: str
    agent_id: str
    todo_id: str
    turn_key: str
    effect_id: str
    #: The plan as the journal has it.
    document: dict[str, Any]

    def effect_ref(self, step: str) -> str:
        """The idempotency key of one of the turn's steps."""
        return f"{self.effect_id}#{step}"


def plan_turn(
    *,
    goal_id: str,
    agent_id: str,
    todo_id: str,
    turn_instance_id: str | None = None,
    session: Mapping[str, Any] | None = None,
) -> TurnPlan:
    """Plans the turn of an agent for one todo of a goal.

    Args:
        goal_id: The goal.
        agent_id: The agent that does the turn.
        todo_id: The work of the turn.
        turn_instance_id: Tells several turns for the same todo apart; without it there is one, named by its key.
        session: How the host's session is planned, `{action: "start_new" | "resume", id?, context_policy?}`; it is no
            part of the turn's identity.

    Raises:
        InvalidJournalError: `invalid_request`, for an id that cannot name anything.

    Specified in turn-journal.md, section 2, and session-recovery.md, section 3.
    """
    names = {"goal_id": goal_id, "agent_id": agent_id, "todo_id": todo_id}
    for field, value in names.items():
        _check_identity(field, value)
    turn_key = _key_of(names)
    if turn_instance_id is not None and turn_instance_id != turn_key:
        names["turn_instance_id"] = turn_instance_id
        for field, value in names.items():
            _check_identity(field, value, may_have_colons=False)
        turn_key = _key_of(names)
    instance = turn_instance_id or turn_key
    effect_id = f"{goal_id}:{agent_id}:{todo_id}:{instance}"
    settlement = {
        "schema_version": "quota_settlement_identity_v1",
        "goal_id": goal_id,
        "agent_id": agent_id,
        "todo_id": todo_id,
        "turn_instance_id": instance,
        "binding_kind": "todo",
        "binding_id": todo_id,
        "effect_id": effect_id,
    }
    document = {
        "turn_envelope": {
            "goal_id": goal_id,
            "agent_id": agent_id,
            "action": {"selected_todo": {"todo_id": todo_id}},
        },
        "transaction": {
            "turn_key": turn_key,
            "turn_instance_id": instance,
            "settlement_plan": {"schema_version": "quota_settlement_plan_v1", "identity": settlement},
        },
        "session": dict(session or {"action": "start_new"}),
    }
    return TurnPlan(goal_id, agent_id, todo_id, turn_key, effect_id, document)


def _key_of(names: Mapping[str, str]) -> str:
    identity = {"schema_version": _IDENTITY_SCHEMA, **names}
    return f"sha256:{hashlib.sha256(rfc8785.dumps(identity)).hexdigest()}"


def _check_identity(field: str, value: Any, *, may_have_colons: bool = True) -> None:
    problem = None
    if not isinstance(value, str) or not value or value != value.strip():
        problem = "is a text that is not empty and has no white space around it"
    elif len(value) > 256 or not value.isprintable():
        problem = "has at most 256 characters and no control characters"
    elif not may_have_colons and ":" in value:
        # The parts are joined by colons: with one inside, two turns could share an effect id.
        problem = "has no ':' when a turn_instance_id is given"
    if problem is not None:
        raise InvalidJournalError(f"The {field} {problem}.", kind="invalid_request", details={"field": field})
