"""What is given as a place: a folder, a file, or the URL of a database; of any other URL no folder is made."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from turn_journal_runtime import (
    CallableHost,
    InvalidJournalError,
    RunJournal,
    inspect_turn_journal,
    list_turn_journals,
    run_turn,
    turn_journal_path,
    write_turn_journal,
)

if TYPE_CHECKING:
    from collections.abc import Callable

TURN: dict[str, Any] = {"goal_id": "g", "turn_key": "t"}
AGENT: dict[str, Any] = {**TURN, "agent_id": "a"}
WORK: dict[str, Any] = {"goal_id": "g", "agent_id": "a", "todo_id": "t"}
USES: dict[str, Callable[[Any], object]] = {
    "path": lambda place: turn_journal_path(place, **TURN),
    "write": lambda place: write_turn_journal(place, {}),
    "inspect": lambda place: inspect_turn_journal(place, **AGENT),
    "list": lambda place: list(list_turn_journals(place)),
    "drive": lambda place: run_turn(place, **WORK, host=CallableHost(lambda _: {})),
    "runs": RunJournal,
}
PLACES = ["POSTGRESQL://u:hush@h/db", "mysql://u:hush@h/db", "sqlite:///hush", Path("postgresql://u:hush@h/db")]


@pytest.mark.parametrize("place", PLACES, ids=str)
@pytest.mark.parametrize("use", USES)
def test_a_url_of_another_kind_is_no_folder(
    use: str, place: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InvalidJournalError, match="postgresql://") as refused:
        USES[use](place)
    assert "hush" not in str(refused.value)
    assert "hush" not in repr(refused.value.details)
    assert os.listdir(tmp_path) == []
