"""`turn-journal node install`; that it fetches a Node is shown with the bridge's tests."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Command


def test_a_mirror_that_does_not_answer_is_said_and_leaves_nothing(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURN_JOURNAL_CACHE_DIR", str(tmp_path))
    outcome = command("node", "install", "--mirror", "http://127.0.0.1:9/dist", "-f", "json")
    assert outcome.code == 1
    assert json.loads(outcome.err)["error"]["kind"] == "node_install_failed"
    assert [path.name for path in (tmp_path / "node").iterdir()] == [".lock"]


def test_a_node_that_is_too_old_is_refused_before_anything_is_fetched(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURN_JOURNAL_CACHE_DIR", str(tmp_path))
    outcome = command("node", "install", "18.0.0", "-f", "json")
    assert (outcome.code, json.loads(outcome.err)["error"]["kind"]) == (1, "node_too_old")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", ["latest", "24", "../24.0.0", "--version"])
def test_what_is_no_version_is_a_mistake(command: Command, version: str) -> None:
    assert command("node", "install", version).code == 2
