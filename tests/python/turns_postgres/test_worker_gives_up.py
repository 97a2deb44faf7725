"""A worker and turns that shall not go on: what was given up is dropped, what it drives is named, and taken from it."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.chaos.hosts.fleet import AGENT, GOAL, Fleet, FleetWorker
from tests.process.hosts.harness import is_gone
from tests.python.cli.conftest import command
from tests.python.turns.roots import emptied
from tests.python.turns.world import KilledError, ScriptedHost, rate_limited

from turn_journal_runtime import GivenUpTurn, TurnBusyError, give_up_turn, recoverable_turns, run_turn
from turn_journal_runtime.turns.plan import plan_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Eventually
    from tests.python.cli.conftest import Command

__all__ = ["command"]

pytestmark = pytest.mark.process

NAMES: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT}


@pytest.fixture
def fleet(database: str, tmp_path: Path) -> Iterator[Fleet]:
    yield Fleet(database, tmp_path)
    emptied(database)


@pytest.fixture
def hire(fleet: Fleet) -> Iterator[Callable[..., FleetWorker]]:
    hired: list[FleetWorker] = []

    def start(*arguments: str, entry: str = "drive", lease: float = 3.0) -> FleetWorker:
        arguments = ("--every", "1", *arguments)
        hired.append(FleetWorker(fleet.url, fleet.world, "worker", lease=lease, arguments=arguments, entry=entry))
        return hired[-1]

    yield start
    for worker in hired:
        worker.kill()


def give_up(fleet: Fleet, todo: str, **options: Any) -> GivenUpTurn:
    return give_up_turn(fleet.url, **NAMES, todo_id=todo, reason="The task is obsolete.", by="anna", **options)


def jobs(fleet: Fleet) -> int:
    with psycopg.connect(fleet.url) as connection:
        found = connection.execute(
            "SELECT count(*) FROM public_turn_queue.procrastinate_jobs WHERE task_name LIKE '%drive'"
        ).fetchone()
    return 0 if found is None else int(found[0])


def pids(fleet: Fleet) -> list[int]:
    file = fleet.world / "pids"
    return list(map(int, file.read_text().split())) if file.exists() else []


def test_what_waits_in_the_queue_is_dropped_once_it_was_given_up(
    fleet: Fleet, hire: Any, eventually: Eventually
) -> None:
    with pytest.raises(KilledError):
        run_turn(fleet.url, **NAMES, todo_id="open", host=ScriptedHost(KilledError()))
    assert run_turn(fleet.url, **NAMES, todo_id="failed", host=ScriptedHost(rate_limited())).status == "failed"
    for todo in ("open", "failed"):
        assert fleet.defer(todo, retry_failed=True)
        assert give_up(fleet, todo).changed
    fleet.defer("fine")
    # It looks for failed turns, too: those are not among them.
    worker = hire("--retry-failed")
    eventually(lambda: fleet.committed() == 1, 90)
    eventually(lambda: jobs(fleet) == 0, 30)
    time.sleep(2.5)  # some looks at the store
    code, answer = worker.stop()
    assert (code, json.loads(answer)["events"]) == (0, {"dropped": 2, "done": 1})
    assert fleet.statuses() == {"failed": 2, "committed": 1}
    log = worker.said()
    assert (log.count(" dropped goal/sha256:"), log.count(" took ")) == (2, 1)
    assert "(open): it was given up by anna at 2" in log
    assert log.count(": The task is obsolete") == 2


def test_a_worker_that_drives_the_turn_is_named_and_loses_it_when_it_is_taken(
    fleet: Fleet, hire: Any, eventually: Eventually, command: Command
) -> None:
    fleet.defer("program")
    worker = hire(entry="run_program")
    eventually(lambda: len(pids(fleet)) == 3, 90)
    key = plan_turn(**NAMES, todo_id="program").turn_key
    looked = command("give-up", f"{GOAL}/{key}", "--root", fleet.url, "-f", "json").json
    assert (looked["driven"], looked["done"], looked["failed_phase"]) == (True, False, "host_execute")
    with pytest.raises(TurnBusyError) as busy:
        give_up(fleet, "program")
    assert busy.value.details["pid"] == worker.process.pid
    assert f"process {worker.process.pid} on {busy.value.details['host']}" in str(busy.value)
    assert give_up(fleet, "program", take_over=True).changed
    # Its program is ended when the worker hears of it: at the next renewal.
    eventually(lambda: " lost " in worker.said(), 30)
    assert all(map(is_gone, pids(fleet)))
    eventually(lambda: " dropped " in worker.said(), 60)
    assert worker.stop()[0] == 0
    assert fleet.statuses() == {"failed": 1}
    assert give_up(fleet, "program").changed is False


@pytest.mark.parametrize("entry", ["run_program", "run_program_async"])
def test_a_program_is_ended_with_all_it_started_when_its_worker_is_told_to_stop(
    entry: str, fleet: Fleet, hire: Any, eventually: Eventually
) -> None:
    fleet.defer("program")
    worker = hire("--grace", "0.5", entry=entry, lease=60.0)
    eventually(lambda: len(pids(fleet)) == 3, 90)
    _, answer = worker.stop()
    assert json.loads(answer)["events"] == {"released": 1}
    assert all(map(is_gone, pids(fleet)))
    # The turn is there to be given up, at once.
    assert recoverable_turns(fleet.url)
    assert give_up(fleet, "program").changed
