"""Writes schemas/command-line/: what each command answers in JSON. With --check, only says what is stale.

`cli/documents.py` says what there is. What the core says is taken from the core's own schemas, which are made first.
"""

from __future__ import annotations

import inspect
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pydantic import TypeAdapter
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from turn_journal_runtime.cli.documents import ANSWERS, OF_CORE

if TYPE_CHECKING:
    from pydantic_core import core_schema

SCHEMAS: Final = Path(__file__).parents[1] / "schemas"
FOLDER: Final = SCHEMAS / "command-line"
#: A field of a docstring, and what is said of it, in lines that are indented further.
_ARGUMENT: Final = re.compile(r"^    (\w+): (.+(?:\n {5,}.+)*)", re.MULTILINE)


class _Schema(GenerateJsonSchema):
    """Schemas in the core's manner: closed objects, what each field is, and no titles that repeat a field's name."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _said_of_fields(super().typed_dict_schema(schema), schema.get("cls"))

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _said_of_fields(super().dataclass_schema(schema), schema["cls"])


def _said_of_fields(schema: JsonSchemaValue, made_of: type[Any] | None) -> JsonSchemaValue:
    """The schema of a type with what the `Args` of its docstring, and of those that it extends, say of its fields."""
    for kind in made_of.__mro__ if made_of is not None else ():
        _, _, arguments = (inspect.getdoc(kind) or "").partition("Args:\n")
        for name, said in _ARGUMENT.findall(arguments.partition("\n\n")[0]):
            if name in schema["properties"]:
                in_json = " ".join(said.split()).replace("None", "null")
                schema["properties"][name].setdefault("description", in_json)
    return schema


def schema_of(command: str, core: dict[str, Any]) -> dict[str, Any]:
    """The schema of a command's answer."""
    made: dict[str, Any] = TypeAdapter(ANSWERS[command]).json_schema(mode="serialization", schema_generator=_Schema)
    definitions: dict[str, Any] = {}
    made = _closed(made, core, definitions)
    definitions |= made.pop("$defs", {})
    title = "turn-journal: an error" if command == "error" else f"turn-journal {command} --format json"
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **made,
        "title": title,
        **({"$defs": dict(sorted(definitions.items()))} if definitions else {}),
    }


def _closed(schema: Any, core: dict[str, Any], definitions: dict[str, Any]) -> Any:
    """A schema whose objects have no other fields, with the core's documents where they are named."""
    if isinstance(schema, list):
        return [_closed(item, core, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if OF_CORE in schema:
        name = schema.pop(OF_CORE)
        return _taken({"$ref": f"#/$defs/{name}"}, core, definitions) | schema
    closed = {key: _closed(value, core, definitions) for key, value in schema.items()}
    if isinstance(schema.get("description"), str):
        closed["description"] = schema["description"].split("\n")[0]
    if schema.get("type") == "object" and "properties" in schema:
        closed["additionalProperties"] = False
    return closed


def _taken(schema: Any, core: dict[str, Any], definitions: dict[str, Any]) -> Any:
    """A schema of the core's, with the definitions that it needs."""
    if isinstance(schema, list):
        return [_taken(item, core, definitions) for item in schema]
    if not isinstance(schema, dict):
        return schema
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name and name not in definitions:
        definitions[name] = None
        definitions[name] = _taken(core[name], core, definitions)
    return {key: _taken(value, core, definitions) for key, value in schema.items()}


def core_definitions() -> dict[str, Any]:
    """The core's documents by name."""
    found: dict[str, Any] = {}
    for path in sorted(SCHEMAS.glob("*.result.json")):
        found |= json.loads(path.read_text(encoding="utf-8")).get("$defs", {})
    return found


def main(check: bool) -> int:
    """Writes the schemas, or says which are stale."""
    core = core_definitions()
    wanted = {
        f"{command.replace(' ', '-')}.json": json.dumps(schema_of(command, core), indent=2) + "\n"
        for command in ANSWERS
    }
    FOLDER.mkdir(exist_ok=True)
    present = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    stale = sorted(name for name in wanted.keys() | present.keys() if wanted.get(name) != present.get(name))
    if check and stale:
        print(f"schemas/command-line/ is stale ({', '.join(stale)}): run `make schemas` and commit the result")
        return 1
    for name in stale:
        if name in wanted:
            (FOLDER / name).write_text(wanted[name], encoding="utf-8")
        else:
            (FOLDER / name).unlink()
    return 0


if __name__ == "__main__":
    raise SystemExit(main("--check" in sys.argv))
