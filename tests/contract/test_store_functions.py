"""The store from Python: a folder that another program began, its history, proof, pruning and repair."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from turn_journal_runtime import (
    JournalCorruptError,
    JournalNotFoundError,
    inspect_turn_journal,
    list_turn_journals,
    load_turn_journal,
    prune_turn_journals,
    repair_turn_journal,
    turn_heads,
    turn_history,
    turn_journal_path,
    verify_turn_journal,
    write_turn_journal,
)
from turn_journal_runtime.bridge import RuntimeClient

if TYPE_CHECKING:
    from pathlib import Path

    from turn_journal_runtime.documents import VerifiedTurn

GOAL, AGENT = "ship-it", "coder"
PHASES = ["a", "b", "c"]


def journal(key: str, completed: int, status: str = "in_progress", **more: Any) -> dict[str, Any]:
    return {
        "schema_version": "loopx_turn_journal_v0",
        "goal_id": GOAL,
        "agent_id": AGENT,
        "turn_key": key,
        "effect_id": f"effect-of-{key}",
        "status": status,
        "completed_phases": PHASES[:completed],
        "plan": {"phases": PHASES},
        **more,
    }


def path_of(root: Path, key: str) -> Path:
    return turn_journal_path(root, goal_id=GOAL, turn_key=key)


def write_all(root: Path, key: str, client: RuntimeClient) -> None:
    for completed in range(3):
        write_turn_journal(path_of(root, key), journal(key, completed), client=client)
    write_turn_journal(path_of(root, key), journal(key, 3, "committed", bulk="x" * 1000), client=client)


def test_a_folder_of_another_program_is_adopted_and_stays_readable(tmp_path: Path, client: RuntimeClient) -> None:
    path = path_of(tmp_path, "night-1")
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(journal("night-1", 1), indent=2, sort_keys=True) + "\n", "utf-8")
    assert turn_history(path, client=client) == []
    assert verify_turn_journal(tmp_path, client=client)["transitions"] == 0
    assert sorted(file.name for file in path.parent.iterdir()) == ["night-1.json"], "who only reads leaves nothing"
    write_turn_journal(path, journal("night-1", 2), client=client)
    assert json.loads(path.read_text("utf-8")) == journal("night-1", 2)
    assert [(row["seq"], row["adopted"]) for row in turn_history(path, client=client)] == [(1, True), (2, False)]
    assert load_turn_journal(path, at=1, client=client) == journal("night-1", 1)
    assert [file.name for file in path.parent.glob("*.json")] == ["night-1.json"], "what others look for is theirs"


def test_a_history_is_told_proven_and_what_was_changed_is_named(tmp_path: Path, client: RuntimeClient) -> None:
    for key in ("night-1", "night-2"):
        write_all(tmp_path, key, client)
    path = path_of(tmp_path, "night-1")
    rows = turn_history(path, client=client)
    assert [row["completed_phases"] for row in rows] == [PHASES[:completed] for completed in range(4)]
    for row in rows:
        assert load_turn_journal(path, at=row["seq"], client=client)["completed_phases"] == row["completed_phases"]
    with pytest.raises(JournalNotFoundError):
        load_turn_journal(path, at=5, client=client)
    heads = list(turn_heads(tmp_path, client=client))
    seen: list[VerifiedTurn] = []
    report = verify_turn_journal(tmp_path, progress=seen.append, client=client)
    assert (report["ok"], report["turns"], report["transitions"], len(seen)) == (True, 2, 8, 2)
    scopes: list[dict[str, Any]] = [{"goal_id": GOAL}, {"goal_id": GOAL, "turn_key": "night-1"}]
    for scope in scopes:
        assert verify_turn_journal(tmp_path, client=client, **scope)["ok"]

    history = path.with_name("night-1.history.jsonl")
    lines = history.read_bytes().splitlines(keepends=True)
    history.write_bytes(b"".join([lines[0], lines[1].replace(b"in_progress", b"in_progresS", 1), *lines[2:]]))
    report = verify_turn_journal(tmp_path, client=client)
    places = [(one["turn_key"], one["problem"] and one["problem"]["line"]) for one in report["problems"]]
    assert (report["ok"], places) == (False, [("night-1", 2)])
    with pytest.raises(JournalCorruptError):
        turn_history(path, client=client)

    plan = repair_turn_journal(path, client=client)
    assert (plan["repair"], plan["done"], plan["kept"]) == ("cut_history", False, 1)
    assert history.read_bytes() != b"".join(lines[:1]), "what would be cut is said before it is cut"
    assert repair_turn_journal(path, plan=plan["plan"], client=client)["done"]
    assert verify_turn_journal(tmp_path, client=client)["ok"]
    assert not verify_turn_journal(tmp_path, heads=heads, client=client)["ok"], "the heads of before know better"


def test_what_is_over_is_pruned_and_inspects_the_same(tmp_path: Path, client: RuntimeClient) -> None:
    for key in ("night-1", "night-2", "night-3"):
        write_all(tmp_path, key, client)
    write_turn_journal(path_of(tmp_path, "night-4"), journal("night-4", 0), client=client)
    ask: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "turn_key": "night-1"}
    before = inspect_turn_journal(tmp_path, client=client, **ask)
    assert prune_turn_journals(tmp_path, older_than=3600, client=client) == []
    planned = prune_turn_journals(tmp_path, older_than=0, keep=2, dry_run=True, client=client)
    assert [turn["turn_key"] for turn in planned] == ["night-1", "night-2"]
    assert len(turn_history(path_of(tmp_path, "night-1"), client=client)) == 4
    assert prune_turn_journals(tmp_path, older_than=0, keep=2, client=client) == planned
    assert inspect_turn_journal(tmp_path, client=client, **ask) == before
    (row,) = turn_history(path_of(tmp_path, "night-1"), client=client)
    assert (row["seq"], row["pruned"]) == (5, True)
    assert verify_turn_journal(tmp_path, client=client)["ok"]
    assert len(list(list_turn_journals(tmp_path, client=client))) == 4
    assert len(turn_history(path_of(tmp_path, "night-3"), client=client)) == 4


def test_files_are_for_their_owner_alone_and_a_key_signs_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURN_JOURNAL_SIGNING_KEY", "a key for this test")
    before = os.umask(0)
    try:
        with RuntimeClient() as client:
            write_all(tmp_path / "root", "night-1", client)
            assert all(row["signed"] for row in turn_history(path_of(tmp_path / "root", "night-1"), client=client))
            assert verify_turn_journal(tmp_path / "root", client=client)["ok"]
    finally:
        os.umask(before)
    modes = {
        file.relative_to(tmp_path).as_posix(): stat.S_IMODE(file.lstat().st_mode)
        for file in (tmp_path / "root").rglob("*")
    }
    turns = f"root/goals/{GOAL}/turns"
    assert modes == {
        "root/goals": 0o700,
        f"root/goals/{GOAL}": 0o700,
        turns: 0o700,
        f"{turns}/night-1.json": 0o600,
        f"{turns}/night-1.history.jsonl": 0o600,
        f"{turns}/night-1.lock": 0o600,
    }
