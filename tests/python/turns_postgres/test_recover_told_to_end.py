"""`turn-journal recover --yes` that is told to end: the turn at hand is free at once, and not when its lease ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.chaos.hosts.fleet import AGENT, GOAL, Fleet
from tests.python.turns.roots import emptied
from tests.python.turns.world import KilledError, ScriptedHost

from turn_journal_runtime import recoverable_turns, run_turn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import Eventually

pytestmark = [pytest.mark.process, pytest.mark.skipif(os.name != "posix", reason="these signals are POSIX systems'")]

_ROOT = Path(__file__).parents[3]


@pytest.fixture
def fleet(database: str, tmp_path: Path) -> Iterator[Fleet]:
    yield Fleet(database, tmp_path)
    emptied(database)


def recover(fleet: Fleet, entry: str, *, ignores: tuple[signal.Signals, ...] = ()) -> subprocess.Popen[str]:
    """The command as a process of its own, with a lease that no test waits for."""
    return subprocess.Popen(
        [
            *(sys.executable, "-c"),
            f"import signal\nfor one in {[int(one) for one in ignores]}: signal.signal(one, signal.SIG_IGN)\n"
            "from turn_journal_runtime.cli.__main__ import main\nmain()",
            *("recover", "--root", fleet.url, "--yes", "--entry", f"tests.chaos.hosts.fleet_program:{entry}"),
        ],
        cwd=_ROOT,
        env={**os.environ, "TURN_JOURNAL_TURN_LEASE": "60", "FLEET_WORLD": str(fleet.world)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def stop_a_turn(fleet: Fleet, todo: str) -> None:
    with pytest.raises(KilledError):
        run_turn(fleet.url, goal_id=GOAL, agent_id=AGENT, todo_id=todo, host=ScriptedHost(KilledError()))


@pytest.mark.parametrize("which", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("entry", ["drive", "wait_async"])
@pytest.mark.parametrize("ignores", [(), (signal.SIGINT,)], ids=["", "in the background"])
def test_the_turn_at_hand_is_free_at_once(
    which: signal.Signals,
    entry: str,
    ignores: tuple[signal.Signals, ...],
    fleet: Fleet,
    eventually: Eventually,
) -> None:
    for todo in ("first", "second"):
        stop_a_turn(fleet, todo)
    (fleet.world / "hold").write_text("tool")
    command = recover(fleet, entry, ignores=ignores)
    try:
        eventually(lambda: (fleet.world / "held").exists(), 60)
        assert len(recoverable_turns(fleet.url)) == 1
        command.send_signal(which)
        out, err = command.communicate(timeout=30)
    finally:
        command.kill()
    # It ended by the signal, as whoever sent it expects, and began no other turn.
    assert command.returncode == -which, err
    assert "Traceback" not in out + err
    assert len(recoverable_turns(fleet.url)) == 2


def test_a_command_that_outlives_its_terminal_is_left_to_do_so(fleet: Fleet, eventually: Eventually) -> None:
    """As under `nohup`, which has the signal ignored."""
    stop_a_turn(fleet, "todo")
    (fleet.world / "hold").write_text("tool")
    command = recover(fleet, "drive", ignores=(signal.SIGHUP,))
    try:
        eventually(lambda: (fleet.world / "held").exists(), 60)
        command.send_signal(signal.SIGHUP)
        (fleet.world / "go").touch()
        out, err = command.communicate(timeout=60)
    finally:
        command.kill()
    assert command.returncode == 0, err
    assert "committed" in out
