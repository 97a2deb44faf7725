"""`turn-journal worker` as a process: what it drives, what it leaves alone, how it stops, and what it says."""

from __future__ import annotations

import asyncio
import json
import signal
import time
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.chaos.hosts.fleet import AGENT, GOAL, Fleet, FleetWorker
from tests.python.cli.conftest import command
from tests.python.turns.roots import emptied
from tests.python.turns.world import KilledError, ScriptedHost, Turn, rate_limited

from turn_journal_runtime import run_turn
from turn_journal_runtime.errors import InvalidJournalError, JournalStoreError, StoreUnavailableError
from turn_journal_runtime.worker import aio, defer_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import Eventually
    from tests.python.cli.conftest import Command

__all__ = ["command"]

pytestmark = pytest.mark.process

Hire = "Callable[..., FleetWorker]"


@pytest.fixture
def fleet(database: str, tmp_path: Path) -> Fleet:
    return Fleet(database, tmp_path)


@pytest.fixture
def hire(fleet: Fleet) -> Iterator[Callable[..., FleetWorker]]:
    """Starts workers, and ends those that are left."""
    hired: list[FleetWorker] = []

    # Where no lease has to end it is a long one: a busy machine may be late with renewals.
    def start(name: str, *arguments: str, lease: float = 300.0, **options: Any) -> FleetWorker:
        worker = FleetWorker(
            fleet.url, fleet.world, name, lease=lease, arguments=["--every", "1", *arguments], **options
        )
        hired.append(worker)
        return worker

    yield start
    for worker in hired:
        worker.kill()
    emptied(fleet.url)


def held(fleet: Fleet) -> bool:
    return (fleet.world / "held").exists()


def hold(fleet: Fleet, step: str = "tool") -> None:
    (fleet.world / "hold").write_text(step)


def _seconds(clock: str) -> int:
    hours, minutes, seconds = map(int, clock.split(":"))
    return hours * 3600 + minutes * 60 + seconds


def queued(url: str) -> list[tuple[str, str]]:
    with psycopg.connect(url) as connection:
        return connection.execute(
            "SELECT task_name, status::text FROM public_turn_queue.procrastinate_jobs WHERE task_name LIKE '%drive'"
        ).fetchall()


def test_new_turns_stopped_turns_and_no_others_are_driven(fleet: Fleet, hire: Any, eventually: Eventually) -> None:
    for todo in ("new", "twice", "twice", "over"):
        fleet.defer(todo)
    assert not fleet.defer("twice", not_before=time.time() + 60)
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT}
    assert run_turn(fleet.url, **names, todo_id="over", host=ScriptedHost()).ok
    with pytest.raises(KilledError):
        run_turn(fleet.url, **names, todo_id="stopped", host=ScriptedHost(KilledError()))
    assert run_turn(fleet.url, **names, todo_id="failed", host=ScriptedHost(rate_limited())).status == "failed"
    fleet.defer("later", not_before=time.time() + 3600)
    worker = hire("worker", "--concurrency", "2")
    eventually(lambda: fleet.committed() == 4, 90)
    eventually(lambda: len(queued(fleet.url)) == 1, 30)  # the later one
    code, answer = worker.stop()
    assert (code, json.loads(answer)) == (0, {"ok": True, "events": {"done": 3}, "left": 0})
    assert fleet.statuses() == {"committed": 4, "failed": 1}
    log = worker.said()
    for event in (
        " started: ",
        " took goal/sha256:",
        "(stopped): from host_execute",
        " done goal/",
        " stopping: SIGTERM",
    ):
        assert event in log
    assert log.count(" took ") == 3


def test_a_failed_turn_is_tried_again_when_that_is_asked_for(fleet: Fleet, hire: Any, eventually: Eventually) -> None:
    refused = run_turn(
        fleet.url, goal_id=GOAL, agent_id=AGENT, todo_id="refused", host=ScriptedHost(), validate=lambda result: False
    )
    assert refused.status == "failed"
    worker = hire("worker", "--retry-failed")
    eventually(lambda: fleet.committed() == 1, 60)
    assert worker.stop()[0] == 0


def test_a_goal_can_have_workers_of_its_own(fleet: Fleet, hire: Any, eventually: Eventually) -> None:
    for goal in ("mine", "theirs"):
        assert defer_turn(fleet.url, goal_id=goal, agent_id=AGENT, todo_id="todo")
    worker = hire("worker", "--goal", "mine")
    eventually(lambda: fleet.committed() == 1, 60)
    eventually(lambda: len(queued(fleet.url)) == 1, 30)
    assert worker.stop()[0] == 0
    assert " goal mine " in worker.said()
    assert "theirs" not in worker.said()


