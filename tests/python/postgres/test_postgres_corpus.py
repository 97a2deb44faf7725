"""The corpus of an independent implementation and the written cases, over the façade, with a database as the root."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.contract.cases import ALL, CORPUS, journal_of, operation_id

from turn_journal_runtime import TurnJournalError, load_turn_journal, turn_journal_path, write_turn_journal

if TYPE_CHECKING:
    from collections.abc import Iterator


ROWS = (
    "SELECT state, line, found, (SELECT count(*) FROM turn_journal_transitions) FROM turn_journal_turns WHERE path = %s"
)
PLANT = (
    "INSERT INTO turn_journal_turns (path, state, base, found) VALUES (%s, gen_random_uuid(), gen_random_uuid(), %s)"
)


class Database:
    """A root, and its tables."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.tables = psycopg.connect(url, autocommit=True)

    def put(self, path: str, text: str) -> None:
        """Stores a journal the way another program would: without a history."""
        self.tables.execute(PLANT, (path.partition("#")[2], text.encode()))

    def rows(self, path: str) -> Any:
        return self.tables.execute(ROWS, (path.partition("#")[2],)).fetchone()

    def write(self, path: str, journal: Any, **expectations: Any) -> Any:
        """What a write comes to; one that does not write changes nothing."""
        before = self.rows(path)
        try:
            result = write_turn_journal(path, journal, **expectations)
        except TurnJournalError as error:
            assert self.rows(path) == before
            return {"refused": error.kind}
        assert result["replayed"] == (self.rows(path) == before)
        assert result["operation_id"] == operation_id(journal)
        assert load_turn_journal(path) == journal
        return {key: result[key] for key in ("appended", "replayed", "effect_id")}


@pytest.fixture
def database(root: str) -> Iterator[Database]:
    database = Database(root)
    yield database
    database.tables.close()


def test_the_corpus_of_transitions(database: Database) -> None:
    lines = (CORPUS / "transitions.jsonl").read_text("utf-8").removesuffix("\n").split("\n")
    assert len(lines) == 500
    for number, line in enumerate(lines):
        entry = json.loads(line)
        path, request = f"{database.url}#case-{number}.json", entry["request"]
        if request["existing"] is not None:
            database.put(path, json.dumps(request["existing"]))
        found = database.write(path, request["incoming"], expected_effect_id=request["expected_effect_id"])
        assert found == entry["expected"], f"transition {number}"


def test_the_cases_of_writes(database: Database) -> None:
    cases = [case for case in ALL if case.method == "write"]
    assert len(cases) > 20
    for number, case in enumerate(cases):
        # Each case has a database's worth of turns to itself: its turns are put away afterwards.
        writes = case.request["writes"]
        path = _path_of(case.request.get("path"), journal_of(writes[0]["journal"]), database.url)
        if "stored" in case.request:
            database.put(path, json.dumps(journal_of(case.request["stored"])))
        found = []
        for write in writes:
            expectations = {key: value for key, value in write.items() if key != "journal"}
            previous = expectations.get("expected_previous")
            if isinstance(previous, dict):
                expectations["expected_previous"] = operation_id(journal_of(previous["operation_id_of"]))
            found.append(database.write(path, journal_of(write["journal"]), **expectations))
        assert found == case.expected, f"{number}: {case}"
        database.tables.execute("TRUNCATE turn_journal_turns, turn_journal_transitions")


def _path_of(path: str | None, journal: Any, url: str) -> str:
    if path is not None:
        return f"{url}#{path}"
    return str(turn_journal_path(url, goal_id=journal["goal_id"], turn_key=journal["turn_key"]))
