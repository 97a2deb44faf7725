"""The corpus of an independent implementation, over the façade and the real process: every inspection, every write."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.cases import CORPUS

from turn_journal_runtime.errors import TurnJournalError
from turn_journal_runtime.journal import interpret_turn_journal_projection, write_turn_journal

if TYPE_CHECKING:
    from pathlib import Path

    from turn_journal_runtime.bridge import RuntimeClient


def _corpus(name: str) -> list[dict[str, Any]]:
    lines = (CORPUS / f"{name}.jsonl").read_text("utf-8").removesuffix("\n").split("\n")
    entries: list[dict[str, Any]] = [json.loads(line) for line in lines]
    assert len(entries) == 500
    return entries


@pytest.mark.parametrize("entry", _corpus("inspections"))
def test_inspection(entry: dict[str, Any], client: RuntimeClient) -> None:
    assert interpret_turn_journal_projection(**entry["request"], client=client) == entry["expected"]


@pytest.mark.parametrize("entry", _corpus("transitions"))
def test_transition(entry: dict[str, Any], tmp_path: Path, client: RuntimeClient) -> None:
    existing = entry["request"]["existing"]
    # Existing and incoming may be of two turns: a path without the canonical layout takes both.
    path = tmp_path / "journal.json"
    if existing is not None and not _is_written(path, existing, client):
        # It cannot be a first write: it was put there by another program.
        path.write_text(json.dumps(existing), "utf-8")
    before = path.read_bytes() if path.exists() else None
    assert _outcome(path, client, **entry["request"]) == entry["expected"]
    if "refused" in entry["expected"] or entry["expected"]["replayed"]:
        assert (path.read_bytes() if path.exists() else None) == before


def _outcome(path: Path, client: RuntimeClient, incoming: Any, expected_effect_id: str | None, **_: Any) -> Any:
    try:
        result = write_turn_journal(path, incoming, expected_effect_id=expected_effect_id, client=client)
    except TurnJournalError as error:
        return {"refused": error.kind}
    return {key: value for key, value in result.items() if key in ("appended", "replayed", "effect_id")}


def _is_written(path: Path, journal: Any, client: RuntimeClient) -> bool:
    try:
        write_turn_journal(path, journal, client=client)
    except TurnJournalError:
        return False
    return True
