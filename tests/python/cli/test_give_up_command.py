"""`turn-journal give-up`: says what would be, does it when it is told to, and what the other commands say then."""

from __future__ import annotations

import getpass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.turns.test_giving_up import PLAN, put
from tests.python.turns.world import KilledError, Ledger, ScriptedHost, Turn, rate_limited

from turn_journal_runtime import CallableHost, list_turn_journals, run_turn
from turn_journal_runtime.turns.lease import acquire_lease

if TYPE_CHECKING:
    from turn_journal_runtime import DueTurn

    from .conftest import Command

NAME = f"goal/{PLAN.turn_key[:19]}"


@pytest.fixture
def turn(tmp_path: Path) -> Turn:
    return Turn(tmp_path, is_async=False)


def test_it_says_what_would_be_and_changes_nothing_until_it_is_told_to(
    command: Command, turn: Turn, tmp_path: Path
) -> None:
    put(tmp_path, 4, "quota_spend")
    before = list(list_turn_journals(tmp_path))
    looked = command("give-up", NAME, "-r", tmp_path)
    assert f"{NAME} would fail at quota_spend" in looked.out
    assert PLAN.effect_ref("quota_spend") in looked.out
    assert "Add --yes and a --reason" in looked.out
    found = command("give-up", NAME, "-r", tmp_path, "-f", "json").json
    assert (found["done"], found["changed"], found["driven"]) == (False, True, False)
    assert command("give-up", NAME, "-r", tmp_path, "--yes").code == 2  # why?
    assert list(list_turn_journals(tmp_path)) == before

    told = ("give-up", NAME, "-r", tmp_path, "--yes", "--reason", "Settled by hand.")
    done = command(*told)
    assert (done.code, f"{NAME} is given up" in done.out) == (0, True)
    assert f"turn-journal recover {NAME} --root {tmp_path} --retry-failed" in done.out
    again = command(*told, "--by", "bert", "-f", "json").json
    assert (again["done"], again["changed"], again["by"]) == (False, False, getpass.getuser())
    assert again["in_doubt"] == [PLAN.effect_ref("quota_spend")]
    assert "was given up by" in command(*told).out
    inspected = command("inspect", NAME, "-r", tmp_path)
    assert "Given up" in inspected.out
    assert "Settled by hand." in inspected.out


def test_what_it_says_to_type_can_be_typed_whatever_the_goal_is_called(command: Command, tmp_path: Path) -> None:
    with pytest.raises(KilledError):
        run_turn(tmp_path, goal_id="$(my) goal", agent_id="a", todo_id="t", host=CallableHost(killed))
    (turn,) = list_turn_journals(tmp_path)
    name = f"{turn['goal_id']}/{turn['turn_key'][:19]}"
    done = command("give-up", name, "-r", tmp_path, "--yes", "--reason", "No more.")
    assert f"`turn-journal recover '{name}' --root {tmp_path} --retry-failed`" in done.out


def killed(_: object) -> dict[str, object]:
    raise KilledError


def test_what_is_due_and_what_may_have_run_is_shown(command: Command, turn: Turn, tmp_path: Path) -> None:
    put(tmp_path, 5, None)
    assert PLAN.effect_ref("terminal_closeout") in command("give-up", NAME, "-r", tmp_path).out

    def loop(context: Any) -> dict[str, Any]:
        context.tool("send", {}, _die)
        raise AssertionError

    turn.kill(CallableHost(loop), todo_id="sends")
    (sends,) = [one["turn_key"] for one in list_turn_journals(tmp_path) if one["turn_key"] != PLAN.turn_key]
    looked = command("give-up", f"goal/{sends}", "-r", tmp_path, "-f", "json").json
    assert looked["in_doubt"] == [f"{sends}:0:send"]
    told = ("give-up", f"goal/{sends}", "-r", tmp_path, "--yes", "--reason", "The host is gone.", "-f", "json")
    done = command(*told).json
    assert (done["in_doubt"], done["run_id"]) == ([f"{sends}:0:send"], sends)
    assert command("runs", "-r", tmp_path, "--interrupted", "-f", "json").json == []


def _die() -> None:
    raise KilledError


def test_a_turn_that_is_over_or_waits_for_its_scheduler_is_left_as_it_is(
    command: Command, turn: Turn, tmp_path: Path
) -> None:
    over = turn.run(ScriptedHost())
    told = ("-r", tmp_path, "--yes", "--reason", "Obsolete.")
    outcome = command("give-up", f"goal/{over.turn_key}", *told)
    assert (outcome.code, "is committed: there is nothing to give up" in outcome.out) == (0, True)
    waits = turn.run(ScriptedHost(), todo_id="waits", scheduler=Ledger("action_required"))
    for refused in (told, ("-r", tmp_path)):
        outcome = command("give-up", f"goal/{waits.turn_key}", *refused)
        assert (outcome.code, "acknowledge_turn ends it" in outcome.err) == (1, True)
    assert command("give-up", "goal/none", *told).code == 3


def test_a_turn_that_somebody_drives_is_refused_and_the_process_named(
    command: Command, turn: Turn, tmp_path: Path
) -> None:
    import os

    turn.kill(ScriptedHost(KilledError()))
    told = ("give-up", NAME, "-r", tmp_path, "--yes", "--reason", "Obsolete.")
    with acquire_lease(tmp_path, Path(turn.path)):
        assert "It would be refused just now: a living process drives it." in command(*told[:4]).out
        refused = command(*told)
        assert (refused.code, f"process {os.getpid()} on " in refused.err) == (1, True)
        assert command(*told, "--take-over", "-f", "json").json["done"]


def drive(due: DueTurn) -> Any:
    """The entry point of these tests."""
    return run_turn(
        due.runtime_root,
        goal_id=due.goal_id,
        agent_id=due.agent_id,
        todo_id=due.todo_id or "",
        retry_failed=due.retry_failed,
        host=ScriptedHost(),
    )


def test_recover_leaves_it_alone_unless_it_is_named(command: Command, turn: Turn, tmp_path: Path) -> None:
    turn.kill(ScriptedHost(KilledError()))
    failed = turn.run(ScriptedHost(rate_limited()), todo_id="failed")
    assert "`turn-journal give-up` ends one that shall not go on." in command("recover", "-r", tmp_path).out
    for name in (NAME, f"goal/{failed.turn_key}"):
        assert command("give-up", name, "-r", tmp_path, "--yes", "--reason", "Obsolete.").code == 0
    entry = ("-e", f"{__name__}:drive", "--yes", "-f", "json")
    assert command("recover", "-r", tmp_path, "--retry-failed", *entry).json == []
    assert command("recover", NAME, "-r", tmp_path, *entry).code == 1
    (named,) = command("recover", NAME, "-r", tmp_path, "--retry-failed", *entry).json
    assert named["outcome"] == "committed"
