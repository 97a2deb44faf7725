"""What the executor asks of the core."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..flow import Call

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def read_call(path: Path) -> Call:
    """The stored journal, with its operation id."""
    return Call("turn_journal.read", {"path": str(path)})


def inspect_call(
    journal: Mapping[str, Any],
    goal_id: str,
    agent_id: str,
    turn_key: str,
    retry_failed: bool = False,
    session_recovery_check: Any = None,
) -> Call:
    """What the core says of a journal."""
    return Call(
        "turn_journal.inspect",
        {
            "journal": journal,
            "goal_id": goal_id,
            "agent_id": agent_id,
            "turn_key": turn_key,
            "retry_failed": retry_failed,
            "session_recovery_check": session_recovery_check,
        },
    )


def write_call(path: Path, journal: Mapping[str, Any], previous: str | None, effect_id: str, lease: int) -> Call:
    """One transition, by the holder of the lease, after the journal that it has seen."""
    return Call(
        "turn_journal.write",
        {
            "path": str(path),
            "journal": journal,
            "expected_effect_id": effect_id,
            "expected_previous": previous,
            "lease": lease,
        },
    )
