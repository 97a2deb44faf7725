"""The committed schemas of what commands answer in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from jsonschema import Draft202012Validator

SCHEMAS: Final = Path(__file__).parents[3] / "schemas" / "command-line"


def fits(command: str, answer: Any) -> None:
    """Holds an answer to the schema of its command."""
    schema = json.loads((SCHEMAS / f"{command}.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(answer)
