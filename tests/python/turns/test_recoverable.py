"""Which turns are due: open ones without a driver, failed ones whose back-off has passed, and damage stops nothing."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.turns.world import AGENT, GOAL, TODO, KilledError, Ledger, ScriptedHost, Turn, rate_limited

from turn_journal_runtime import turn_journal_path, write_turn_journal
from turn_journal_runtime.bridge import RuntimeClient, default_client
from turn_journal_runtime.flow import run
from turn_journal_runtime.turns import (
    HostFailedError,
    RecoverableTurn,
    aio,
    give_up_turn,
    recoverable_turns,
    run_turn,
)
from turn_journal_runtime.turns.recovery import AtRest, recoverable_flow
from turn_journal_runtime.turns.root import open_root

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def turn(root: Path | str) -> Turn:
    return Turn(root, is_async=False)


@pytest.fixture(params=["sync", "async"])
def due(request: pytest.FixtureRequest, root: Path | str) -> Callable[..., list[RecoverableTurn]]:
    def ask(**options: Any) -> list[RecoverableTurn]:
        if request.param == "async":
            return asyncio.run(aio.recoverable_turns(root, **options))
        return recoverable_turns(root, **options)

    return ask


def test_a_failed_host_is_due_when_its_back_off_has_passed_and_not_before(turn: Turn, due: Any) -> None:
    before = time.time()
    failed = turn.run(ScriptedHost(rate_limited()))
    assert failed.retry_due is not None
    assert before + 59 <= failed.retry_due <= time.time() + 60
    assert due() == []
    assert due(now=failed.retry_due - 0.5) == []
    (found,) = due(now=failed.retry_due)
    assert (found.turn_key, found.status, found.reason) == (failed.turn_key, "failed", "retry_failed_phase")
    assert due(now=failed.retry_due, retry_failed=False) == []
    assert run_turn(turn.root, **found.names, host=ScriptedHost(), retry_failed=True).ok
    assert due(now=failed.retry_due) == []


def test_the_back_off_doubles_with_each_attempt_and_ends_with_the_budget(turn: Turn, due: Any) -> None:
    host = ScriptedHost(*[HostFailedError(kind="transport_lost") for _ in range(3)])
    backoffs = []
    for _ in range(3):
        failed = turn.run(host, retry_failed=True)
        backoffs.append(turn.journal["host_failure"]["retry"]["backoff_seconds"])
        assert failed.retry_due is not None
        assert due(now=failed.retry_due - 2) == []
    assert backoffs == [10, 20, 40]
    assert due(now=time.time() + 1000) == []


def test_a_turn_that_waits_for_its_hosts_session_is_due(turn: Turn, due: Any) -> None:
    failed = turn.run(ScriptedHost(rate_limited(resumable=True)))
    (found,) = due(now=time.time() + 61)
    assert (found.turn_key, found.reason) == (failed.turn_key, "binding_check_unavailable")
    assert due() == []


def test_open_turns_are_due_unless_somebody_drives_them(turn: Turn, due: Any) -> None:
    turn.kill(ScriptedHost(KilledError()))
    (found,) = due()
    assert found.names == {"goal_id": GOAL, "agent_id": AGENT, "todo_id": TODO, "turn_instance_id": None}
    assert (found.status, found.resume_from, found.due_at) == ("in_progress", "host_execute", None)
    with turn.leased():
        assert due() == []
    assert due() == [found]
    waits = turn.run(ScriptedHost(), scheduler=Ledger("action_required"), todo_id="waits", turn_instance_id="7")
    assert {one.turn_key: (one.status, one.turn_instance_id) for one in due()} == {
        found.turn_key: ("in_progress", None),
        waits.turn_key: ("scheduler_action_required", "7"),
    }
    turn.run(ScriptedHost(), todo_id="done")
    assert len(due()) == 2


def test_a_damaged_turn_is_named_and_stops_no_other(turn: Turn, due: Any) -> None:
    turn.kill(ScriptedHost(KilledError()))
    if isinstance(turn.root, str):
        pytest.skip("the tables of a database take no such damage")
    turn.path.with_name("broken.json").write_text("{")
    assert {(one.turn_key, one.damage is None) for one in due()} == {
        ("broken", False),
        (due(goal_id=GOAL)[-1].turn_key, True),
    }
    assert due(goal_id="another") == []


def test_a_failure_that_has_no_back_off_is_due_at_once(turn: Turn, due: Any) -> None:
    spend = Ledger()
    spend.fails = OSError()
    failed = turn.run(ScriptedHost(), spend=spend)
    (found,) = due()
    assert (found.turn_key, found.resume_from, found.due_at) == (failed.turn_key, "quota_spend", None)


def test_a_failed_turn_is_looked_into_again_when_it_is_due_or_was_changed(turn: Turn) -> None:
    """And an open one, such as the plain one here, each time."""
    root = open_root(turn.root, default_client())
    at_rest: AtRest = {}
    read: list[str] = []

    class Reading(RuntimeClient):
        def call(self, method: str, params: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
            if method == "turn_journal.read":
                read.append(params["path"])
            return default_client().call(method, params, timeout=timeout)

    def look(now: float) -> tuple[int, list[str | None]]:
        read.clear()
        flow = recoverable_flow(root, goal_id=None, retry_failed=True, now=now, at_rest=at_rest)
        found = run(flow, Reading())
        return len(read), [one.todo_id for one in found]

    failed = turn.run(ScriptedHost(rate_limited()), todo_id="backs off")
    assert failed.retry_due is not None
    now, due = failed.retry_due - 30, failed.retry_due
    plain = {"goal_id": GOAL, "agent_id": AGENT, "turn_key": "plain", "status": "in_progress", "completed_phases": []}
    journal = {"schema_version": "loopx_turn_journal_v0", "plan": {}, **plain}
    write_turn_journal(turn_journal_path(turn.root, goal_id=GOAL, turn_key="plain"), journal)
    over = ScriptedHost(HostFailedError(kind="output_budget_exhausted"))
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "todo_id": "over"}
    turn.run(over, todo_id="over")
    assert look(now) == (3, [])
    assert look(now) == (1, [])
    assert look(due) == (2, ["backs off"])
    # A driver that has it, and has written nothing yet, may die.
    with_lease = root.acquire(root.path(GOAL, failed.turn_key))
    lease = run(with_lease, default_client())
    assert look(due) == (2, [])
    run(lease.give_back(), default_client())
    assert look(due) == (2, ["backs off"])
    # It fails once more, and what was known of it is known no longer.
    again = turn.run(ScriptedHost(rate_limited()), todo_id="backs off", retry_failed=True)
    assert again.retry_due is not None
    assert look(due) == (2, [])
    assert look(due) == (1, [])
    give_up_turn(turn.root, **names, reason="It is obsolete.", by="ann")
    assert look(due) == (2, [])
    assert look(due) == (1, [])
    assert turn.run(ScriptedHost(), todo_id="backs off", retry_failed=True).ok
    assert look(again.retry_due) == (1, [])
    assert len(at_rest) == 1, "what has not failed is not kept"
