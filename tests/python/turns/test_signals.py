"""A driver that is told to end: its host ends with it, and the turn is there to be driven on or to be given up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.hosts.harness import is_gone
from tests.python.turns.world import AGENT, GOAL, RESULT, TODO, Turn

from turn_journal_runtime import TurnBusyError, give_up_turn, recoverable_turns
from turn_journal_runtime.hosts import CallableHost

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Eventually

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(os.name != "posix", reason="programs are run on POSIX systems"),
]

#: Seconds that a lease lasts in the database.
LEASE = 60.0

PROGRAM = """
import asyncio, signal, sys, time
from pathlib import Path
from turn_journal_runtime import CallableHost, SubprocessHost, aio, run_turn

root, host, form, handles, notes, program = sys.argv[1:]
if handles == "handled":
    signal.signal(signal.SIGTERM, signal.default_int_handler)

def work(turn):
    turn.tool("first", {}, lambda: 1, restart_safe=True)
    Path(notes).write_text("at work")
    time.sleep(120)

async def work_async(turn):
    await turn.tool("first", {}, lambda: 1, restart_safe=True)
    Path(notes).write_text("at work")
    await asyncio.sleep(120)

hosts = {
    "function": lambda: CallableHost(work_async if form == "async" else work),
    "program": lambda: SubprocessHost([sys.executable, "-S", program, "family", notes], timeout=600),
}
names = {"goal_id": "goal", "agent_id": "agent", "todo_id": "todo", "host": hosts[host]()}
if form == "async":
    asyncio.run(aio.run_turn(root, **names))
else:
    run_turn(root, **names)
"""


class Driver:
    """A process that drives the turn, with its host at work."""

    def __init__(self, root: Path | str, host: str, form: str, handles: str, folder: Path) -> None:
        self.notes = folder / "notes"
        self._is_program = host == "program"
        program = Path(__file__).parents[2] / "process" / "hosts" / "host_program.py"
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(root), host, form, handles, str(self.notes), str(program)],
            env={**os.environ, "TURN_JOURNAL_TURN_LEASE": str(LEASE), "PYTHONPATH": os.pathsep.join(sys.path)},
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def is_at_work(self) -> bool:
        return self.notes.exists() and (not self._is_program or len(self.pids()) == 3)

    def pids(self) -> list[int]:
        return list(map(int, self.notes.read_text().split())) if self._is_program else []

    def end(self, which: signal.Signals) -> None:
        """As from a terminal: all of the group hear it."""
        os.killpg(self.process.pid, which)
        self.process.communicate(timeout=60)

    def kill(self) -> None:
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()


@pytest.fixture
def drive(root: Path | str, tmp_path: Path, eventually: Eventually) -> Iterator[Any]:
    drivers: list[Driver] = []

    def start(host: str, form: str, handles: str = "") -> Driver:
        drivers.append(Driver(root, host, form, handles, tmp_path))
        eventually(drivers[-1].is_at_work, 60)
        return drivers[-1]

    yield start
    for driver in drivers:
        driver.kill()


def names() -> dict[str, Any]:
    return {"goal_id": GOAL, "agent_id": AGENT, "todo_id": TODO}


@pytest.mark.parametrize("form", ["sync", "async"])
@pytest.mark.parametrize("host", ["function", "program"])
def test_an_interrupted_driver_ends_its_host_and_its_turn_is_free_at_once(
    host: str, form: str, root: Path | str, drive: Any
) -> None:
    driver = drive(host, form)
    with pytest.raises(TurnBusyError) as busy:
        give_up_turn(root, **names(), reason="obsolete", by="anna")
    # Whom to tell, wherever the turn is.
    assert busy.value.details["pid"] == driver.process.pid
    os.kill(busy.value.details["pid"], 0)
    driver.end(signal.SIGINT)
    assert all(map(is_gone, driver.pids()))
    (left,) = recoverable_turns(root)
    assert (left.status, left.resume_from) == ("in_progress", "host_execute")
    turn = Turn(root, is_async=False)
    calls: list[int] = []

    def goes_on(context: Any) -> dict[str, Any]:
        context.tool("first", {}, lambda: calls.append(1), restart_safe=True)
        return dict(RESULT)

    done = turn.run(CallableHost(goes_on))
    assert (done.ok, done.attempts) == (True, 2)
    assert calls == ([] if host == "function" else [1])


@pytest.mark.parametrize("host", ["function", "program"])
def test_a_terminated_driver_leaves_nothing_running(
    host: str, root: Path | str, drive: Any, eventually: Eventually
) -> None:
    driver = drive(host, "sync")
    driver.end(signal.SIGTERM)
    assert driver.process.returncode == -signal.SIGTERM
    eventually(lambda: all(map(is_gone, driver.pids())))
    if isinstance(root, Path):
        assert give_up_turn(root, **names(), reason="obsolete", by="anna").changed
        return
    # Nobody has told the database: its lease lasts, and its end is told.
    with pytest.raises(TurnBusyError) as busy:
        give_up_turn(root, **names(), reason="obsolete", by="anna")
    assert 0 < busy.value.details["until"] - busy.value.details["since"] <= LEASE + 10
    assert give_up_turn(root, **names(), reason="obsolete", by="anna", take_over=True).changed


@pytest.mark.parametrize("host", ["function", "program"])
def test_a_driver_that_takes_one_signal_for_the_other_ends_in_good_order(
    host: str, root: Path | str, drive: Any
) -> None:
    driver = drive(host, "sync", "handled")
    driver.end(signal.SIGTERM)
    assert all(map(is_gone, driver.pids()))
    assert give_up_turn(root, **names(), reason="obsolete", by="anna").changed
