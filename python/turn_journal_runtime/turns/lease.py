"""One driver per turn of a folder: a lock that the kernel holds for it, and a number that grows with each of them.

Specified in session-recovery.md, section 4. The lock says who drives now: the kernel frees it when its holder dies,
however it dies. The number fences: it travels with every write, and the core refuses one that is not the latest, so
that a driver which was stopped while another took the turn over can write nothing when it wakes. Both change under the
turn's own lock, the one under which the core writes.
"""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..errors import JournalConflictError, JournalCorruptError, JournalStoreError, TurnBusyError
from .folders import check_inside, make_folder, replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from filelock import ReadWriteLock

#: How long a turn's own lock may be busy with reads and writes, each of which takes milliseconds.
_PATIENCE_SECONDS: Final = 10.0


#: What filelock raises in a forked child of a lock that its parent had open: the parent holds it.
_ForkedError: Final = RuntimeError


@dataclass(frozen=True)
class LeaseHolder:
    """Who drives a turn, by what it has said of itself."""

    number: int
    pid: int | None
    host: str | None
    #: When it began, in seconds since the epoch.
    since: float | None


class TurnLease:
    """The right to drive one turn, held until `release` or the end of this process."""

    def __init__(self, number: int, lock: ReadWriteLock, file: Path, record: Path) -> None:
        self.number: Final = number
        self._lock: ReadWriteLock | None = lock
        self._file = file
        self._record = record
        self._process = os.getpid()

    def is_lost(self) -> bool:
        """Whether another driver is known to have taken the turn over."""
        with contextlib.suppress(JournalCorruptError, OSError):
            latest = _read(self._record)
            return latest is not None and latest.number != self.number
        return False

    def release(self) -> None:
        """Lets others drive; the number is never used again. In a forked child nothing: its parent drives on."""
        if self._process != os.getpid():
            return
        lock, self._lock = self._lock, None
        if lock is None:
            return
        with contextlib.suppress(OSError):
            self._file.unlink()
        lock.close()

    def __enter__(self) -> TurnLease:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


def acquire_lease(root: Path, journal_path: Path, *, take_over: bool = False) -> TurnLease:
    """Takes the lease of a turn.

    Args:
        root: The runtime root.
        journal_path: Where the turn lives, from `turn_journal_path`.
        take_over: Take it also from a holder that is alive. What that one writes from then on is refused; what it does
            outside in the meantime is not undone.

    Raises:
        TurnBusyError: Somebody drives the turn; `details` has its `pid`, `host` and `since`.
        JournalCorruptError: The lease file is damaged.
        JournalStoreError: The folder cannot be written, or a symbolic link on the way leaves the root.
    """
    from filelock import ReadWriteLock, Timeout

    stem = journal_path.with_suffix("")
    record = Path(f"{stem}.lease")
    with _told(stem):
        try:
            make_folder(root, journal_path.parent)
            for suffix in (".lock", ".lease"):
                check_inside(root, Path(f"{stem}{suffix}"))
            turn = ReadWriteLock(f"{stem}.lock", is_singleton=False)
            try:
                with turn.write_lock(timeout=_PATIENCE_SECONDS):
                    return _take(stem, record, take_over=take_over)
            finally:
                turn.close()
        except (Timeout, _ForkedError):
            raise TurnBusyError("The turn is being read or written all the time: try again.") from None


@contextlib.contextmanager
def _told(stem: Path) -> Iterator[None]:
    """Says which file no lock can be taken on."""
    import sqlite3  # filelock's locks are files of SQLite

    try:
        yield
    except OSError as error:
        raise JournalStoreError(
            f"The turn's lease cannot be taken in {stem.parent} ({error.strerror or error}): see that the runtime root "
            "is a folder, and that this user may write to it.",
            details={"path": str(stem.parent), "errno": error.errno},
        ) from error
    except sqlite3.Error as error:
        raise JournalStoreError(
            f"{stem}.lock does not serve as a lock ({error}): see that this user may write to it; when it is none, and "
            "nobody drives the turn, remove it.",
            kind="store_unsafe_path",
            details={"path": f"{stem}.lock"},
        ) from error


