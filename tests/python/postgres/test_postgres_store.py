"""The public functions on turns in a database: the same as on turns in folders."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.python.cli.conftest import command

from turn_journal_runtime import (
    JournalNotFoundError,
    inspect_turn_journal,
    list_turn_journals,
    load_turn_journal,
    turn_history,
    turn_journal_path,
    verify_turn_journal,
    write_turn_journal,
)
from turn_journal_runtime.bridge import default_client

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["command"]

PLAIN: dict[str, Any] = {
    "schema_version": "loopx_turn_journal_v0",
    "goal_id": "g",
    "agent_id": "a",
    "turn_key": "k",
    "plan": {"phases": ["fetch", "store"]},
}
STEPS = [("started", 0), ("in_progress", 1), ("committed", 2)]


def _journal(status: str, completed: int, **more: Any) -> dict[str, Any]:
    return {**PLAIN, "status": status, "completed_phases": ["fetch", "store"][:completed], **more}


@pytest.fixture
def root(postgres_url: str) -> str:
    """A database that is ready for turns."""
    default_client().call("store.migrate", {"runtime_root": postgres_url})
    return postgres_url


def _write_all(root: str | Path) -> str | Path:
    path = turn_journal_path(root, goal_id="g", turn_key="k")
    for status, completed in STEPS:
        write_turn_journal(path, _journal(status, completed))
    return path


def test_a_turn_in_a_database_is_written_read_inspected_listed_and_verified(root: str, tmp_path: Path) -> None:
    path = _write_all(root)
    assert path == f"{root}#goals/g/turns/k.json"
    assert write_turn_journal(path, _journal("committed", 2))["replayed"]
    assert load_turn_journal(path) == _journal("committed", 2)
    assert load_turn_journal(path, at=1) == _journal("started", 0)
    inspection = inspect_turn_journal(root, goal_id="g", agent_id="a", turn_key="k")
    _write_all(tmp_path)
    assert inspection == inspect_turn_journal(tmp_path, goal_id="g", agent_id="a", turn_key="k")
    assert [turn["turn_key"] for turn in list_turn_journals(root)] == ["k"]
    assert [one["seq"] for one in turn_history(path)] == [1, 2, 3]
    assert verify_turn_journal(root)["ok"]
    with pytest.raises(JournalNotFoundError):
        load_turn_journal(turn_journal_path(root, goal_id="g", turn_key="other"))