@pytest.mark.parametrize("entry", ["drive", "drive_async"])
def test_it_finishes_what_it_drives_when_it_is_told_to_stop(
    entry: str, fleet: Fleet, hire: Any, eventually: Eventually
) -> None:
    hold(fleet)
    fleet.defer("held")
    worker = hire("worker", entry=entry)
    eventually(lambda: held(fleet), 60)
    worker.send(signal.SIGTERM)
    eventually(lambda: " stopping: " in worker.said())
    fleet.defer("after")
    (fleet.world / "go").touch()
    code, answer = worker.wait()
    assert (code, json.loads(answer)) == (0, {"ok": True, "events": {"done": 1}, "left": 0})
    assert fleet.statuses() == {"committed": 1}
    # What came too late is left to others.
    assert ("turn_journal_runtime.drive", "todo") in queued(fleet.url)


@pytest.mark.parametrize("entry", ["wait_async", "drive"])
def test_an_entry_that_is_late_is_ended_and_its_turn_is_free_at_once(
    entry: str, fleet: Fleet, hire: Any, eventually: Eventually
) -> None:
    if entry == "drive":
        hold(fleet)
    fleet.defer("slow")
    worker = hire("worker", "--grace", "0.5", entry=entry)
    eventually(lambda: held(fleet), 60)
    code, answer = worker.stop()
    assert (code, json.loads(answer)) == (0, {"ok": True, "events": {"released": 1}, "left": 0})
    other = hire("other")
    eventually(lambda: fleet.committed() == 1, 120)  # long before the lease would have ended
    assert other.stop()[0] == 0
    assert max(fleet.effects().values()) == 1


def test_a_sync_entry_that_does_not_end_is_left_and_its_turn_is_free_when_its_lease_ends(
    fleet: Fleet, hire: Any, eventually: Eventually
) -> None:
    hold(fleet)
    fleet.defer("slow")
    in_one_call = {"FLEET_HOLD": "3600"}  # that does not return
    worker = hire("worker", "--grace", "0.5", lease=5.0, environment=in_one_call)
    eventually(lambda: held(fleet), 60)
    code, answer = worker.stop()
    assert (code, json.loads(answer)) == (1, {"ok": False, "events": {"left": 1}, "left": 1})
    other = hire("other", lease=5.0)
    eventually(lambda: fleet.committed() == 1, 60)
    assert other.stop()[0] == 0
    fleet.assert_each_effect_happened_once(1)


def test_a_second_signal_ends_it_at_once(fleet: Fleet, hire: Any, eventually: Eventually) -> None:
    hold(fleet)
    fleet.defer("slow")
    worker = hire("worker", "--grace", "600")
    eventually(lambda: held(fleet), 60)
    worker.send(signal.SIGINT)
    eventually(lambda: " stopping: SIGINT" in worker.said())
    worker.send(signal.SIGTERM)
    code, _ = worker.wait()
    assert code == 128 + signal.SIGTERM
    assert " stopped at once: SIGTERM" in worker.said()


def test_a_new_turn_of_a_worker_that_died_before_it_began_is_driven_by_another(
    fleet: Fleet, hire: Any, eventually: Eventually
) -> None:
    fleet.defer("new")
    worker = hire("worker", entry="die_once", lease=3.0)
    assert worker.wait(60)[0] == -signal.SIGKILL
    assert fleet.statuses() == {}
    other = hire("other", entry="die_once", lease=3.0)
    eventually(lambda: fleet.committed() == 1, 60)
    assert other.stop()[0] == 0


def test_a_turn_that_does_not_get_on_is_looked_at_less_and_less_and_stops_no_other(
    fleet: Fleet, hire: Any, eventually: Eventually
) -> None:
    fleet.defer("broken")
    worker = hire("worker", entry="fail_broken")
    eventually(lambda: " failed " in worker.said(), 60)
    fleet.defer("fine")
    eventually(lambda: fleet.committed() == 1, 60)
    time.sleep(4)  # several looks at the store
    assert worker.stop()[0] == 0
    log = worker.said()
    told = [line for line in log.splitlines() if "(broken)" in line]
    failed = next(line for line in told if " failed " in line)
    assert "RuntimeError: no luck, after" in failed

    def after_it(clock: str) -> int:
        return (_seconds(clock) - _seconds(failed[11:19])) % 86_400

    again_at = after_it(failed.rsplit("; again at ", 1)[1][:8])
    # Ten seconds after it failed, not after it began: an entry may have worked for hours.
    assert 8 <= again_at <= 11
    assert all(after_it(line[11:19]) >= again_at for line in told[told.index(failed) + 1 :])
    # Who knows better has it looked at now.
    assert fleet.defer("broken")
    other = hire("other")
    eventually(lambda: fleet.committed() == 2, 60)
    assert other.stop()[0] == 0


