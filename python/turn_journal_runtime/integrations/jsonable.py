"""What a tool of a framework returned, as the record takes it."""

from __future__ import annotations

from typing import Any

from pydantic_core import to_jsonable_python

__all__ = ["as_json", "jsonable"]


def as_json(returned: Any) -> Any:
    """A value as JSON; what has no form there is its text.

    Raises:
        ValueError: It cannot be had, such as of a value that contains itself.
    """
    return to_jsonable_python(returned, bytes_mode="base64", fallback=str)


def jsonable(returned: Any) -> Any:
    """As `as_json`, or as it is.

    The tool has run: the journal takes what it returned as it takes any value, or says what is wrong with it.
    """
    try:
        return as_json(returned)
    except ValueError:
        return returned