def is_driven(journal_path: Path) -> bool:
    """Whether somebody drives the turn at the moment."""
    from filelock import ReadWriteLock, Timeout

    stem = journal_path.with_suffix("")
    last = _read(Path(f"{stem}.lease"))
    if last is None or not _lock_file(stem, last.number).exists():
        return False
    with _told(stem):
        try:
            turn = ReadWriteLock(f"{stem}.lock", is_singleton=False)
        except _ForkedError:
            return True
        try:
            # Under the turn's lock, so that a driver which comes just now does not take this look for a holder.
            with turn.write_lock(timeout=_PATIENCE_SECONDS):
                last = _read(Path(f"{stem}.lease"))
                file = None if last is None else _lock_file(stem, last.number)
                if file is None or not file.exists():
                    return False
                lock = ReadWriteLock(file, is_singleton=False)
                try:
                    lock.acquire_write(blocking=False)
                finally:
                    lock.close()
        except (Timeout, _ForkedError):
            return True
        finally:
            turn.close()
        return False


def _take(stem: Path, record: Path, *, take_over: bool) -> TurnLease:
    from filelock import ReadWriteLock

    last = _read(record)
    if last is not None:
        _end(last, _lock_file(stem, last.number), take_over=take_over)
    number = 1 if last is None else last.number + 1
    file = _lock_file(stem, number)
    lock = ReadWriteLock(file, is_singleton=False)
    try:
        lock.acquire_write(blocking=False)
        _write(record, number)
    except BaseException:
        lock.close()
        raise
    return TurnLease(number, lock, file, record)


def _end(last: LeaseHolder, file: Path, *, take_over: bool) -> None:
    """Sees that the last holder drives no more: its lock is free, or it is left to drive without one."""
    from filelock import ReadWriteLock, Timeout

    if not file.exists():
        return
    try:
        lock = ReadWriteLock(file, is_singleton=False)
        try:
            lock.acquire_write(blocking=False)
            file.unlink()
        finally:
            lock.close()
    except (Timeout, _ForkedError):
        if not take_over:
            raise busy(last) from None


def busy(holder: LeaseHolder, until: float | None = None) -> TurnBusyError:
    """The error that names the driver of a turn; `until` is when its lease ends, where that depends on the time."""
    since = "" if holder.since is None else f" since {_moment(holder.since)}"
    free = "at once" if until is None else f"when its lease ends, not before {_moment(until)}"
    return TurnBusyError(
        f"The turn is driven by process {holder.pid} on {holder.host}{since}. Wait for it to end; when it dies, the "
        f"turn is free {free}. If it hangs, end it, or take the turn over.",
        details={
            "pid": holder.pid,
            "host": holder.host,
            "since": holder.since,
            "until": until,
            "number": holder.number,
        },
    )


def taken_over(number: int) -> JournalConflictError:
    """The error of a driver whose turn another one has by now, as the core has it."""
    return JournalConflictError(
        "Another driver took this turn over: stop, and leave the turn to it.",
        kind="turn_lease_lost",
        details={"lease": number},
    )


def refuse_forked(process: int) -> None:
    """Raises in a child of the process that drives a turn: it came back out of what was called there."""
    if process != os.getpid():
        raise TurnBusyError(
            f"The turn is driven by process {process}, which this one was forked from. Let a forked child end where it "
            "is: by os._exit, by exec, or as multiprocessing ends it.",
            details={"pid": process, "host": platform.node()},
        )


def _moment(seconds: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))


def _lock_file(stem: Path, number: int) -> Path:
    return Path(f"{stem}.lease-{number}")


def _read(record: Path) -> LeaseHolder | None:
    try:
        found: Any = json.loads(record.read_bytes())
    except FileNotFoundError:
        return None
    except ValueError:
        found = None
    number = found.get("number") if isinstance(found, dict) else None
    if not isinstance(number, int) or isinstance(number, bool) or number < 1:
        raise JournalCorruptError(
            "The turn's lease file is damaged: remove it once nothing drives the turn.", kind="journal_corrupt"
        )
    return LeaseHolder(number, found.get("pid"), found.get("host"), found.get("since"))


def _write(record: Path, number: int) -> None:
    """Replaces the record as a whole. Its name is not synced: after a power cut no holder is left to fence."""
    holder = {"number": number, "pid": os.getpid(), "host": platform.node(), "since": round(time.time(), 3)}
    replace_file(record, holder)
