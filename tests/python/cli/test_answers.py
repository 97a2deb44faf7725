"""What commands answer in JSON is described by a schema each, and what describes it is fresh and complete."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NotRequired, get_origin, get_type_hints

import jsonschema
import pytest
from tests.python.cli.answer_schemas import SCHEMAS, fits
from typer.main import get_command

from turn_journal_runtime import documents
from turn_journal_runtime.cli.app import app

if TYPE_CHECKING:
    from .conftest import Command

ROOT = Path(__file__).parents[3]


def _commands(command: Any, *words: str) -> list[str]:
    if not hasattr(command, "commands"):
        return ["-".join(words)]
    return [name for word, one in command.commands.items() for name in _commands(one, *words, word)]


def test_every_command_has_a_schema_for_its_answer_and_takes_a_format() -> None:
    assert {path.stem for path in SCHEMAS.glob("*.json")} == {*_commands(get_command(app)), "error"}


def test_the_schemas_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "python" / "schemas.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: str(path.stem))
def test_a_schema_is_one_and_refuses_what_it_does_not_name(path: Path) -> None:
    schema = json.loads(path.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    for answer in ({"surprise": 1}, [{"surprise": 1}]):
        if path.stem in ("history", "show") and isinstance(answer, dict):
            continue  # a journal has whatever its writer put into it
        with pytest.raises(jsonschema.ValidationError):
            fits(path.stem, answer)


@pytest.mark.parametrize("path", sorted(SCHEMAS.glob("*.json")), ids=lambda path: str(path.stem))
def test_every_field_of_an_answer_says_what_it_is(path: Path) -> None:
    def fields(schema: Any) -> list[tuple[str, Any]]:
        inner = list(schema.values()) if isinstance(schema, dict) else schema if isinstance(schema, list) else []
        own = schema.get("properties", {}) if isinstance(schema, dict) and schema.get("type") == "object" else {}
        return [*own.items(), *(found for one in inner for found in fields(one))]

    answer = json.loads(path.read_text(encoding="utf-8"))
    assert [name for name, field in fields(answer) if not str(field.get("description", "")).endswith(".")] == []
    assert fields(answer) or path.stem == "show"


#: The types of `documents`, by the names that the core's schemas have for them.
_OF_CORE = {name: name for name, value in vars(documents).items() if hasattr(value, "__required_keys__")} | {
    "RecoverableJournal": "RecoverableTurn",
    "StoredJournal": "ReadResult",
}
#: Those that the core has without a name of their own, and those that Python puts together.
_WITHOUT = {"CopiedItem", "CopyCount", "CopyReport", "RecoveryOutcome", "HistoryEnd", "PrunedTurn", "VerifyReport"}


@pytest.mark.parametrize("name", sorted(_OF_CORE.keys() - _WITHOUT))
def test_a_type_says_what_the_core_s_schema_says(name: str) -> None:
    definitions: dict[str, Any] = {}
    for path in (ROOT / "schemas").glob("*.result.json"):
        definitions |= json.loads(path.read_text(encoding="utf-8")).get("$defs", {})
    schema, made = definitions[_OF_CORE[name]], getattr(documents, name)
    assert made.__annotations__.keys() == schema["properties"].keys()
    hints = get_type_hints(made, include_extras=True)
    assert {field for field, hint in hints.items() if get_origin(hint) is not NotRequired} == set(schema["required"])


def test_a_mistake_in_the_command_line_is_told_to_a_person(command: Command) -> None:
    outcome = command("list", "--status", "-f", "json")
    assert (outcome.code, outcome.out) == (2, "")
    assert "Usage: turn-journal list" in outcome.err
