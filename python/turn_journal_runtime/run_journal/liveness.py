"""Proof that an owner lives, which the kernel keeps.

An owner holds a lock on a file of its own beside the journal for as long as it lives. The kernel frees it when the
process dies, however it dies: a lock that can be taken is proof of death, one that cannot is proof of life, and no
clock and no process id is trusted. The lock is on the bytes that SQLite's `BEGIN EXCLUSIVE` locks, which is how the
TypeScript twin, ts/src/run/Liveness.ts, takes and asks it. Tokens are never used twice. Specified in run-journal.md,
section 4.
"""

from __future__ import annotations

import errno
import os
import platform
import sqlite3
import time
import weakref
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from ..errors import JournalStoreError
from .connection import MEMORY
from .filesystem import create_private

if TYPE_CHECKING:
    from collections.abc import Callable

if os.name == "posix":
    import fcntl

__all__ = ["Owner", "describe", "is_alive"]

#: SQLite's pending, reserved and shared bytes.
_LOCK_START: Final = 0x40000000
_LOCK_BYTES: Final = 512

#: Tokens of this process. Such a file is never opened again: a process is never in the way of its own lock, and closing
#: the file once would drop it.
_held: set[str] = set()


class Owner:
    """A claim to be alive.

    Args:
        path: The journal's file; one in memory has no second process and needs no lock.

    Raises:
        JournalStoreError: The lock cannot be held beside the journal.
    """

    #: Its name, never used twice.
    token: str

    def __init__(self, path: str) -> None:
        self.token = _new_token()
        self._end: Callable[[], object] = _nothing
        if path != MEMORY:
            try:
                _sweep(_folder(path))
                self._hold(_folder(path))
            except OSError as error:
                raise JournalStoreError(
                    f"The lock of this process cannot be held in {_folder(path)}: {error}. The folder must be on a "
                    "local disk and writable by this user.",
                    details={"path": str(_folder(path))},
                ) from error
        #: What it says of itself, for those whom it keeps out.
        self.holder: str = orjson.dumps(
            {"pid": os.getpid(), "host": platform.node(), "language": "python", "since": time.time()}
        ).decode()

    def release(self) -> None:
        """Dies, as far as others can tell. An owner that is dropped does so too."""
        self._end()

    def _hold(self, folder: Path) -> None:
        while True:
            file = folder / f"{self.token}.lock"
            _held.add(self.token)
            create_private(file)
            # A sweeper may come between the making and the locking, and bury the file as a dead owner's.
            try:
                release = _take(file)
            except OSError:
                if file.exists():
                    raise
                release = None
            if release is not None and file.exists():
                self._end = weakref.finalize(self, _die, os.getpid(), self.token, file, release)
                return
            if release is not None:
                release()
            _held.discard(self.token)
            self.token = _new_token()


def _nothing() -> None:
    """In memory nobody has to be told."""


def _die(pid: int, token: str, file: Path, release: Callable[[], object]) -> None:
    # In a forked child the lock is still the parent's.
    if pid == os.getpid():
        with suppress(OSError):
            file.unlink()
        release()
        _held.discard(token)


def is_alive(path: str, token: str) -> bool:
    """Whether the owner of that token lives; what a dead one left is removed."""
    return not _bury(_folder(path) / f"{token}.lock")


def describe(holder: str | None) -> dict[str, Any]:
    """What an owner has said of itself."""
    try:
        found = orjson.loads(holder or "{}")
    except orjson.JSONDecodeError:
        found = {}
    return found if isinstance(found, dict) else {}


def _folder(path: str) -> Path:
    return Path(f"{path}.owners")


def _new_token() -> str:
    return f"{os.getpid()}-{os.urandom(12).hex()}"


def _sweep(folder: Path) -> None:
    """Removes what dead owners left."""
    for file in folder.glob("*.lock"):
        _bury(file)


def _bury(file: Path) -> bool:
    """Removes the file of a dead owner; False when it lives, or when nothing can be proven."""
    if file.stem in _held:
        return False
    try:
        # Shared: whoever else looks at this moment is no owner.
        release = _take(file, is_shared=True)
    except OSError:
        return not file.exists()
    if release is None:
        return False
    # Removed while it is held, so that nobody takes it up in between.
    with suppress(OSError):
        file.unlink()
    release()
    return True


def _take(file: Path, *, is_shared: bool = False) -> Callable[[], object] | None:
    """Locks an existing file; what releases it, or None when somebody else holds it."""
    if os.name != "posix":
        return _take_by_sqlite(file, is_shared=is_shared)
    descriptor = os.open(file, os.O_RDWR)
    try:
        how = fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX
        fcntl.lockf(descriptor, how | fcntl.LOCK_NB, _LOCK_BYTES, _LOCK_START)
    except OSError as error:
        os.close(descriptor)
        if error.errno in (errno.EACCES, errno.EAGAIN):
            return None
        raise
    return partial(os.close, descriptor)


def _take_by_sqlite(file: Path, *, is_shared: bool) -> Callable[[], object] | None:
    uri = file.absolute().as_uri() + "?mode=rw"
    try:
        connection = sqlite3.connect(uri, uri=True, timeout=0, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise OSError(str(error)) from error
    try:
        # Nothing is ever written: a journal beside the lock would only be left behind.
        connection.execute("PRAGMA journal_mode = MEMORY")
        connection.execute("BEGIN" if is_shared else "BEGIN EXCLUSIVE")
        connection.execute("SELECT 1 FROM sqlite_master").fetchall()  # a shared lock is taken by reading
    except sqlite3.OperationalError as error:
        connection.close()
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            return None
        raise OSError(str(error)) from error
    return connection.close


# The locks stay with the parent; closing what a child inherited does nothing to them.
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_held.clear)
