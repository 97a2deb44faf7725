"""Opening the file: looked at before it is touched, settings read back, tables made in one transaction."""

from __future__ import annotations

import os
import sqlite3
import stat
import sys
from pathlib import Path
from typing import Any, Final, Literal

from ..errors import InvalidJournalError, JournalCorruptError, JournalStoreError, TurnJournalError
from ..wal import BUSY_SECONDS, switch_to_wal
from .filesystem import create_private, refuse_network_file_system, sync_folder
from .schema import SCHEMA_VERSION, STATEMENTS, TABLES

__all__ = ["MEMORY", "PAGE_SIZE", "Durability", "connect", "identity_of", "settings_of", "typed_error"]

Durability = Literal["process", "power"]

MEMORY: Final = ":memory:"
_SMALLEST_PAGE: Final = 512
#: Of new files. A commit writes whole pages, and most events are far smaller than one; smaller pages cost longer reads.
PAGE_SIZE: Final = 2048


def connect(path: str, durability: Durability) -> sqlite3.Connection:
    """A connection to a run journal, made when it is not there. Not to be called by two threads at once.

    Raises:
        JournalStoreError: The place cannot hold a journal, or the file is of a newer version.
        JournalCorruptError: The file is no run journal.
    """
    wanted = _settings(durability)
    if path == MEMORY:
        connection = sqlite3.connect(MEMORY, isolation_level=None, check_same_thread=False)
    else:
        refuse_network_file_system(Path(path))
        if create_private(Path(path)):
            sync_folder(Path(path).parent)
        else:
            _look_at(path)
        connection = sqlite3.connect(path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
    try:
        if path != MEMORY:
            connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
            switch_to_wal(connection)
            for name, value in wanted.items():
                connection.execute(f"PRAGMA {name} = {value}")
            _read_back(connection, path, {"journal_mode": "wal"} | wanted)
        _make_tables(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def identity_of(path: str) -> tuple[int, int] | None:
    """Which file has a name, as long as it is open; None when none can be found."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def settings_of(connection: sqlite3.Connection) -> dict[str, Any]:
    """The settings that decide what survives, as the connection itself reports them."""
    return {name: _pragma(connection, name) for name in ("journal_mode", "busy_timeout", *_settings("power"))}


def typed_error(error: Exception, path: str) -> TurnJournalError:
    """The error of the tree that says what SQLite's says."""
    if isinstance(error, TurnJournalError):
        return error
    details = {"path": path, "cause": str(error)}
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if type(error) is sqlite3.DatabaseError:
        code = code or sqlite3.SQLITE_NOTADB
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return JournalCorruptError(
            f"{path} is damaged or no SQLite file ({error}). It was left as it is: restore a backup, or recover what "
            "can be read with `sqlite3 <file> .recover`.",
            details=details,
        )
    if code == sqlite3.SQLITE_FULL:
        return JournalStoreError(
            f"The disk of {path} is full; nothing was written.", kind="store_full", details=details
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return JournalStoreError(
            f"Another process has kept {path} locked for {BUSY_SECONDS:.0f} s; nothing was written. Find the process "
            "that holds a transaction open.",
            details=details,
        )
    if code in (sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH) or isinstance(
        error, (sqlite3.DataError, sqlite3.InterfaceError, UnicodeError, OverflowError)
    ):
        return InvalidJournalError(f"The value cannot be stored: {error}.", kind="invalid_request", details=details)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM, sqlite3.SQLITE_IOERR):
        return JournalStoreError(
            f"{path} cannot be used ({error}); nothing was changed. The file and its folder must be writable by this "
            "user, for reading too, and their disk must have room: where that is not so, copy the file, and its -wal "
            "beside it, to where it is.",
            details=details,
        )
    return JournalStoreError(f"SQLite refused the operation on {path}: {error}.", details=details)


def _settings(durability: Durability) -> dict[str, int]:
    # The log stays as large as SQLite's own setting makes it with pages of 4,096 bytes.
    # NORMAL: a commit is in the kernel's hands, which survives the process. FULL: it is on the disk. On macOS only the
    # full form of fsync reaches the platter.
    power = durability == "power"
    return {
        # What is deleted is overwritten: it was perhaps deleted for a reason.
        "secure_delete": 1,
        "synchronous": 2 if power else 1,
        "fullfsync": int(power and sys.platform == "darwin"),
        "checkpoint_fullfsync": int(power and sys.platform == "darwin"),
        "wal_autocheckpoint": 4096 * 1000 // PAGE_SIZE,
    }


def _look_at(path: str) -> None:
    """Refuses what is no run journal or a newer one, through a connection that cannot write."""
    stats = os.stat(path)
    if not stat.S_ISREG(stats.st_mode):
        # SQLite says "disk I/O error" of both.
        is_folder = stat.S_ISDIR(stats.st_mode)
        what = (
            f"a folder: name a file in it, as {Path(path, 'runs.db')}"
            if is_folder
            else "no plain file: name another one"
        )
        raise JournalStoreError(
            f"A run journal is a file, and {path} is {what}.", kind="store_unsafe_path", details={"path": path}
        )
    # SQLite takes a file that ends before its first page for a new one.
    if 0 < stats.st_size < _SMALLEST_PAGE:
        raise sqlite3.DatabaseError("file is not a database")
    try:
        version, tables = _read_schema(path, "ro")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_READONLY:
            raise
        # Whoever made the file was killed before it had a log; what it left half done has to be undone first.
        version, tables = _read_schema(path, "rw")
    if tables and tables.keys().isdisjoint(TABLES):
        raise JournalCorruptError(
            f"{path} is a database of something else, and has no runs in it. It was left as it is; name another file.",
            details={"path": path},
        )
    if version > SCHEMA_VERSION:
        raise JournalStoreError(
            f"{path} is of version {version}; this package reads up to {SCHEMA_VERSION}. Upgrade turn-journal-runtime; "
            "the file was left as it is.",
            kind="store_unsupported",
            details={"path": path, "version": version, "supported": SCHEMA_VERSION},
        )
    for name, wanted in TABLES.items():
        found = tables.get(name, set())
        if (found or version) and not wanted <= found:
            raise JournalCorruptError(
                f"{path} is no run journal: its table `{name}` lacks {sorted(wanted - found)}. It was left as it "
                "is; name another file.",
                details={"path": path, "table": name},
            )


def _read_schema(path: str, mode: str) -> tuple[int, dict[str, set[str]]]:
    """The version of the file, and of each of its tables the columns, as far as they are a journal's."""
    uri = f"{Path(path).absolute().as_uri()}?mode={mode}"
    connection = sqlite3.connect(uri, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
    try:
        # Read as of one moment: another process may be making the tables.
        connection.execute("BEGIN")
        version = _pragma(connection, "user_version")
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables: dict[str, set[str]] = {name: set() for name in names}
        for name in tables.keys() & TABLES.keys():
            tables[name] = {row[1] for row in connection.execute(f"PRAGMA table_info({name})")}
        return version, tables
    finally:
        connection.close()


def _read_back(connection: sqlite3.Connection, path: str, wanted: dict[str, Any]) -> None:
    for name, value in wanted.items():
        found = _pragma(connection, name)
        if found != value:
            raise JournalStoreError(
                f"SQLite keeps {name} = {found!r} for {path} where {value!r} is needed: what it acknowledges would not "
                "be durable. Put the journal on a local disk.",
                kind="store_unsupported",
                details={"path": path, "setting": name, "found": found, "wanted": value},
            )


def _make_tables(connection: sqlite3.Connection) -> None:
    if _pragma(connection, "user_version") >= SCHEMA_VERSION:
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statement in STATEMENTS:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.rollback()
        raise


def _pragma(connection: sqlite3.Connection, name: str) -> Any:
    return connection.execute(f"PRAGMA {name}").fetchone()[0]
