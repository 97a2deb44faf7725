"""Snapshots of a workspace, so that a resumed run finds it as its record has it.

A run that is killed leaves half a tool's work behind. `DurableRun(…, checkpoints=…)` takes a snapshot with every tool's
result and puts the workspace back to the last one before a resume replays. Specified in run-journal.md, section 4;
`GitCheckpoints` needs the extra `git`.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from ..errors import InvalidJournalError, JournalNotFoundError, JournalStoreError
from .filesystem import home

if TYPE_CHECKING:
    from .connection import Durability

__all__ = ["Checkpoints", "GitCheckpoints"]

_FILE: Final = 0o100644
_PROGRAM: Final = 0o100755
_LINK: Final = 0o120000
_FOLDER: Final = 0o040000
_GIT: Final = b".git"
_IGNORE: Final = b".gitignore"
_AUTHOR: Final = b"turn-journal <>"
_HEAD: Final = b"refs/heads/checkpoints"
#: A file that changed this shortly before it was read may change again under the same time stamp.
_STAMP_GRAIN_NS: Final = 100_000_000


class Checkpoints(Protocol):
    """What `DurableRun` needs of snapshots.

    Specified in run-journal.md, section 4.
    """

    def snapshot(self) -> str:
        """Keeps the workspace as it is; the id that brings it back."""

    def restore(self, checkpoint_id: str) -> None:
        """Makes the workspace what it was; doing it again, also after a crash in the middle, ends in the same."""


class GitCheckpoints:
    """Snapshots in a git repository of its own, outside of the workspace; the workspace's `.git` is never touched.

    Files, programs, links and folders, empty ones too, are kept; what a `.gitignore` of the workspace names is left
    alone, by `snapshot` and by `restore`. Permissions beyond the executable bit, owners and times are not kept.

    Args:
        workdir: The workspace, a folder.
        store: Where the repository is; None for a folder under `$TURN_JOURNAL_HOME/checkpoints`, one per workspace.
        durability: `"process"`: a snapshot survives the process. `"power"`: its objects are flushed to the disk.

    Raises:
        InvalidJournalError: The workspace is no folder, or the store lies in it.
        JournalStoreError: The extra `git` is not installed, or the store cannot be made.

    Specified in run-journal.md, section 4.
    """

    def __init__(
        self,
        workdir: str | os.PathLike[str],
        *,
        store: str | os.PathLike[str] | None = None,
        durability: Durability = "process",
    ) -> None:
        self.workdir: Path = Path(workdir).resolve()
        if not self.workdir.is_dir():
            raise InvalidJournalError(f"The workspace {self.workdir} is no folder.", kind="invalid_request")
        name = hashlib.sha256(os.fsencode(self.workdir)).hexdigest()[:32]
        self.store: Path = Path(store).resolve() if store is not None else home() / "checkpoints" / name
        if self.store.is_relative_to(self.workdir):
            raise InvalidJournalError(
                f"The snapshots' store {self.store} lies in the workspace that it is to bring back; name a folder "
                "outside of it.",
                kind="invalid_request",
            )
        self._repository = _repository(self.store)
        self._objects = self._repository.object_store
        self._objects.fsync_object_files = durability == "power"
        #: Objects of files by what their stat says, so that an unchanged file is not read again.
        self._seen: dict[bytes, tuple[tuple[int, ...], Any]] = {}

    def snapshot(self) -> str:
        """Keeps the workspace as it is.

        Returns:
            The id for `restore`: the name of a commit in the store.

        Raises:
            JournalStoreError: A file cannot be read, or the store cannot be written.
        """
        from dulwich.objects import Commit

        try:
            root = self._keep(b"", self._ignores())
            head = self._head()
            if head is not None and self._objects[head].tree == root:
                return bytes(head).decode()
            commit = Commit()
            commit.tree = root
            # The chain keeps every snapshot reachable, so that no clean-up of the repository takes one.
            commit.parents = [] if head is None else [head]
            commit.author = commit.committer = _AUTHOR
            commit.author_time = commit.commit_time = int(time.time())
            commit.author_timezone = commit.commit_timezone = 0
            commit.message = b"checkpoint\n"
            self._objects.add_object(commit)
            self._repository.refs[_HEAD] = commit.id
        except OSError as error:
            raise JournalStoreError(
                f"The workspace {self.workdir} cannot be kept: {error}.",
                details={"path": os.fsdecode(error.filename or b"")},
            ) from error
        return bytes(commit.id).decode()

    def restore(self, checkpoint_id: str) -> None:
        """Makes the workspace what it was at a snapshot: what came since is removed, what changed or went is brought
        back, what is ignored stays.

        Raises:
            JournalNotFoundError: No such snapshot; nothing was changed.
            JournalStoreError: A file cannot be removed or written; call it again when it can.
        """
        try:
            root = self._objects[self._objects[checkpoint_id.encode()].tree].id
        except (KeyError, ValueError, AttributeError, AssertionError) as error:
            raise JournalNotFoundError(
                f"No checkpoint {checkpoint_id!r:.80} of {self.workdir} is in {self.store}.",
                details={"checkpoint_id": str(checkpoint_id)[:80], "store": str(self.store)},
            ) from error
        try:
            self._bring_back(b"", root, self._ignores())
        except OSError as error:
            raise JournalStoreError(
                f"The workspace cannot be brought back: {error}. Make that place writable, then restore again.",
                details={"path": os.fsdecode(error.filename or b""), "checkpoint_id": checkpoint_id},
            ) from error

    def _head(self) -> Any:
        try:
            return self._repository.refs[_HEAD]
        except KeyError:
            return None

    def _ignores(self) -> Any:
        from dulwich.ignore import IgnoreFilterManager

        return IgnoreFilterManager(str(self.workdir), [], False)

    def _path(self, place: bytes) -> bytes:
        return os.path.join(os.fsencode(self.workdir), place)

    # From the workspace into the store

    def _keep(self, folder: bytes, ignores: Any) -> Any:
        """Stores a folder; the name of its tree. An empty folder is an empty tree, which git itself would leave out."""
        from dulwich.objects import Tree

        tree = Tree()
        for entry in _entries(self._path(folder)):
            place = os.path.join(folder, entry.name)
            if entry.name == _GIT:
                continue
            if entry.is_dir(follow_symlinks=False):
                if not _is_ignored(ignores, place + b"/"):
                    tree.add(entry.name, _FOLDER, self._keep(place, ignores))
            elif entry.name == _IGNORE or not _is_ignored(ignores, place):
                kept = self._keep_file(place)
                if kept is not None:
                    tree.add(entry.name, *kept)
        self._objects.add_object(tree)
        return tree.id

    def _keep_file(self, place: bytes) -> tuple[int, Any] | None:
        """Stores a file; its git mode and object. None for what is no file, or is gone again."""
        path = self._path(place)
        try:
            found = os.lstat(path)
            mode = _git_mode(found.st_mode)
            if mode is None:
                return None
            stamp = (found.st_mode, found.st_size, found.st_mtime_ns, found.st_ctime_ns, found.st_ino)
            seen = self._seen.get(place)
            if seen is not None and seen[0] == stamp:
                return mode, seen[1]
            began = time.time_ns()
            blob = _blob(path, mode)
        except FileNotFoundError:
            return None
        self._objects.add_object(blob)
        if began - max(found.st_mtime_ns, found.st_ctime_ns) > _STAMP_GRAIN_NS:
            self._seen[place] = (stamp, blob.id)
        return mode, blob.id

    # From the store into the workspace

    def _bring_back(self, folder: bytes, tree: bytes, ignores: Any) -> None:
        wanted = {name: (mode, bytes(sha)) for name, mode, sha in self._objects[tree].iteritems()}
        # What is ignored is said by the snapshot's rules, not by those that the crashed run left.
        rules = os.path.join(folder, _IGNORE)
        if self._put(rules, wanted.get(_IGNORE)):
            ignores = self._ignores()
        for entry in _entries(self._path(folder)):
            if entry.name == _GIT or entry.name == _IGNORE or entry.name in wanted:
                continue
            self._remove(os.path.join(folder, entry.name), entry.is_dir(follow_symlinks=False), ignores)
        for name, (mode, sha) in wanted.items():
            place = os.path.join(folder, name)
            if mode != _FOLDER:
                self._put(place, (mode, sha))
                continue
            path = self._path(place)
            if os.path.islink(path) or not os.path.isdir(path):
                self._put(place, None)
                os.mkdir(path)
            self._bring_back(place, sha, ignores)

    def _put(self, place: bytes, wanted: tuple[int, bytes] | None) -> bool:
        """Makes a file what it was, or nothing; whether something was done. Written beside its place and moved into it,
        so that a crash leaves the old file or the new one."""
        path = self._path(place)
        try:
            mode = os.lstat(path).st_mode
        except (FileNotFoundError, NotADirectoryError):
            mode = None
        if mode is not None and stat.S_ISDIR(mode):
            self._remove(place, True, self._ignores())
        elif mode is not None:
            if wanted is not None and _git_mode(mode) == wanted[0] and _blob(path, wanted[0]).id == wanted[1]:
                return False
            if wanted is None:
                os.unlink(path)
                return True
        if wanted is None:
            return mode is not None
        content = self._objects[wanted[1]].as_raw_string()
        temporary = path + b"." + os.urandom(6).hex().encode()
        try:
            if wanted[0] == _LINK:
                os.symlink(content, temporary)
            else:
                access = 0o777 if wanted[0] == _PROGRAM else 0o666
                with open(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, access), "wb") as file:
                    file.write(content)
            os.replace(temporary, path)
        except OSError:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        return True

    def _remove(self, place: bytes, is_folder: bool, ignores: Any) -> None:
        """Removes what came after the snapshot; of a folder all but what is ignored."""
        path = self._path(place)
        if not is_folder:
            if not _is_ignored(ignores, place):
                os.unlink(path)
            return
        if _is_ignored(ignores, place + b"/"):
            return
        if self._put(os.path.join(place, _IGNORE), None):
            ignores = self._ignores()
        for entry in _entries(path):
            self._remove(os.path.join(place, entry.name), entry.is_dir(follow_symlinks=False), ignores)
        if not _entries(path):
            os.rmdir(path)


def _repository(store: Path) -> Any:
    try:
        from dulwich.errors import NotGitRepository
        from dulwich.repo import Repo
    except ImportError as error:
        raise JournalStoreError(
            "GitCheckpoints needs dulwich: pip install 'turn-journal-runtime[git]'.", kind="store_unsupported"
        ) from error
    try:
        return Repo(str(store))
    except NotGitRepository:
        pass
    try:
        store.mkdir(mode=0o700, parents=True, exist_ok=True)
        return Repo.init_bare(str(store))
    except OSError as error:
        raise JournalStoreError(
            f"The snapshots' store {store} cannot be made: {error}. Name a folder that this user may write.",
            details={"path": str(store)},
        ) from error


def _entries(folder: bytes) -> list[os.DirEntry[bytes]]:
    try:
        with os.scandir(folder) as found:
            return list(found)
    except FileNotFoundError:
        return []


def _is_ignored(ignores: Any, place: bytes) -> bool:
    return bool(ignores.is_ignored(os.fsdecode(place)))


def _git_mode(mode: int) -> int | None:
    if stat.S_ISLNK(mode):
        return _LINK
    if not stat.S_ISREG(mode):
        return None
    return _PROGRAM if mode & stat.S_IXUSR else _FILE


def _blob(path: bytes, mode: int) -> Any:
    from dulwich.objects import Blob

    if mode == _LINK:
        return Blob.from_string(os.readlink(path))
    with open(path, "rb") as file:
        return Blob.from_string(file.read())
