"""The schemas as Python uses them: the fast validator and the one for the words agree."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from turn_journal_runtime.bridge import schemas
from turn_journal_runtime.bridge.schemas import check_ready, checked_result, load, schemas_digest
from turn_journal_runtime.errors import ProtocolError

if TYPE_CHECKING:
    import random

CORPUS = Path(__file__).parents[2] / "contract" / "corpus" / "inspections.jsonl"
INSPECTIONS = [json.loads(line)["expected"] for line in CORPUS.read_text("utf-8").splitlines()]
NAMES = sorted(path.stem for path in schemas._SCHEMAS.glob("*.json"))
READY = {"name": "n", "version": "1", "protocol": 1, "pid": 1, "node": "24.0.0"}


def fits(name: str, value: Any) -> bool:
    return bool(schemas._validator(name).is_valid(value))


def test_every_inspection_of_the_corpus_fits() -> None:
    for inspection in INSPECTIONS:
        assert checked_result("turn_journal.inspect", inspection) is inspection


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container with each of its keys."""
    if isinstance(value, dict):
        return [(value, key) for key in value] + [place for item in value.values() for place in places(item)]
    if isinstance(value, list):
        return [(value, key) for key in range(len(value))] + [place for item in value for place in places(item)]
    return []


@given(st.integers(0, len(INSPECTIONS) - 1), st.randoms(use_true_random=False))
def test_both_validators_agree_on_changed_inspections(number: int, chance: random.Random) -> None:
    inspection = copy.deepcopy(INSPECTIONS[number])
    container, key = chance.choice(places(inspection))
    change = chance.randrange(3)
    if change == 0:
        del container[key]
    elif change == 1:
        container[key] = chance.choice([None, True, 1, 1.5, "", "other", [], {}, [None]])
    else:
        inspection[chance.choice(["more", "ok", "effects"])] = chance.choice([None, False, [1]])
    name = "turn_journal.inspect.result"
    words = list(Draft202012Validator(load(name)).iter_errors(inspection))
    assert fits(name, inspection) == (not words)
    if words:
        with pytest.raises(ProtocolError) as broken:
            checked_result("turn_journal.inspect", inspection)
        assert broken.value.details["path"].startswith("$")


@pytest.mark.parametrize("name", [name for name in NAMES if name != "errors"])
@pytest.mark.parametrize("value", [None, True, 0, "", [], {}, {"ok": True}], ids=repr)
def test_both_validators_agree_on_every_schema(name: str, value: Any) -> None:
    Draft202012Validator.check_schema(load(name))
    assert fits(name, value) == Draft202012Validator(load(name)).is_valid(value)


def test_the_digest_depends_on_names_and_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schemas, "_SCHEMAS", tmp_path)
    digests = set()
    for files in ({"a": "1"}, {"b": "1"}, {"a": "2"}, {"a": "1", "b": ""}, {"a": "1\nb.json"}):
        for path in tmp_path.iterdir():
            path.unlink()
        for name, text in files.items():
            (tmp_path / f"{name}.json").write_text(text)
        schemas_digest.cache_clear()
        digests.add(schemas_digest())
    schemas_digest.cache_clear()
    assert len(digests) == 5


def test_a_core_that_fits_is_let_in_with_whatever_else_it_says() -> None:
    check_ready({**READY, "schemas": schemas_digest(), "of": "tomorrow"})
