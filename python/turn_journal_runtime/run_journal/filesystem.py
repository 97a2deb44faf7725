"""Where a journal's file may live, and how it comes into being.

SQLite's write-ahead log needs memory that all its users share, so a network file system cannot hold it: over one, two
hosts corrupt each other's pages. Such a place is refused before anything is made there. Specified in run-journal.md,
section 5.
"""

from __future__ import annotations

import os
import sys
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

import platformdirs

from ..errors import JournalConflictError, JournalStoreError

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = [
    "create_private",
    "default_path",
    "home",
    "new_file",
    "refuse_network_file_system",
    "refuse_taken",
    "sync_folder",
]

_NETWORK_TYPES: Final = frozenset(
    [
        "nfs",
        "nfs3",
        "nfs4",
        "cifs",
        "smb",
        "smb2",
        "smb3",
        "smbfs",
        "ncpfs",
        "afs",
        "ceph",
        "lustre",
        "beegfs",
        "gpfs",
        "glusterfs",
        "davfs",
        "sshfs",
    ]
)
_MOUNTS: Final = Path("/proc/self/mountinfo")


def home() -> Path:
    """`$TURN_JOURNAL_HOME`, or the platform's folder for user data."""
    return Path(os.environ.get("TURN_JOURNAL_HOME") or platformdirs.user_data_dir("turn-journal", appauthor=False))


def default_path() -> Path:
    """The journal of a user who names none."""
    return home() / "runs" / "journal.db"


def create_private(path: Path) -> bool:
    """Makes the file, readable by its owner alone, unless it is there; says whether it was made.

    Must not run while another thread opens the file: closing the new file would drop the locks that SQLite took on it.

    Raises:
        JournalStoreError: The folder cannot be made or written.
    """
    try:
        _make_folders(path.parent)
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
        except FileExistsError:
            return False
    except OSError as error:
        raise JournalStoreError(
            f"{path} cannot be made: {error.strerror}. The journal needs a folder that this user may write.",
            details={"path": str(path), "errno": error.errno},
        ) from error
    return True


def _make_folders(folder: Path) -> None:
    if not folder.is_dir():
        _make_folders(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


@contextmanager
def new_file(target: Path) -> Iterator[Path]:
    """A file to write, readable by its owner alone, that gets its name when it is whole.

    Raises:
        JournalConflictError: A file of that name exists; none is replaced.
        JournalStoreError: It cannot be written.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        refuse_taken(target)
        create_private(temporary)
        yield temporary
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        _name(temporary, target)
        sync_folder(target.parent)
    except OSError as error:
        raise JournalStoreError(
            f"{target} cannot be written: {error.strerror}. Nothing was left there.", details={"path": str(target)}
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _name(file: Path, target: Path) -> None:
    try:
        os.link(file, target)
    except FileExistsError:
        refuse_taken(target)
        raise
    except OSError:
        file.rename(target)  # a file system without links


def refuse_taken(target: Path) -> None:
    """Raises when there is a file of that name.

    Raises:
        JournalConflictError: There is one.
    """
    if os.path.lexists(target):
        raise JournalConflictError(
            f"{target} exists, and nothing is replaced: name another file.", details={"path": str(target)}
        )


def sync_folder(folder: Path) -> None:
    """Makes the names in a folder survive power loss, where the platform can."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_network_file_system(path: Path) -> None:
    """Raises when the path lies on a file system that cannot hold a journal shared by processes.

    Raises:
        JournalStoreError: `store_unsupported`, with the type of the file system and the remedy.
    """
    found = _network_type(path)
    if found is not None:
        raise JournalStoreError(
            f"The journal {path} would lie on a network file system ({found}), where SQLite's write-ahead log corrupts "
            "under two hosts. Put it on a local disk: pass another path or set TURN_JOURNAL_HOME.",
            kind="store_unsupported",
            details={"path": str(path), "file_system": found},
        )


def _network_type(path: Path) -> str | None:
    place = os.path.realpath(path)
    if sys.platform == "win32":
        return "UNC share" if place.startswith("\\\\") else None
    try:
        mounts = _MOUNTS.read_text(errors="surrogateescape")
    except OSError:
        return None
    kind = file_system_of(place, mounts)
    kind = kind.removeprefix("fuse.")
    return kind if kind in _NETWORK_TYPES else None


def file_system_of(place: str, mounts: str) -> str:
    """The type of the file system that holds an absolute path, from the text of /proc/self/mountinfo."""
    best, kind = -1, ""
    for line in mounts.splitlines():
        left, separator, right = line.partition(" - ")
        columns = left.split(" ")
        if not separator or len(columns) < 5:
            continue
        point = columns[4].replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
        inside = place == point or place.startswith(point if point.endswith("/") else point + "/")
        # Of two mounts at one point the later one is on top.
        if inside and len(point) >= best:
            best, kind = len(point), right.split(" ", 1)[0]
    return kind
