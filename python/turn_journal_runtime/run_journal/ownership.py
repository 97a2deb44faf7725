"""Who drives a run: the owner behind one journal handle, and its view of the others.

Specified in run-journal.md, section 4; ts/src/run/Ownership.ts is its twin.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from ..errors import TurnBusyError
from .liveness import Owner, describe, is_alive

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable

    from .database import Row

__all__ = ["Ownership"]

_ownerships: weakref.WeakSet[Ownership] = weakref.WeakSet()


class Ownership:
    """What one handle owns.

    Args:
        path: The journal's file, or `:memory:`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._when_free = "when it dies, the run is free at once"
        self._reset()
        _ownerships.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._owner: Owner | None = None
        #: Tokens are never used twice, so that the dead stay dead.
        self._dead: set[str] = set()
        #: What drives each run in this process; a driver that was dropped without a word drives no more.
        self._drivers: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()

    def owner(self) -> Owner:
        """The owner of this handle, made when it is first needed."""
        with self._lock:
            if self._owner is None:
                self._owner = Owner(self._path)
            return self._owner

    def begin(self, run_id: str, driver: object) -> None:
        """Notes what drives a run for this owner."""
        self._drivers[run_id] = driver

    def end(self, run_id: str, driver: object) -> None:
        """Notes that a driver drives its run no more; one that has taken the run over from it still does."""
        if self._drivers.get(run_id) is driver:
            self._drivers.pop(run_id, None)

    def is_driven(self, run_id: str, token: str | None) -> bool:
        """Whether the owner that is noted on a run lives and drives it."""
        if token is None or token in self._dead:
            return False
        if self._owner is not None and token == self._owner.token:
            return run_id in self._drivers
        if is_alive(self._path, token):
            return True
        self._dead.add(token)
        return False

    def standing(self, read: Callable[[], list[Row]], is_driven: Callable[..., bool]) -> list[tuple[Row, bool]]:
        """Rows that begin with a run and its owner, each with whether that owner drives it, asked with the whole row.

        What a dead owner has last said of its run is known after its death: it may have ended the run before.
        """
        while True:
            token, here, dead = self._owner and self._owner.token, set(self._drivers), len(self._dead)
            found = [(row, (row[1] == token and row[0] in here) or is_driven(*row)) for row in read()]
            if len(self._dead) == dead:
                return found

    def refuse_driven(self, cursor: sqlite3.Cursor, run_id: str) -> None:
        """Asks inside of the transaction that wants to change a run.

        Raises:
            TurnBusyError: A living owner drives it; `details["owner"]` is what it has said of itself.
        """
        row = cursor.execute("SELECT owner, holder FROM run_drives WHERE run_id = ?", (run_id,)).fetchone()
        if row is not None:
            self.refuse_owner(run_id, *row)

    def drives_here(self, run_id: str, token: str | None) -> bool:
        """Whether it is this handle that drives it."""
        return self._owner is not None and token == self._owner.token and run_id in self._drivers

    def refuse_owner(self, run_id: str, token: str | None, holder: str | None) -> None:
        """As `refuse_driven`, with what is noted on the run."""
        if not self.is_driven(run_id, token):
            return
        owner = describe(holder)
        raise TurnBusyError(
            f"Run {run_id!r} is driven by process {owner.get('pid', '?')} on {owner.get('host', '?')}. Wait for it to "
            f"end; {self._when_free}.",
            details={"run_id": run_id, "owner": owner},
        )

    def release(self) -> None:
        """Gives up every run of this handle."""
        with self._lock:
            owner, self._owner = self._owner, None
            if owner is not None:
                owner.release()

    def _leave_to_parent(self) -> None:
        for driver in list(self._drivers.values()):
            driver.disown()
        self._reset()


def _after_fork() -> None:
    for ownership in list(_ownerships):
        ownership._leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