def test_a_turn_that_sleeps_takes_no_worker_and_comes_back(fleet: Fleet, hire: Any, eventually: Eventually) -> None:
    for number in range(3):
        fleet.defer(f"todo-{number}")
    begun = time.monotonic()
    worker = hire("worker", entry="nap")  # one turn at a time
    eventually(lambda: fleet.committed() == 3, 90)
    assert time.monotonic() - begun > 6
    code, answer = worker.stop()
    events = json.loads(answer)["events"]
    assert (code, events["done"], events.keys() - {"done", "sleeps"}) == (0, 3, set())
    # Each sleep was found to be one, whoever looked how often.
    assert events["sleeps"] >= 9
    fleet.assert_each_effect_happened_once(3)


def test_a_server_that_is_gone_for_a_while_costs_no_turn(
    fleet: Fleet, hire: Any, eventually: Eventually, postgres_server: Any
) -> None:
    hold(fleet, "model")
    for number in range(3):
        fleet.defer(f"todo-{number}")
    worker = hire("worker", "--concurrency", "2", lease=10.0)
    eventually(lambda: held(fleet), 60)
    postgres_server.restart()
    (fleet.world / "go").touch()
    eventually(lambda: fleet.committed() == 3, 90)
    code, _ = worker.stop()
    assert code == 0
    assert "Traceback" not in worker.said()
    fleet.assert_each_effect_happened_once(3)


def test_what_cannot_work_is_said_at_once(database: str, tmp_path: Path, postgres_url: str, command: Command) -> None:
    entry = ("--entry", "tests.chaos.hosts.fleet_program:drive", "-f", "json")
    folder = command("worker", "--root", tmp_path, *entry)
    assert (folder.code, json.loads(folder.err)["error"]["kind"]) == (2, "invalid_request")
    secret = postgres_url.replace("postgres@", "postgres:not-to-be-said@")
    empty = command("worker", "--root", secret, *entry)
    assert (empty.code, json.loads(empty.err)["error"]["kind"]) == (1, "store_schema_missing")
    assert "turn-journal store migrate" in empty.err
    assert "not-to-be-said" not in empty.err + empty.out
    assert command("worker", "--root", database, "--entry", "no.such:entry").code == 2


def test_a_person_drives_the_turns_of_a_database_on_as_those_of_a_folder(
    fleet: Fleet, command: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.chaos.hosts.fleet_program.WORLD", fleet.world)
    turn = Turn(fleet.url, is_async=False)
    turn.kill(ScriptedHost(KilledError()))
    entry = "tests.chaos.hosts.fleet_program:drive"
    recover = ("recover", "--root", fleet.url, "--yes", "--entry", entry, "-f", "json")
    with turn.leased():
        assert "lease" in command(*recover).json[0]["waits"]
    assert [one["outcome"] for one in command(*recover).json] == ["committed"]
    fleet.assert_each_effect_happened_once(1)


def test_deferring_says_what_is_wrong(database: str, postgres_url: str, tmp_path: Path) -> None:
    names: dict[str, Any] = {"goal_id": "g", "agent_id": "a", "todo_id": "t"}
    with pytest.raises(InvalidJournalError, match="Workers drive the turns of a database"):
        defer_turn(str(tmp_path), **names)
    with pytest.raises(InvalidJournalError):
        defer_turn(database, **{**names, "todo_id": ""})
    with pytest.raises(JournalStoreError) as missing:
        defer_turn(postgres_url, **names)
    assert (missing.value.kind, "store migrate" in str(missing.value)) == ("store_schema_missing", True)
    asked = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        defer_turn("postgresql://nobody@127.0.0.1:1/none", **names)
    assert time.monotonic() - asked < 10  # at once; the library beneath would try for 30 seconds
    assert asyncio.run(aio.defer_turn(database, **names))
    # In a place where an event loop runs it works as well.
    assert asyncio.run(_defer_in_a_loop(database, names)) is False


async def _defer_in_a_loop(database: str, names: dict[str, Any]) -> bool:
    return defer_turn(database, **names, not_before=time.time() + 60)


def test_what_is_logged_has_the_fields_that_listeners_ask_for(caplog: pytest.LogCaptureFixture) -> None:
    from turn_journal_runtime.worker.log import LOGGER, say

    caplog.set_level("INFO", LOGGER)
    say("done", " goal/key: committed", {"goal_id": "goal"})
    say("lost", " goal/key")
    assert [(one.levelname, one.getMessage(), vars(one)["turn_journal"]) for one in caplog.records] == [
        ("INFO", "done goal/key: committed", {"event": "worker", "outcome": "done", "goal_id": "goal"}),
        ("WARNING", "lost goal/key", {"event": "worker", "outcome": "lost"}),
    ]
