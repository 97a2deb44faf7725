"""A root with something of everything, and what is in a root, byte for byte."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from turn_journal_runtime import (
    RunJournal,
    list_turn_journals,
    load_turn_journal,
    prune_turn_journals,
    turn_history,
    turn_journal_path,
    write_turn_journal,
)
from turn_journal_runtime.run_journal import DurableRun
from turn_journal_runtime.run_journal.copying import read_run, run_ids
from turn_journal_runtime.turns.folder_root import FolderRoot, run_journal_path

if TYPE_CHECKING:
    from pathlib import Path

GOALS: Final = ("goal-1", "goal-2")
#: Of each goal.
SESSIONS: Final = 2
STATUSES: Final = [("started", 0), ("in_progress", 1), ("committed", 2)]


def journal(goal: str, key: str, status: str = "started", completed: int = 0, **more: Any) -> dict[str, Any]:
    """A plain turn of two phases."""
    return {
        "schema_version": "loopx_turn_journal_v0",
        "goal_id": goal,
        "agent_id": "agent",
        "turn_key": key,
        "status": status,
        "plan": {"phases": ["fetch", "store"]},
        "completed_phases": ["fetch", "store"][:completed],
        **more,
    }


def write_turn(root: str | Path, goal: str, key: str, transitions: int = len(STATUSES)) -> None:
    """Writes a turn's transitions."""
    path = turn_journal_path(root, goal_id=goal, turn_key=key)
    for status, completed in STATUSES[:transitions]:
        write_turn_journal(path, journal(goal, key, status, completed, text="ä\u0000" + key))


def fill(root: Path, turns: int = 3) -> None:
    """A folder with turns in every state, sessions and runs."""
    for goal in GOALS:
        for number in range(turns):
            write_turn(root, goal, f"{goal}.turn-{number}", 1 + number % 3)
        write_turn(root, goal, "pruned")
    prune_turn_journals(root, older_than=0, goal_id=GOALS[1])
    foreign = turn_journal_path(root, goal_id=GOALS[0], turn_key="foreign")
    foreign.write_text(json.dumps(journal(GOALS[0], "foreign"), indent=3) + "\n", "utf-8")
    os.utime(foreign, (1_700_000_000.125, 1_700_000_000.125))
    bindings = FolderRoot(str(root)).bindings
    for goal in GOALS:
        for number in range(SESSIONS):
            bindings.write(goal, f"line-{number}", {"goal_id": goal, "session_id": f"session-{number}"})
    file = run_journal_path(root)
    file.parent.mkdir(mode=0o700)
    with RunJournal(file) as runs:
        for goal in GOALS:
            with DurableRun(runs, f"{goal}.turn-0", agent="agent", task=goal) as run:
                run.model(lambda: {"say": "hello"}, request={"prompt": "hi", "big": 2**70, "float": 0.1})
                run.tool("send", {"to": goal}, lambda to: f"sent to {to}")
        with DurableRun(runs, f"{GOALS[0]}.turn-0.1", agent="agent", task="again", metadata={"n": 1}) as run:
            run.tool("send", {"to": "again"}, lambda to: f"sent to {to}")
        runs.open_run("open", agent="agent", task="never ended")


def runs_in(path: str | Path) -> dict[str, Any]:
    """Every run of a journal as a document."""
    with RunJournal(path) as runs:
        return {run_id: read_run(runs, run_id) for run_id in run_ids(runs)}


def files_in(root: Path) -> dict[str, Any]:
    """What copying is about, of a folder: histories, journals with their times in milliseconds, and sessions."""
    found: dict[str, Any] = {}
    for path in sorted(root.glob("goals/*/turns/*")):
        name = str(path.relative_to(root))
        if path.suffix == ".jsonl":
            found[name] = path.read_bytes()
        elif path.suffix == ".json":
            found[name] = (path.read_bytes(), path.stat().st_mtime_ns // 1_000_000)
    for path in sorted(root.glob("goals/*/turn-sessions/*.json")):
        found[str(path.relative_to(root))] = json.loads(path.read_bytes())
    return found


def seen_in(root: str | Path) -> dict[str, Any]:
    """What the public functions say of every turn of a root."""
    found: dict[str, Any] = {}
    for turn in list_turn_journals(root):
        path = turn_journal_path(root, goal_id=turn["goal_id"], turn_key=turn["turn_key"])
        history = turn_history(path)
        journals = [load_turn_journal(path, at=one["seq"]) for one in history]
        found[f"{turn['goal_id']}/{turn['turn_key']}"] = (turn, history, journals, load_turn_journal(path))
    return found
