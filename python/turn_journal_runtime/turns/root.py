"""What a runtime root gives its turns: where each one is, its lease, its host's sessions, its run.

A root is a folder of one machine (`folder_root`), or a database that many hosts share (`database_root`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from ..address import absolute, is_database

if TYPE_CHECKING:
    import os
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from pathlib import Path

    from ..bridge import RuntimeClient
    from ..flow import Flow
    from ..run_journal import RunJournal

__all__ = ["Bindings", "Lease", "TurnPath", "TurnRoot", "open_root"]

#: Where a turn lives, as `turn_journal_path` gives it.
TurnPath: TypeAlias = "Path | str"


class Lease(Protocol):
    """The right to drive one turn. Its number goes with every write; an old one is refused."""

    @property
    def number(self) -> int:
        """The fencing number."""
        ...

    def check(self) -> None:
        """Raises `JournalConflictError` (`turn_lease_lost`) when the turn is known to be lost, and `TurnBusyError` in a
        forked child, whose parent drives on."""
        ...

    def confirm(self) -> Flow[None]:
        """Sees, before an outside effect, that nobody else may drive the turn by now; raises as `check`."""
        ...

    def look(self) -> None:
        """As `confirm`, and also when nothing is overdue; called from the host's own thread."""
        ...

    def ending(self, end: Callable[[], object] | None) -> AbstractContextManager[None]:
        """Work that `end` brings to an end, should the turn be lost meanwhile."""
        ...

    def give_back(self) -> Flow[None]:
        """Lets others drive."""
        ...


class Bindings(Protocol):
    """The sessions of hosts, by goal and by the name of a line of work."""

    def read(self, goal_id: str, line: str) -> Flow[dict[str, Any] | None]:
        """The binding of a line; None when there is none that can be read."""
        ...

    def write(self, goal_id: str, line: str, binding: dict[str, Any]) -> None:
        """Stores a binding; durable when it returns. Called from the host's own thread."""
        ...

    def remove(self, goal_id: str, line: str) -> Flow[None]:
        """Forgets a binding."""
        ...


class TurnRoot(Protocol):
    """A runtime root in the hands of those who drive its turns."""

    @property
    def address(self) -> str:
        """The root itself: a folder's absolute path, or a database's URL."""
        ...

    @property
    def bindings(self) -> Bindings:
        """Which host session belongs to which line of work."""
        ...

    def path(self, goal_id: str, turn_key: str) -> TurnPath:
        """Where a turn lives."""
        ...

    def acquire(self, path: TurnPath, *, take_over: bool = False) -> Flow[Lease]:
        """Takes the lease of a turn; raises `TurnBusyError`, whose `details` name the driver that has it."""
        ...

    def is_driven(self, path: TurnPath) -> Flow[bool]:
        """Whether somebody drives the turn at the moment."""
        ...

    def runs(self) -> AbstractContextManager[RunJournal]:
        """The journal of the turns' runs, for as long as it is needed."""
        ...

    def runs_there(self) -> AbstractContextManager[RunJournal | None]:
        """The same where there is one; None instead of making it."""
        ...


def open_root(runtime_root: str | os.PathLike[str], client: RuntimeClient) -> TurnRoot:
    """The root at an address; nothing is read or made yet.

    Args:
        runtime_root: A folder, or `postgresql://…`.
        client: What renews the leases of a database while a turn is driven.
    """
    if is_database(runtime_root):
        from .database_root import DatabaseRoot

        return DatabaseRoot(str(runtime_root), client)
    from .folder_root import FolderRoot

    return FolderRoot(absolute(runtime_root))
