"""What is kept in files of a folder is whole after a power cut, and what is said to be durable is there."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.turns.world import GOAL

from turn_journal_runtime.address import turn_journal_path
from turn_journal_runtime.turns.folder_root import FolderRoot
from turn_journal_runtime.turns.lease import acquire_lease

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The syncs and renames of this process, each with the name that it is of."""
    done: list[tuple[str, str]] = []
    fsync, replace = os.fsync, os.replace

    def noted_sync(descriptor: int) -> None:
        fsync(descriptor)
        done.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))

    def noted_replace(draft: Any, file: Any) -> None:
        replace(draft, file)
        done.append((f"rename {draft}", str(file)))

    monkeypatch.setattr(os, "fsync", noted_sync)
    monkeypatch.setattr(os, "replace", noted_replace)
    return done


def test_a_lease_file_is_never_half_there(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    """An empty one would keep every driver from the turn until somebody removes it."""
    path = turn_journal_path(tmp_path, goal_id=GOAL, turn_key="turn-1")
    with acquire_lease(tmp_path, path):
        (_, draft), (renamed, file) = calls
    assert (renamed, file) == (f"rename {draft}", str(path.with_suffix(".lease")))


def test_a_session_is_noted_before_anything_happens_in_it(tmp_path: Path, calls: list[tuple[str, str]]) -> None:
    FolderRoot(str(tmp_path)).bindings.write(GOAL, "line", {"session_id": "s"})
    sessions = tmp_path / "goals" / GOAL / "turn-sessions"
    (_, draft), renamed, *names = calls
    assert renamed == (f"rename {draft}", str(sessions / "line.json"))
    assert names == [("sync", str(sessions)), ("sync", str(sessions.parent))]
