"""The store's answers, page by page, so that a root of any size is worked through in bounded memory."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from ..bridge import default_client
from .invocation import is_database

if TYPE_CHECKING:
    from collections.abc import Iterator

_PAGE: Final = 200


def absolute(root: str) -> str:
    """A runtime root as the core takes it."""
    return root if is_database(root) else os.path.abspath(root)


def pages(method: str, **params: Any) -> Iterator[dict[str, Any]]:
    """Every page of an answer."""
    after: Any = None
    while True:
        page = default_client().call(method, {**params, "after": after, "limit": _PAGE})
        yield page
        after = page["next"]
        if after is None:
            return


def items(method: str, field: str, **params: Any) -> Iterator[dict[str, Any]]:
    """Every item of an answer."""
    for page in pages(method, **params):
        yield from page[field]


def count_turns(root: str, goal: str | None) -> int | None:
    """About how many turns there are, for a progress bar; None where counting would cost as much as the work."""
    if is_database(root):
        return None
    goals = [goal] if goal is not None else _names(os.path.join(root, "goals"))
    return sum(
        sum(name.endswith(".json") for name in _names(os.path.join(root, "goals", name_of_goal, "turns")))
        for name_of_goal in goals
    )


def _names(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []
