"""Real programs as hosts: how to ask them, and how to see that nothing of them is left."""

from __future__ import annotations

from pathlib import Path

import psutil

from turn_journal_runtime.turns.host import HostRequest

PROGRAM = Path(__file__).with_name("host_program.py")


def make_request(**changes: object) -> HostRequest:
    fields: dict[str, object] = {
        "goal_id": "goal",
        "agent_id": "agent",
        "todo_id": "todo",
        "turn_key": "turn-1",
        "effect_id": "goal:agent:todo:turn-1",
        "attempt": 1,
        "turn_envelope": {"goal_id": "goal"},
        "session": {"action": "start_new"},
    }
    return HostRequest(**{**fields, **changes})  # type: ignore[arg-type]


#: Deadlines to try, in seconds, until the program had enough time to get where the test wants it.
DEADLINES = (1.0, 4.0, 16.0, 60.0)


def is_gone(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
