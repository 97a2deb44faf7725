"""One SQLite file, shared by threads and by processes.

One connection serves all threads of a process under a lock, because SQLite has one writer anyway. Every write takes the
write lock as it begins: a transaction is `BEGIN IMMEDIATE`, and a single statement outside of one is a transaction that
starts as a writer. So a writer waits for another one and never fails half way. Specified in run-journal.md, sections 1
and 5.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidJournalError, JournalStoreError
from ..forks import stands_still
from .connection import MEMORY, Durability, connect, identity_of, settings_of, typed_error
from .filesystem import new_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["Database", "Row", "check_durability"]

Row = tuple[Any, ...]

_WRITE: Final = "BEGIN IMMEDIATE"
#: How long the file that is open is taken for the one of its name: a look at each write costs a fifth of it. What is
#: written in between is lost as what was written before.
_LOOK_SECONDS: Final = 0.1
_REFUSALS = (sqlite3.Error, UnicodeError, OverflowError)

#: Files are opened one at a time: see `create_private`.
_opening = threading.Lock()


class Database:
    """A connection for every thread of a process; a forked child gets one of its own.

    Args:
        path: The file, or `:memory:`.
        durability: `process` (a commit survives the process) or `power` (it survives power loss).

    Raises:
        JournalStoreError: The place cannot hold a journal, or the file is of a newer version.
        JournalCorruptError: The file is no run journal.
    """

    def __init__(self, path: str, durability: Durability) -> None:
        check_durability(durability)
        self.path = path
        self.durability: Durability = durability
        self._lock = threading.RLock()
        self._closed = False
        self._cursor: sqlite3.Cursor | None = None
        self._file: tuple[int, int] | None = None
        self._looked_at = 0.0
        stands_still(self)
        with self._lock:
            self._open()

    def write(self, sql: str, parameters: Row) -> int:
        """Runs one statement as a transaction of its own; the number of rows it changed."""
        with self._lock:
            try:
                cursor = self._cursor
                if cursor is None:
                    cursor = self._open()
                self._refuse_other_file()
                return cursor.execute(sql, parameters).rowcount
            except _REFUSALS as error:
                raise typed_error(error, self.path) from error

    def read(self, sql: str, parameters: Row = ()) -> list[Row]:
        """All rows of a query. No cursor stays open, so that no reader holds up a writer."""
        with self._lock:
            try:
                return (self._cursor or self._open()).execute(sql, parameters).fetchall()
            except _REFUSALS as error:
                raise typed_error(error, self.path) from error

    def transaction(self) -> AbstractContextManager[sqlite3.Cursor]:
        """All or none; a writer from its first statement on."""
        return self._within(_WRITE)

    def snapshot(self) -> AbstractContextManager[sqlite3.Cursor]:
        """Several queries that see one state."""
        return self._within("BEGIN DEFERRED")

    @contextmanager
    def _within(self, begin: str) -> Iterator[sqlite3.Cursor]:
        with self._lock:
            cursor = self._cursor or self._open()
            try:
                cursor.execute(begin)
                if begin is _WRITE:
                    self._refuse_other_file()
                yield cursor
                cursor.execute("COMMIT")
            except BaseException as error:
                # Some failures have rolled back by themselves.
                with suppress(sqlite3.Error):
                    if cursor.connection.in_transaction:
                        cursor.connection.rollback()
                if isinstance(error, _REFUSALS):
                    raise typed_error(error, self.path) from error
                raise

    @property
    def settings(self) -> dict[str, Any]:
        """The settings as the connection in use reports them."""
        with self._lock:
            return settings_of((self._cursor or self._open()).connection)

    def backup(self, target: Path) -> None:
        """Copies the database as it stands at this moment; the copy appears whole or not at all.

        Raises:
            JournalConflictError: The target exists.
            JournalStoreError: It cannot be written.
        """
        with self._lock, new_file(target) as file:
            source = (self._cursor or self._open()).connection
            try:
                with _opening:
                    copy = sqlite3.connect(file, isolation_level=None)
                try:
                    source.backup(copy)
                    # Without a log the copy is one file, which can be moved; a journal brings the log back.
                    copy.execute("PRAGMA journal_mode = DELETE")
                finally:
                    copy.close()
            except sqlite3.Error as error:
                raise typed_error(error, str(target)) from error

    def empty_log(self) -> None:
        """Puts what was written into the file, so that what was deleted is in the log no more; waits for nobody."""
        with self._lock:
            cursor = self._cursor or self._open()
            patience = self.settings["busy_timeout"]
            try:
                # What was deleted is deleted, whatever becomes of this.
                with suppress(sqlite3.Error):
                    cursor.execute("PRAGMA busy_timeout = 0")
                    cursor.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            finally:
                cursor.execute(f"PRAGMA busy_timeout = {patience}")

    def vacuum(self) -> None:
        """Writes the file anew, without what was deleted.

        Raises:
            JournalStoreError: Somebody else keeps it locked, or there is no space for it.
        """
        with self._lock:
            self.write("VACUUM", ())
            self.empty_log()

    def close(self) -> None:
        """Closes the connection; again is harmless."""
        with self._lock:
            self._closed = True
            cursor, self._cursor = self._cursor, None
            if cursor is not None:
                cursor.connection.close()

    def _open(self) -> sqlite3.Cursor:
        if self._closed:
            raise JournalStoreError("The journal is closed; open it again.", details={"path": self.path})
        try:
            with _opening:
                self._cursor = connect(self.path, self.durability).cursor()
                self._file = identity_of(self.path)
        except sqlite3.Error as error:
            raise typed_error(error, self.path) from error
        return self._cursor

    def _refuse_other_file(self) -> None:
        """Raises when another file, or none, has the name of the one that is open: what is written to it is lost."""
        now = time.monotonic()
        if now - self._looked_at < _LOOK_SECONDS:
            return
        if self.path != MEMORY and self._file != identity_of(self.path):
            raise JournalStoreError(
                f"{self.path} was removed or replaced while it was open, and nothing was written: what is written to a "
                "file without a name is lost. Open the journal again.",
                details={"path": self.path},
            )
        self._looked_at = now

    def _pause(self) -> None:
        self._lock.acquire()
        cursor = self._cursor
        # A database in memory is copied with the process; a transaction of the forking thread is its own to end.
        if cursor is not None and self.path != MEMORY and not cursor.connection.in_transaction:
            self._cursor = None
            cursor.connection.close()

    def _go_on(self) -> None:
        self._lock.release()


def check_durability(durability: Durability) -> None:
    """Refuses a durability that is none."""
    if durability not in ("process", "power"):
        raise InvalidJournalError(
            f'The durability {durability!r} is unknown; use "process" or "power".', kind="invalid_request"
        )
