"""What a person does to keep a store small: prune for turns and their runs, run prune for runs, run vacuum."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from turn_journal_runtime import CallableHost, give_up_turn, run_turn
from turn_journal_runtime.run_journal import DurableRun, JournalEvent, RunJournal
from turn_journal_runtime.turns.plan import plan_turn

if TYPE_CHECKING:
    from pathlib import Path

    from turn_journal_runtime import TurnContext

    from .conftest import Command


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A journal with two runs that are over, one in doubt, and one that goes on."""
    path = tmp_path / "runs.db"
    with RunJournal(path) as journal:
        for run_id in ("first", "second"):
            with DurableRun(journal, run_id) as run:
                run.model(lambda: "a secret " * 1000)
        for run_id in ("in-doubt", "goes-on"):
            journal.open_run(run_id)
            call = {"name": "pay", "args": {}, "idempotency_key": f"{run_id}:0:pay"}
            journal.append(JournalEvent(run_id, 0, "tool_call", call))
        journal.close_run("in-doubt", "cancelled")
    return path


def test_run_prune_says_first_and_removes_only_when_told(command: Command, db: Path) -> None:
    assert command("run", "prune", "--older-than", "1h", "--db", db, "-f", "json").json["runs"] == []
    said = command("run", "prune", "--older-than", "0s", "--db", db, "-f", "json")
    assert said.json == {"ok": True, "done": False, "runs": ["first", "second"]}
    shown = command("run", "prune", "--older-than", "0s", "--db", db).out.splitlines()
    assert (shown[0], shown[-2:]) == (
        "To be pruned: 2 runs. Nothing was changed; add --yes to do it.",
        ["first", "second"],
    )
    assert command("run", "prune", "--older-than", "0s", "--keep", "2", "--db", db, "--yes").out == "Pruned: 1 run.\n"
    done = command("run", "prune", "--older-than", "0s", "--db", db, "--yes", "-f", "json")
    assert done.json == {"ok": True, "done": True, "runs": ["second"]}
    left = [run["run_id"] for run in command("runs", "--db", db, "-f", "json").json]
    assert left == ["in-doubt", "goes-on"]
    command("settle", "in-doubt", "0", "--absent", "--db", db)
    assert "1 run" in command("run", "prune", "--older-than", "0s", "--db", db, "--yes").out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [((), 2), (("--older-than", "soon"), 2), (("--older-than", "1d", "--keep", "-1"), 2), (("--older-than", "1d"), 3)],
)
def test_what_is_wrong_with_run_prune_is_told(
    command: Command, tmp_path: Path, arguments: tuple[str, ...], code: int
) -> None:
    assert command("run", "prune", *arguments, "--db", tmp_path / "nothing.db").code == code
    assert not (tmp_path / "nothing.db").exists()


def test_run_vacuum_gives_space_back(command: Command, db: Path) -> None:
    command("run", "prune", "--older-than", "0s", "--db", db, "--yes")
    found = command("run", "vacuum", "--db", db, "-f", "json").json
    assert found["bytes_before"] > found["bytes_after"] == db.stat().st_size
    assert command("run", "vacuum", "--db", db).out.startswith(f"The file has {db.stat().st_size:,} bytes; it had ")


def test_run_prune_and_vacuum_work_in_a_database(
    command: Command, postgres_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from turn_journal_runtime.run_journal.postgres import migrate

    monkeypatch.setenv("TURN_JOURNAL_HOME", str(tmp_path))
    migrate(postgres_url)
    with RunJournal(postgres_url) as journal, DurableRun(journal, "r") as run:
        run.iteration(0)
    assert command("run", "prune", "--older-than", "0s", "--db", postgres_url, "--yes", "-f", "json").json["runs"] == [
        "r"
    ]
    answer = command("run", "vacuum", "--db", postgres_url, "-f", "json").json
    assert answer == {"ok": True, "bytes_before": None, "bytes_after": None}
    assert "free for other rows" in command("run", "vacuum", "--db", postgres_url).out


def _agent(turn: TurnContext) -> dict[str, Any]:
    turn.tool("look", {}, lambda: "seen")
    return {"result_kind": "validated_progress"}


def test_prune_removes_a_turn_that_was_given_up_when_it_is_told_to(command: Command, tmp_path: Path) -> None:
    names: dict[str, Any] = {"goal_id": "g", "agent_id": "a", "todo_id": "t"}
    run_turn(tmp_path, **names, host=CallableHost(_agent), validate=lambda _: False)
    prune = ("prune", "--older-than", "0s", "--given-up", "-r", str(tmp_path))
    assert command(*prune, "--yes").out == "Pruned: 0 turns.\n"
    give_up_turn(tmp_path, **names, reason="It is obsolete.", by="ann")
    assert command(*(one for one in prune if one != "--given-up"), "--yes").out == "Pruned: 0 turns.\n"
    assert command(*prune).out.startswith("To be pruned: 1 turn, 1 run.")
    turn = f"g/{plan_turn(**names).turn_key}"
    again = ("recover", turn, "--retry-failed", "-r", tmp_path)
    assert "goes on from" in command(*again).out
    assert command(*prune, "--yes").out == "Pruned: 1 turn, 1 run.\n"
    assert "given up, and then pruned" in command("inspect", turn, "-r", tmp_path).out
    refused = command(*again)
    assert (refused.code, "may not go on" in refused.out, "--retry-failed" in refused.out) == (1, True, False)


def test_prune_removes_the_runs_of_turns_and_names_those_that_stay(command: Command, tmp_path: Path) -> None:
    run_turn(tmp_path, goal_id="g", agent_id="a", todo_id="t", host=CallableHost(_agent))
    key = plan_turn(goal_id="g", agent_id="a", todo_id="t").turn_key
    with RunJournal(tmp_path / "runs" / "journal.db") as journal:
        journal.open_run(f"{key}.1")
        call = {"name": "pay", "args": {}, "idempotency_key": f"{key}.1:0:pay"}
        journal.append(JournalEvent(f"{key}.1", 0, "tool_call", call))
    prune = ("prune", "--older-than", "0s", "-r", str(tmp_path))
    assert command("run", "prune", "--older-than", "0s", "-r", tmp_path, "-f", "json").json["runs"] == []
    shown = command(*prune).out.splitlines()
    assert shown[0] == "To be pruned: 1 turn, 1 run. Nothing was changed; add --yes to do it."
    assert shown[3].split() == [f"g/{key[:19]}", "1"]
    done = command(*prune, "--yes", "-f", "json").json
    assert [(turn["runs"], turn["runs_left"]) for turn in done["turns"]] == [([key], [f"{key}.1"])]
    shown = command(*prune, "--yes").out.splitlines()
    assert shown[0] == "Pruned: 0 turns."
    assert shown[-1].endswith(f"{key[:19]}.1")
    named = shown[-1].split()[-1]
    assert command("settle", named, "0", "--absent", "-r", tmp_path).code == 0
    assert command(*prune, "--yes").out == "Pruned: 0 turns, 1 run.\n"
    assert command("runs", "-r", tmp_path, "-f", "json").json == []
