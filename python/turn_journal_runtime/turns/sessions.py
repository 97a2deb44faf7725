"""Which host session belongs to which line of work: `goals/<goal>/turn-sessions/`. session-recovery.md, section 5.

A file holds an id and whose it is, and nothing of what was said in the session.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
from typing import TYPE_CHECKING, Any, Final

import rfc8785

if TYPE_CHECKING:
    from pathlib import Path

    from .plan import TurnPlan

SESSION_BINDING_SCHEMA_VERSION: Final = "loopx_turn_session_binding_v0"


class TurnSessions:
    """The sessions of one runtime root; one per goal, agent and todo."""

    def __init__(self, runtime_root: Path) -> None:
        self._root = runtime_root

    def note(self, plan: TurnPlan, session_id: str) -> None:
        """Keeps the session's id durably, before anything else is known of the attempt."""
        file = self._file(plan)
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
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

    def binding(self, plan: TurnPlan) -> dict[str, Any] | None:
        """The binding of the line's last session; None when there is none that can be read."""
        try:
            found = json.loads(self._file(plan).read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def _file(self, plan: TurnPlan) -> Path:
        line = hashlib.sha256(rfc8785.dumps([plan.goal_id, plan.agent_id, plan.todo_id])).hexdigest()
        return self._root / "goals" / plan.goal_id / "turn-sessions" / f"{line}.json"
