"""A root is copied to another one, and what arrives is what was there."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.python.cli.terminal import COMMAND, OnTerminal
from tests.python.copying.content import GOALS, SESSIONS, files_in, fill, journal, runs_in, seen_in, write_turn

from turn_journal_runtime import (
    InvalidJournalError,
    JournalStoreError,
    RunJournal,
    TurnSuspended,
    aio,
    copy_store,
    turn_journal_path,
    verify_turn_journal,
    write_turn_journal,
)
from turn_journal_runtime.run_journal import DurableRun
from turn_journal_runtime.turns.folder_root import FolderRoot, run_journal_path
from turn_journal_runtime.turns.lease import acquire_lease

if TYPE_CHECKING:
    from tests.python.cli.conftest import Command

    from turn_journal_runtime.documents import CopiedItem, CopyReport

TURNS: Final = 9
RUNS: Final = 4


def outcomes(report: CopyReport) -> dict[str, dict[str, int]]:
    counts: dict[str, Any] = {kind: report[kind] for kind in ("turns", "sessions", "runs")}
    return {kind: {name: number for name, number in count.items() if number} for kind, count in counts.items()}


def problems(report: CopyReport) -> list[tuple[str, str, str]]:
    return [(one["kind"], one["name"], one["outcome"]) for one in report["problems"]]


def everything(outcome: str) -> dict[str, dict[str, int]]:
    return {"turns": {outcome: TURNS}, "sessions": {outcome: 2 * SESSIONS}, "runs": {outcome: RUNS}}


def test_a_folder_comes_back_from_a_database_byte_for_byte(source: Path, database: str, tmp_path: Path) -> None:
    fill(source)
    seen: list[CopiedItem] = []
    assert outcomes(copy_store(source, database, progress=seen.append)) == everything("copied")
    assert len(seen) == TURNS + 2 * SESSIONS + RUNS
    assert seen_in(database) == seen_in(source)
    back = tmp_path / "back"
    report = copy_store(database, back)
    assert (report["ok"], outcomes(report)) == (True, everything("copied"))
    assert files_in(back) == files_in(source)
    runs = runs_in(run_journal_path(source))
    assert (len(runs), runs_in(run_journal_path(back)), runs_in(database)) == (RUNS, runs, runs)
    assert verify_turn_journal(back) == verify_turn_journal(source) == verify_turn_journal(database)
    for one, other in ((source, database), (database, back), (source, back)):
        for verify_only in (True, False):
            again = copy_store(one, other, verify_only=verify_only)
            assert (again["ok"], outcomes(again)) == (True, everything("same"))
    assert files_in(back) == files_in(source)


def test_asyncio_copies_the_same(source: Path, tmp_path: Path) -> None:
    fill(source)
    report = asyncio.run(aio.copy_store(source, tmp_path / "target"))
    assert outcomes(report) == everything("copied")
    assert files_in(tmp_path / "target") == files_in(source)


def test_one_goal_is_copied_with_its_sessions_and_runs(source: Path, tmp_path: Path) -> None:
    fill(source)
    target = tmp_path / "target"
    report = copy_store(source, target, goal_id=GOALS[0])
    assert outcomes(report) == {"turns": {"copied": 5}, "sessions": {"copied": SESSIONS}, "runs": {"copied": 2}}
    assert {path.name for path in (target / "goals").iterdir()} == {GOALS[0]}
    assert sorted(runs_in(run_journal_path(target))) == ["goal-1.turn-0", "goal-1.turn-0.1"]


def test_the_runs_inside_of_a_goal_s_tools_come_with_it(source: Path, tmp_path: Path) -> None:
    fill(source)
    inner = ["goal-1.turn-0.1:0:send", "goal-1.turn-0:1:send", "goal-1.turn-0:1:send:0:write"]
    with RunJournal(run_journal_path(source)) as runs:
        for run_id in (*inner, "goal-2.turn-0:1:send", "goal-1.turn-0-fork", "goal-1.turn-0.x", "goal-1.turn"):
            runs.open_run(run_id)
            runs.close_run(run_id)
    target = tmp_path / "target"
    copy_store(source, target, goal_id=GOALS[0])
    assert sorted(runs_in(run_journal_path(target))) == sorted(["goal-1.turn-0", "goal-1.turn-0.1", *inner])


def test_a_comparison_changes_nothing_and_names_what_is_missing_or_behind(source: Path, tmp_path: Path) -> None:
    fill(source)
    target = tmp_path / "target"
    report = copy_store(source, target, verify_only=True)
    assert (report["ok"], outcomes(report)) == (False, everything("left"))
    assert {outcome for _, _, outcome in problems(report)} == {"missing"}
    assert not target.exists()
    copy_store(source, target)
    before = files_in(target)
    write_turn_journal(
        turn_journal_path(source, goal_id=GOALS[0], turn_key="goal-1.turn-0"),
        journal(GOALS[0], "goal-1.turn-0", "in_progress", 1),
    )
    with RunJournal(run_journal_path(source)) as runs, DurableRun(runs, "open", agent="agent") as run:
        run.tool("send", {"to": "late"}, lambda to: f"sent to {to}")
    assert problems(copy_store(source, target, verify_only=True)) == [
        ("turn", "goal-1.turn-0", "behind"),
        ("run", "open", "behind"),
    ]
    assert files_in(target) == before
    report = copy_store(source, target)
    assert (report["turns"]["extended"], report["runs"]["extended"], report["ok"]) == (1, 1, True)
    assert files_in(target) == files_in(source)
    assert runs_in(run_journal_path(target)) == runs_in(run_journal_path(source))


def test_what_went_on_at_the_target_is_left(source: Path, tmp_path: Path) -> None:
    fill(source)
    target = tmp_path / "target"
    copy_store(source, target)
    write_turn_journal(
        turn_journal_path(target, goal_id=GOALS[0], turn_key="goal-1.turn-0"),
        journal(GOALS[0], "goal-1.turn-0", "in_progress", 1),
    )
    FolderRoot(str(target)).bindings.write(GOALS[0], "line-0", {"session_id": "another"})
    with RunJournal(run_journal_path(target)) as runs, DurableRun(runs, "open", agent="agent") as run:
        run.tool("send", {"to": "target"}, lambda to: f"sent to {to}")
    before, runs_before = files_in(target), runs_in(run_journal_path(target))
    report = copy_store(source, target)
    assert problems(report) == [
        ("turn", "goal-1.turn-0", "conflict"),
        ("session", "line-0", "conflict"),
        ("run", "open", "conflict"),
    ]
    assert (report["ok"], report["turns"]["same"]) == (False, TURNS - 1)
    assert (files_in(target), runs_in(run_journal_path(target))) == (before, runs_before)


def test_a_question_that_was_decided_since_comes_along(source: Path, tmp_path: Path) -> None:
    fill(source)
    target = tmp_path / "target"
    file = run_journal_path(source)
    with RunJournal(file) as runs:
        with pytest.raises(TurnSuspended), DurableRun(runs, "asks", agent="agent") as run:
            run.approval("May it?", binds={"amount": 3})
        copy_store(source, target)
        (question,) = runs.pending_approvals("asks")
        runs.approve("asks", question.seq, "yes", by="a person")
    assert copy_store(source, target)["runs"]["extended"] == 1
    assert runs_in(run_journal_path(target)) == runs_in(file)


@pytest.mark.parametrize("at", ["source", "target"])
def test_a_turn_that_is_driven_is_left_until_its_driver_ends(source: Path, tmp_path: Path, at: str) -> None:
    write_turn(source, "g", "driven")
    write_turn(source, "g", "other")
    root = tmp_path / at
    with acquire_lease(root, Path(turn_journal_path(root, goal_id="g", turn_key="driven"))):
        report = copy_store(source, tmp_path / "target")
        assert problems(report) == [("turn", "driven", "driven")]
        assert report["turns"]["copied"] == 1
    assert outcomes(copy_store(source, tmp_path / "target"))["turns"] == {"copied": 1, "same": 1}


def test_a_run_that_is_driven_is_left_until_its_driver_ends(source: Path, tmp_path: Path) -> None:
    fill(source)
    with RunJournal(run_journal_path(source)) as runs, DurableRun(runs, "open", agent="agent"):
        report = copy_store(source, tmp_path / "target")
        assert problems(report) == [("run", "open", "driven")]
    assert copy_store(source, tmp_path / "target")["runs"]["copied"] == 1


def test_what_is_damaged_is_left_and_exits_with_four(source: Path, tmp_path: Path, command: Command) -> None:
    fill(source)
    target = tmp_path / "target"
    history = source / "goals" / GOALS[0] / "turns" / "goal-1.turn-2.history.jsonl"
    history.write_bytes(history.read_bytes().replace(b"started", b"stopped", 1))
    (source / "goals" / GOALS[0] / "turn-sessions" / "line-0.json").write_text("{")
    outcome = command("store", "copy", source, target, "-f", "json")
    assert outcome.code == 4
    assert problems(outcome.json) == [("turn", "goal-1.turn-2", "damaged"), ("session", "line-0", "damaged")]
    assert not (target / "goals" / GOALS[0] / "turns" / "goal-1.turn-2.json").exists()


def test_a_run_that_no_journal_takes_is_left_and_the_others_are_copied(source: Path, tmp_path: Path) -> None:
    fill(source)
    with sqlite3.connect(run_journal_path(source)) as database:
        database.execute("INSERT INTO journal VALUES ('goal-1.turn-0', 77, 'of another program', '{}', 0)")
    report = copy_store(source, tmp_path / "target")
    assert problems(report) == [("run", "goal-1.turn-0", "damaged")]
    assert report["runs"]["copied"] == RUNS - 1


def test_the_command_tells_what_it_did_and_what_it_left(source: Path, database: str, command: Command) -> None:
    fill(source)
    assert command("store", "copy", source, database, "--verify-only").code == 1
    first = command("store", "copy", source, database)
    assert (first.code, "Everything is at the target" in first.out) == (0, True)
    write_turn_journal(
        turn_journal_path(database, goal_id="goal-1", turn_key="foreign"),
        journal("goal-1", "foreign", "in_progress", 1),
    )
    left = command("store", "copy", source, database, "--goal", "goal-1")
    assert left.code == 1
    assert "goal-1/foreign" in left.out
    assert command("store", "copy", source, database, "--goal", "goal-2", "-f", "json").json["ok"]
    assert command("store", "copy", source / "nowhere", database).code == 3
    nothing = command("store", "copy", source, database, "--goal", "goal-3", "-f", "json")
    assert (nothing.code, "goal-3" in nothing.err) == (3, True)
    assert command("store", "copy", source, source, "-f", "json").code == 2
    secret = database.replace("postgres@", "postgres:hunter2@")
    refused = command("store", "copy", source, secret.replace("/test_", "/no_test_"), "-f", "json")
    assert (refused.code, "hunter2" in refused.err) == (1, False)


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals on Windows")
def test_a_terminal_gets_progress_and_a_pipe_none(source: Path, tmp_path: Path) -> None:
    fill(source)
    shown = OnTerminal("store", "copy", str(source), str(tmp_path / "target")).shown()
    assert "Copying turns" in shown
    assert "Copying runs" in shown
    again = [*COMMAND, "store", "copy", str(source), str(tmp_path / "target"), "--verify-only"]
    found = subprocess.run(again, capture_output=True, text=True, check=True)
    assert (found.stderr, "Everything is at the target" in found.stdout) == ("", True)
    assert [line for line in found.stdout.splitlines() if line != line.rstrip()] == []


def test_a_target_without_tables_is_refused(source: Path, postgres_url: str) -> None:
    fill(source)
    with pytest.raises(JournalStoreError) as raised:
        copy_store(source, postgres_url)
    assert raised.value.kind == "store_schema_missing"


def test_a_root_is_not_copied_onto_itself(source: Path) -> None:
    fill(source)
    with pytest.raises(InvalidJournalError):
        copy_store(source, f"{source}{os.sep}")


def test_sessions_of_databases_are_listed_in_pages(source: Path, database: str, tmp_path: Path) -> None:
    bindings = FolderRoot(str(source)).bindings
    for number in range(450):
        bindings.write(GOALS[number % 2], f"{number:064x}", {"session_id": str(number)})
    assert outcomes(copy_store(source, database))["sessions"] == {"copied": 450}
    assert outcomes(copy_store(database, tmp_path / "back"))["sessions"] == {"copied": 450}
    assert files_in(tmp_path / "back") == files_in(source)
