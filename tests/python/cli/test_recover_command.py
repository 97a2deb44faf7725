"""`turn-journal recover` on turns that failed, that somebody drives, and whose session outlived their host."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.turns.world import KilledError, ScriptedHost, Turn, rate_limited, with_session

from turn_journal_runtime import CallableHost, TurnContext, run_turn
from turn_journal_runtime.turns.lease import acquire_lease

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turn_journal_runtime import DueTurn

    from .conftest import Command


@pytest.fixture
def turn(tmp_path: Path) -> Turn:
    return Turn(tmp_path, is_async=False)


@pytest.fixture
def outlived(turn: Turn) -> str:
    """A turn whose host failed while its session lived on."""
    failed = turn.run(ScriptedHost(with_session("session-1", rate_limited(resumable=True))))
    assert failed.status == "failed"
    return f"goal/{failed.turn_key}"


def bound(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """The resolver of these tests: it knows one session."""
    return {
        "schema_version": "loopx_turn_session_binding_v0",
        "goal_id": envelope["goal_id"],
        "agent_id": envelope["agent_id"],
        "todo_id": envelope["action"]["selected_todo"]["todo_id"],
        "session_id": "session-1",
    }


def stranger(envelope: Mapping[str, Any]) -> dict[str, Any]:
    """A resolver that finds somebody else's session."""
    return {**bound(envelope), "todo_id": "another"}


host = ScriptedHost()


def drive(due: DueTurn) -> Any:
    """The entry point of these tests."""
    return run_turn(
        due.runtime_root,
        **due.names,
        retry_failed=due.retry_failed,
        session_binding_resolver=due.session_binding_resolver,
        host=host,
    )


def fail(due: DueTurn) -> Any:
    """An entry point whose host has a fault in it."""
    faulty = ScriptedHost(KeyError("nope"))
    return run_turn(due.runtime_root, **due.names, retry_failed=due.retry_failed, host=faulty)


def doze(due: DueTurn) -> Any:
    """An entry point whose host sleeps in no process."""

    def sleeper(turn: TurnContext) -> dict[str, Any]:
        turn.sleep_until(32503680000, suspend=True)
        return {}

    return run_turn(due.runtime_root, **due.names, host=CallableHost(sleeper))


def test_a_turn_that_sleeps_has_not_failed(command: Command, turn: Turn, tmp_path: Path) -> None:
    turn.kill(ScriptedHost(KilledError()))
    for _ in range(2):
        again = command("recover", "-r", tmp_path, "--yes", "-f", "json", "--entry", f"{__name__}:doze")
        assert again.code == 0
        assert again.json[0]["outcome"].startswith("waits: Run ")
        assert "until 3000-01-01 00:00:00 UTC" in again.json[0]["outcome"]


def test_a_turn_that_fails_when_it_is_driven_says_of_what(command: Command, turn: Turn, tmp_path: Path) -> None:
    name = f"goal/{turn.run(ScriptedHost(rate_limited())).turn_key}"
    again = ("recover", name, "-r", tmp_path, "--retry-failed", "--yes", "-f", "json", "--entry")
    outcome = command(*again, f"{__name__}:fail")
    (driven,) = outcome.json
    assert outcome.code == 1
    assert driven["outcome"] == "failed: KeyError: 'nope'"
    told = command("inspect", name, "-r", tmp_path).out
    assert told.startswith("OVER: it failed")
    assert "It failed at host_execute, unknown: The host failed." in told
    assert "It failed at host_execute" in command("inspect", name, "-r", tmp_path, "-a", "agent").out


def test_a_turn_that_is_over_is_not_called_blocked(command: Command, turn: Turn, tmp_path: Path) -> None:
    name = f"goal/{turn.run(ScriptedHost()).turn_key}"
    assert "may not go on, or is over" in command("recover", name, "-r", tmp_path).out


def test_a_turn_that_waits_for_its_back_off_is_left_alone_unless_it_is_named(
    command: Command, turn: Turn, tmp_path: Path
) -> None:
    failed = turn.run(ScriptedHost(rate_limited()))
    assert command("recover", "-r", tmp_path, "-f", "json").json == []
    (swept,) = command("recover", "-r", tmp_path, "--retry-failed", "-f", "json").json
    assert swept["waits"].startswith("left alone: its back-off ends at 2")
    untouched = command("recover", "-r", tmp_path, "--retry-failed", "--yes", "-f", "json").json
    assert untouched == [swept]
    (named,) = command("recover", f"goal/{failed.turn_key}", "-r", tmp_path, "--retry-failed", "-f", "json").json
    assert (named["waits"], named["turn"]["recovery_decision"]["can_continue"]) == (None, True)


def test_a_turn_that_somebody_drives_is_left_alone(command: Command, turn: Turn, tmp_path: Path) -> None:
    turn.kill(ScriptedHost(KilledError()))
    with acquire_lease(tmp_path, Path(turn.path)):
        (driven,) = command("recover", "-r", tmp_path, "--yes", "-f", "json").json
        assert (driven["waits"], driven["outcome"]) == ("left alone: a living process drives it", None)
    assert command("recover", "-r", tmp_path, "-f", "json").json[0]["waits"] is None


def test_inspect_and_recover_ask_the_resolver_that_is_named(command: Command, outlived: str, tmp_path: Path) -> None:
    arguments = (outlived, "-r", tmp_path, "--retry-failed", "-f", "json")
    alone = command("inspect", *arguments).json["recovery_decision"]
    assert (alone["can_continue"], alone["reason"]) == (False, "binding_check_unavailable")
    known = command("inspect", *arguments, "--resolver", f"{__name__}:bound").json["recovery_decision"]
    assert (known["can_continue"], known["reason"]) == (True, "retry_failed_phase")
    (found,) = command("recover", *arguments, "--resolver", f"{__name__}:bound").json
    assert found["turn"]["recovery_decision"]["checks"][-1]["kind"] == "host_session_binding"
    assert command("recover", *arguments, "--resolver", f"{__name__}:stranger").code == 1


def test_recover_hands_the_resolver_to_what_drives_the_turn(command: Command, outlived: str, tmp_path: Path) -> None:
    host.resumed.clear()
    host.sessions = {"session-1"}
    arguments = ("-r", tmp_path, "--retry-failed", "-e", f"{__name__}:drive", "--resolver", f"{__name__}:bound")
    (recovered,) = command("recover", outlived, *arguments, "--yes", "-f", "json").json
    assert recovered["outcome"] == "committed"
    assert [session for session, _ in host.resumed] == ["session-1"]
    assert host.executed == []


def test_a_module_that_fails_when_it_is_loaded_is_a_usage_error(
    command: Command, turn: Turn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn.kill(ScriptedHost(KilledError()))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "breaks_when_loaded.py").write_text("1 / 0\n")
    for option in ("--entry", "--resolver"):
        outcome = command("recover", "-r", tmp_path, option, "breaks_when_loaded:drive", "--yes")
        assert outcome.code == 2
        assert "ZeroDivisionError" in outcome.err
        assert "Traceback" not in outcome.err


def test_a_registered_entry_point_drives_without_being_named(
    command: Command, turn: Turn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn.kill(ScriptedHost(KilledError()))
    package = tmp_path / "site" / "agents-1.dist-info"
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Name: agents\nVersion: 1\n")
    registered = f"[turn_journal_runtime.recover]\nworld = {__name__}:drive\n"
    (package / "entry_points.txt").write_text(registered)
    monkeypatch.syspath_prepend(str(package.parent))
    (recovered,) = command("recover", "-r", tmp_path, "--yes", "-f", "json").json
    assert recovered["outcome"] == "committed"
