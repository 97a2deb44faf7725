"""Two processes never drive one turn at a time, and one that lost its turn writes nothing more."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import pytest
from tests.chaos.turns.drivers import DriverServer, outcome_of
from tests.chaos.turns.turn_program import Points, World

from turn_journal_runtime.errors import TurnBusyError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Eventually

pytestmark = pytest.mark.chaos


def test_of_eight_processes_one_drives_and_the_others_are_told(server: DriverServer, tmp_path: Path) -> None:
    pids = server.begin({"root": str(tmp_path), "drivers": 8})
    assert not any(server.wait())
    outcomes = [outcome_of(tmp_path, pid) for pid in pids]
    drove = [outcome for outcome in outcomes if outcome.get("replayed") is False]
    replayed = [outcome for outcome in outcomes if outcome.get("replayed") is True]
    busy = [outcome for outcome in outcomes if outcome.get("error") == "TurnBusyError"]
    assert (len(drove), len(drove) + len(replayed) + len(busy)) == (1, 8), outcomes
    assert {outcome["status"] for outcome in (*drove, *replayed)} == {"committed"}
    world = World(tmp_path, Points())
    assert (world.noted("starts"), world.noted("tools")) == (["1"], ["0", "1", "2"])
    assert [len(table.rows()) for table in world.tables.values()] == [1, 1, 1]


def test_a_driver_that_was_stopped_while_its_turn_was_taken_over_writes_nothing(
    server: DriverServer, tmp_path: Path, eventually: Eventually
) -> None:
    world = World(tmp_path, Points())
    (tmp_path / "hold").touch()
    (pid,) = server.begin({"root": str(tmp_path)})
    try:
        eventually(lambda: world.noted("held") == [str(pid)], 60)
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(TurnBusyError) as raised:
            world.drive()
        assert raised.value.details["pid"] == pid
        (tmp_path / "hold").unlink()
        result = world.drive(take_over=True)
        assert result.ok
        (journal,) = (tmp_path / "goals" / "goal" / "turns").glob("*.json")
        stored, history = journal.read_bytes(), journal.with_suffix(".history.jsonl").read_bytes()
        (tmp_path / "go").touch()
    finally:
        os.kill(pid, signal.SIGCONT)
        assert server.wait() == [False]
    outcome = outcome_of(tmp_path, pid)
    # Its run is lost before its turn is: both refuse it.
    assert (outcome["error"], outcome["kind"]) in (
        ("TurnBusyError", "turn_busy"),
        ("JournalConflictError", "turn_lease_lost"),
    )
    assert journal.read_bytes() == stored
    assert journal.with_suffix(".history.jsonl").read_bytes() == history
    assert [len(table.rows()) for table in world.tables.values()] == [1, 1, 1]
