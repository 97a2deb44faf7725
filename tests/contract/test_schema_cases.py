"""Every schema's valid and invalid documents, against schemas/ by both validators. TypeScript runs the same ones."""

from __future__ import annotations

import json
from typing import Any

import jsonschema_rs
import pytest
from jsonschema import Draft202012Validator
from tests.contract.cases import CONTRACT, with_changes

SCHEMAS = {path.stem: json.loads(path.read_text("utf-8")) for path in (CONTRACT.parents[1] / "schemas").glob("*.json")}
CASES: dict[str, Any] = {
    path.stem: json.loads(path.read_text("utf-8")) for path in sorted((CONTRACT / "schemas").glob("*.json"))
}


def _documents(kind: str) -> list[Any]:
    found = []
    for schema, cases in CASES.items():
        for case in cases[kind]:
            value = case["value"] if "value" in case else with_changes(cases["valid"][0]["value"], case)
            found.append(pytest.param(schema, value, id=f"{schema}: {case['name']}"))
    return found


def _fits(schema: str, value: Any) -> bool:
    """Whether the value fits, on which the two validators have to agree."""
    fits = jsonschema_rs.validator_for(SCHEMAS[schema]).is_valid(value)
    assert fits == Draft202012Validator(SCHEMAS[schema]).is_valid(value)
    return fits


def test_every_schema_has_cases() -> None:
    # errors.json is a table, no schema.
    assert set(CASES) == set(SCHEMAS) - {"errors"}
    assert all(cases["valid"] and cases["invalid"] for cases in CASES.values())


@pytest.mark.parametrize("name", sorted(CASES))
def test_schema_is_a_schema(name: str) -> None:
    Draft202012Validator.check_schema(SCHEMAS[name])


@pytest.mark.parametrize(("schema", "value"), _documents("valid"))
def test_valid(schema: str, value: Any) -> None:
    assert _fits(schema, value)


@pytest.mark.parametrize(("schema", "value"), _documents("invalid"))
def test_invalid(schema: str, value: Any) -> None:
    assert not _fits(schema, value)
