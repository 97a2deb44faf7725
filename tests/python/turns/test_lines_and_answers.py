"""Whose a host's session is, and which answers of a readback count. session-recovery.md, sections 3 and 5."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest

from turn_journal_runtime.turns.plan import plan_turn
from turn_journal_runtime.turns.providers import CLOSEOUT, SPEND, WRITEBACK, readback_answer
from turn_journal_runtime.turns.sessions import TurnSessions


def _line(session: dict[str, Any], *names: str, instance: str | None = None) -> tuple[str, str]:
    goal_id, agent_id, todo_id = names
    plan = plan_turn(goal_id=goal_id, agent_id=agent_id, todo_id=todo_id, turn_instance_id=instance)
    return goal_id, TurnSessions(None, plan, session)._line  # type: ignore[arg-type] # nothing is read


@pytest.mark.parametrize(("session", "of_todo"), [({}, True), ({"context_policy": {"binding_scope": "agent"}}, False)])
def test_a_session_is_one_agents_and_one_todos_or_all_of_an_agents(session: dict[str, Any], of_todo: bool) -> None:
    lines = [_line(session, *names) for names in (("g", "a", "t"), ("h", "a", "t"), ("g", "b", "t"))]
    assert all(one != other for one, other in combinations(lines, 2))
    assert (_line(session, "g", "a", "u") != lines[0]) is of_todo
    assert _line(session, "g", "a", "t", instance="second") == lines[0]


@pytest.mark.parametrize("step", [WRITEBACK, SPEND, CLOSEOUT])
def test_only_a_scheduler_can_ask_to_be_waited_for(step: str) -> None:
    assert readback_answer(step, "action_required") == ("action_required" if step == CLOSEOUT else "unknown")
    assert [readback_answer(step, answer) for answer in ("committed", "absent", "unknown", "yes", None, True)] == [
        *("committed", "absent"),
        *["unknown"] * 4,
    ]
