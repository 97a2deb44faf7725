"""The cases of tests/contract/turn_journal, read as the README beside them says, and the twin of the operation id."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

import rfc8785

CONTRACT = Path(__file__).parent
CORPUS = CONTRACT / "corpus"
NAMED: dict[str, Any] = json.loads((CONTRACT / "journals.json").read_text("utf-8"))


class Case(NamedTuple):
    """One case, and the file that it is of."""

    file: str
    method: str
    question: dict[str, Any]
    name: str
    request: dict[str, Any]
    expected: Any

    def __str__(self) -> str:
        return f"{self.file}: {self.name}"


def _cases(path: Path) -> list[Case]:
    content = json.loads(path.read_text("utf-8"))
    question = content.get("question", {})
    return [Case(path.stem, content["method"], question, **case) for case in content["cases"]]


ALL = [case for path in sorted((CONTRACT / "turn_journal").glob("*.json")) for case in _cases(path)]


def journal_of(spec: Any) -> Any:
    """The journal that a case means: one by its name, a change of another, or as it is."""
    if isinstance(spec, str):
        return journal_of(NAMED[spec])
    if "value" in spec:
        return spec["value"]
    return with_changes(journal_of(spec["base"]), spec)


def with_changes(value: Any, changes: dict[str, Any]) -> Any:
    """A copy without what `drop` names and with what `set` gives, both by JSON pointers."""
    changed = json.loads(json.dumps(value))
    for pointer in changes.get("drop", ()):
        parent, key = _place(changed, pointer)
        del parent[key]
    for pointer, to in changes.get("set", {}).items():
        parent, key = _place(changed, pointer)
        parent[key] = to
    return changed


def _place(value: Any, pointer: str) -> tuple[Any, Any]:
    *way, key = pointer.split("/")[1:]
    for step in way:
        value = value[int(step)] if isinstance(value, list) else value[step]
    return value, int(key) if isinstance(value, list) else key


def filled_in(expected: Any, found: Any) -> Any:
    """What is expected, with everything that it does not name taken from what was found."""
    if not (isinstance(expected, dict) and isinstance(found, dict)):
        return expected
    return found | {key: filled_in(value, found.get(key)) for key, value in expected.items()}


def operation_id(journal: Any) -> str:
    """The operation id by another library than the core's."""
    return f"sha256:{hashlib.sha256(rfc8785.dumps(journal)).hexdigest()}"
