"""Which host session belongs to which line of work. session-recovery.md, section 5.

A line is an agent's work on one todo of a goal, or all its work for the goal when the session's scope is the agent. A
binding holds an id and whose it is, and nothing of what was said in the session.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import rfc8785

if TYPE_CHECKING:
    from ..flow import Flow
    from .plan import TurnPlan
    from .root import Bindings

SESSION_BINDING_SCHEMA_VERSION: Final = "loopx_turn_session_binding_v0"


class TurnSessions:
    """The last session of a turn's line of work.

    Args:
        bindings: Where the root keeps them.
        plan: The turn.
        session: How the turn's session is planned; its `context_policy.binding_scope` may be `agent`.
    """

    def __init__(self, bindings: Bindings, plan: TurnPlan, session: Mapping[str, Any]) -> None:
        self._bindings = bindings
        self._plan = plan
        policy = session.get("context_policy")
        whole_agent = isinstance(policy, Mapping) and policy.get("binding_scope") == "agent"
        line = [plan.goal_id, plan.agent_id] if whole_agent else [plan.goal_id, plan.agent_id, plan.todo_id]
        self._line = hashlib.sha256(rfc8785.dumps(line)).hexdigest()

    def note(self, session_id: str) -> None:
        """Keeps a session's id, durably, before anything else happens in the session."""
        plan = self._plan
        binding = {
            "schema_version": SESSION_BINDING_SCHEMA_VERSION,
            "goal_id": plan.goal_id,
            "agent_id": plan.agent_id,
            "todo_id": plan.todo_id,
            "session_id": session_id,
            "turn_key": plan.turn_key,
        }
        self._bindings.write(plan.goal_id, self._line, binding)

    def binding(self) -> Flow[dict[str, Any] | None]:
        """The binding of the line's last session; None when there is none that can be read."""
        return self._bindings.read(self._plan.goal_id, self._line)

    def forget(self) -> Flow[None]:
        """The session is gone: the line starts another one."""
        return self._bindings.remove(self._plan.goal_id, self._line)
