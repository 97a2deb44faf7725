"""Who drives: a token whose life the kernel vouches for.

An owner is a SQLite lock file of its own beside the journal, held with `BEGIN EXCLUSIVE` while it lives. The kernel
frees the lock when the process dies, however it dies, so that a lock which can be taken is proof of death and one
which cannot is proof of life, in either language; no clock and no process id is trusted. Tokens are never used twice. A
journal in memory has no second process, and its owner no file. Specified in run-journal.md, section 4;
ts/src/run/Ownership.ts is its twin.
"""

from __future__ import annotations

import os
import platform
import sqlite3
import threading
import time
import weakref
from contextlib import suppress
from pathlib import Path
from typing import Any

import orjson

from ..errors import JournalStoreError, TurnBusyError
from .connection import MEMORY
from .filesystem import create_private

__all__ = ["Owner", "Ownership"]

_ownerships: weakref.WeakSet[Ownership] = weakref.WeakSet()
#: Owners that a fork inherited: the locks are the parent's, and the child never touches them.
_inherited: list[Owner] = []


class Owner:
    """One driver's claim to be alive, for runs of one journal.

    Args:
        path: The journal's file, or `:memory:`.

    Raises:
        JournalStoreError: The lock file cannot be made beside the journal.
    """

    def __init__(self, path: str) -> None:
        self._lock: sqlite3.Connection | None = None
        self._file: Path | None = None
        if path == MEMORY:
            self.token = _new_token()
        else:
            folder = owners_folder(path)
            _sweep(folder)
            self._hold(folder)
        self.holder = orjson.dumps(
            {"pid": os.getpid(), "host": platform.node(), "language": "python", "since": time.time()}
        ).decode()

    def release(self) -> None:
        """Gives up; every run it still drives counts as interrupted from here on."""
        lock, self._lock = self._lock, None
        if lock is None or self._file is None:
            return
        with suppress(OSError):
            self._file.unlink()
        lock.close()

    def _hold(self, folder: Path) -> None:
        while True:
            self.token = _new_token()
            self._file = folder / f"{self.token}.lock"
            try:
                create_private(self._file)
                self._lock = _exclusive(self._file)
            except sqlite3.Error as error:
                raise JournalStoreError(
                    f"The lock {self._file} cannot be held: {error}. The journal's folder must be on a local disk and "
                    "writable by this user.",
                    details={"path": str(self._file)},
                ) from error
            # A sweeper that came between the making and the locking has taken the file for a dead owner's.
            if self._lock is not None and self._file.exists():
                return
            if self._lock is not None:
                self._lock.close()


class Ownership:
    """The owner behind one journal handle, and its view of the others.

    Args:
        path: The journal's file, or `:memory:`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
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

    def end(self, run_id: str) -> None:
        """Notes that nothing of this owner drives a run any more."""
        self._drivers.pop(run_id, None)

    def is_driven(self, run_id: str, token: str | None) -> bool:
        """Whether the owner that is noted on a run lives and drives it."""
        if token is None or token in self._dead:
            return False
        if self._owner is not None and token == self._owner.token:
            return run_id in self._drivers
        if self._path != MEMORY and not _bury(owners_folder(self._path) / f"{token}.lock"):
            return True
        self._dead.add(token)
        return False

    def refuse_driven(self, cursor: sqlite3.Cursor, run_id: str) -> None:
        """Raises when a living owner drives a run; asked inside of the transaction that wants to change it.

        Raises:
            TurnBusyError: It does; `details["owner"]` is what it has said of itself.
        """
        row = cursor.execute("SELECT owner, holder FROM run_drives WHERE run_id = ?", (run_id,)).fetchone()
        if row is None or not self.is_driven(run_id, row[0]):
            return
        owner = describe(row[1])
        raise TurnBusyError(
            f"Run {run_id!r} is driven by process {owner.get('pid', '?')} on {owner.get('host', '?')}. Wait for it to "
            "end; when it dies, the run is free at once.",
            details={"run_id": run_id, "owner": owner},
        )

    def release(self) -> None:
        """Gives up every run of this handle."""
        with self._lock:
            owner, self._owner = self._owner, None
            if owner is not None:
                owner.release()

    def _leave_to_parent(self) -> None:
        if self._owner is not None:
            _inherited.append(self._owner)
        for driver in list(self._drivers.values()):
            driver.disown()
        self._reset()


def _after_fork() -> None:
    for ownership in list(_ownerships):
        ownership._leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def owners_folder(path: str) -> Path:
    """Where the owners of a journal hold their locks."""
    return Path(f"{path}.owners")


def describe(holder: str | None) -> dict[str, Any]:
    """What an owner has said of itself."""
    try:
        found = orjson.loads(holder or "{}")
    except orjson.JSONDecodeError:
        found = {}
    return found if isinstance(found, dict) else {}


def _new_token() -> str:
    return f"{os.getpid()}-{os.urandom(12).hex()}"


def _exclusive(file: Path) -> sqlite3.Connection | None:
    """The lock of an existing file, or None when somebody holds it."""
    connection = sqlite3.connect(
        file.absolute().as_uri() + "?mode=rw", uri=True, timeout=0, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            return None
        raise
    return connection


def _bury(file: Path) -> bool:
    """Removes the lock of a dead owner; False when it lives."""
    try:
        lock = _exclusive(file)
    except sqlite3.Error:
        # A lock that cannot be looked at proves nothing.
        return not file.exists()
    if lock is None:
        return False
    # Removed while it is held, so that nobody can take it up in between.
    with suppress(OSError):
        file.unlink()
    lock.close()
    return True


def _sweep(folder: Path) -> None:
    """Removes what dead owners left."""
    with suppress(OSError):
        for file in folder.glob("*.lock"):
            _bury(file)
