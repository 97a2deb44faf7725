"""How far a command is that looks at many turns: a bar on standard error, when that is a terminal."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from ..address import is_database
from .output import err

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TypeVar

    from rich.progress import Progress, TaskID

    T = TypeVar("T")

__all__ = ["Bar", "count_turns", "each", "progress"]


class Bar:
    """A bar that is shown."""

    def __init__(self, shown: Progress, task: TaskID) -> None:
        self._shown = shown
        self._task = task

    def advance(self) -> None:
        """One more is done."""
        self._shown.advance(self._task)

    def begin(self, what: str, total: int | None = None) -> None:
        """Something else is done from now on."""
        self._shown.reset(self._task, description=what, total=total)


@contextmanager
def progress(what: str, total: int | None) -> Iterator[Bar]:
    """A bar for something of which there are so many; None: that is not known."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = err()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as shown:
        yield Bar(shown, shown.add_task(what, total=total))


def each(what: str, things: Iterable[T], total: int | None = None) -> list[T]:
    """All of them, with a bar while they come one by one."""
    found = []
    with progress(what, total) as bar:
        for thing in things:
            found.append(thing)
            bar.advance()
    return found


def count_turns(root: str, goal: str | None) -> int | None:
    """About how many turns a folder has; None of a database, which would have to look at each."""
    if is_database(root):
        return None
    folders = Path(root, "goals").glob("*/turns") if goal is None else [Path(root, "goals", goal, "turns")]
    return sum(name.endswith(".json") for folder in folders if folder.is_dir() for name in os.listdir(folder))
