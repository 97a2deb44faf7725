"""Which host session belongs to which line of work: `goals/<goal>/turn-sessions/`. session-recovery.md, section 5.

A line is an agent's work on one todo of a goal, or all its work for the goal when the session's scope is the agent. A
file holds an id and whose it is, and nothing of what was said in the session.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import rfc8785

from .folders import make_folder

if TYPE_CHECKING:
    from pathlib import Path

    from .plan import TurnPlan

SESSION_BINDING_SCHEMA_VERSION: Final = "loopx_turn_session_binding_v0"


class TurnSessions:
    """The last session of a turn's line of work.

    Args:
        runtime_root: The folder that holds all turns.
        plan: The turn.
        session: How the turn's session is planned; its `context_policy.binding_scope` may be `agent`.
    """

    def __init__(self, runtime_root: Path, plan: TurnPlan, session: Mapping[str, Any]) -> None:
        self._root = runtime_root
        self._plan = plan
        policy = session.get("context_policy")
        whole_agent = isinstance(policy, Mapping) and policy.get("binding_scope") == "agent"
        line = [plan.goal_id, plan.agent_id] if whole_agent else [plan.goal_id, plan.agent_id, plan.todo_id]
        name = hashlib.sha256(rfc8785.dumps(line)).hexdigest()
        self._file = runtime_root / "goals" / plan.goal_id / "turn-sessions" / f"{name}.json"

    def note(self, session_id: str) -> None:
        """Keeps the session's id durably, before anything else is known of the attempt."""
        plan, file = self._plan, self._file
        make_folder(self._root, file.parent)
        binding = {
            "schema_version": SESSION_BINDING_SCHEMA_VERSION,
            "goal_id": plan.goal_id,
            "agent_id": plan.agent_id,
            "todo_id": plan.todo_id,
            "session_id": session_id,
            "turn_key": plan.turn_key,
        }
        draft = file.with_name(f"{file.name}.{secrets.token_hex(4)}.tmp")
        try:
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
                json.dump(binding, out)
                out.flush()
                os.fsync(out.fileno())
            os.replace(draft, file)
        except BaseException:
            with contextlib.suppress(OSError):
                draft.unlink()
            raise

    def binding(self) -> dict[str, Any] | None:
        """The binding of the line's last session; None when there is none that can be read."""
        try:
            found = json.loads(self._file.read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def forget(self) -> None:
        """The session is gone: the line starts another one."""
        with contextlib.suppress(FileNotFoundError):
            self._file.unlink()
