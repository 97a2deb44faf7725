"""SQLite's write-ahead log, which both kinds of file of this package have."""

from __future__ import annotations

import sqlite3
import time
from typing import Final

__all__ = ["BUSY_SECONDS", "switch_to_wal"]

#: How long a writer waits for the writers before it.
BUSY_SECONDS: Final = 30.0


def switch_to_wal(connection: sqlite3.Connection) -> None:
    """Has the file keep a write-ahead log from now on.

    Raises:
        sqlite3.OperationalError: Somebody else has had the file for too long.
    """
    # Switching asks for the whole file at once and does not wait for it as other statements do.
    deadline = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                raise
            time.sleep(0.005)
