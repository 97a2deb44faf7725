"""A turn that may go on, as it is handed to what drives it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..session_recovery import SessionBindingResolver
    from .recovery import RecoverableTurn


def names_of(turn: DueTurn | RecoverableTurn) -> dict[str, Any]:
    """How `run_turn` calls a turn."""
    return {
        "goal_id": turn.goal_id,
        "agent_id": turn.agent_id,
        "todo_id": turn.todo_id,
        "turn_instance_id": turn.turn_instance_id,
    }


@dataclass(frozen=True, slots=True)
class DueTurn:
    """What an entry point is handed: a turn that may go on.

    Args:
        runtime_root: Where it is stored.
        goal_id: Its goal.
        agent_id: Its owner.
        turn_key: Its key.
        todo_id: Its work; None for a plain turn.
        turn_instance_id: Which of several turns for that work it is, when it says so.
        resume_from: The phase it goes on from.
        retry_failed: Whether it failed and is to be tried again.
        session_binding_resolver: What `--resolver` named, for `run_turn`; None: nothing was named.
    """

    #: Not shown: the URL of a database may carry a password.
    runtime_root: str = field(repr=False)
    goal_id: str
    agent_id: str
    turn_key: str
    todo_id: str | None
    turn_instance_id: str | None
    resume_from: str
    retry_failed: bool
    session_binding_resolver: SessionBindingResolver | None = None

    @property
    def names(self) -> dict[str, Any]:
        """The names to give to `run_turn`, which drives turns with a todo."""
        return names_of(self)
