"""A runtime root that is a folder: locks of this machine's kernel, bindings and runs in files."""

from __future__ import annotations

import contextlib
import json
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..address import absolute, turn_journal_path
from ..flow import Ask
from .folders import make_folder, replace_file
from .lease import TurnLease, acquire_lease, is_driven, refuse_forked, taken_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..flow import Flow
    from ..run_journal import RunJournal
    from .root import Bindings, Lease, TurnPath


#: How often a driver whose host can be ended looks whether its turn was taken over.
_LOOK_SECONDS: Final = 1.0


class FolderRoot:
    """A folder that holds turns.

    Args:
        folder: Its absolute path.
    """

    def __init__(self, folder: str) -> None:
        self.address = folder
        self._folder = Path(folder)
        self.bindings: Bindings = _BindingFiles(self._folder)

    def path(self, goal_id: str, turn_key: str) -> TurnPath:
        """The turn's file."""
        return turn_journal_path(self._folder, goal_id=goal_id, turn_key=turn_key)

    def acquire(self, path: TurnPath, *, take_over: bool = False) -> Flow[Lease]:
        """Takes the kernel's lock on a turn, and the next number."""
        lease = yield Ask(_acquire, (self._folder, Path(path), take_over))
        return _Held(lease)

    def is_driven(self, path: TurnPath) -> Flow[bool]:
        """Whether somebody holds the kernel's lock on a turn."""
        return bool((yield Ask(is_driven, (Path(path),))))

    def runs(self) -> contextlib.AbstractContextManager[RunJournal]:
        """Opens `runs/journal.db`."""
        from ..run_journal import RunJournal

        file = run_journal_path(self._folder)
        make_folder(self._folder, file.parent)
        return RunJournal(file)

    def runs_there(self) -> contextlib.AbstractContextManager[RunJournal | None]:
        """Opens `runs/journal.db` when it is there."""
        return self.runs() if run_journal_path(self._folder).exists() else contextlib.nullcontext()


def run_journal_path(runtime_root: str | os.PathLike[str]) -> Path:
    """Where the runs of a folder's turns are recorded, unless `run_turn` was given a run journal."""
    return Path(absolute(runtime_root)) / "runs" / "journal.db"


def _acquire(root: Path, path: Path, take_over: bool) -> TurnLease:
    return acquire_lease(root, path, take_over=take_over)


class _Held:
    """A lease that the kernel keeps for as long as this process lives, unless the turn is taken over."""

    def __init__(self, lease: TurnLease) -> None:
        self.number = lease.number
        self._lease = lease
        self._process = os.getpid()

    def check(self) -> None:
        """Of a loss nothing is known before the next write. Raises in a forked child."""
        refuse_forked(self._process)

    def confirm(self) -> Flow[None]:
        """The kernel lets nobody else in."""
        yield from ()

    def look(self) -> None:
        """Reads whose the latest lease of the turn is."""
        if self._lease.is_lost():
            raise taken_over(self.number)

    @contextlib.contextmanager
    def ending(self, end: Callable[[], object] | None) -> Iterator[None]:
        """Work that `end` brings to an end when another driver has taken the turn over: nobody tells, so it is looked
        for."""
        over = threading.Event()
        if end is not None:
            threading.Thread(target=self._watch, args=(end, over), name="turn-journal-lease", daemon=True).start()
        try:
            yield
        finally:
            over.set()

    def _watch(self, end: Callable[[], object], over: threading.Event) -> None:
        while not over.wait(_LOOK_SECONDS):
            if self._lease.is_lost():
                end()
                return

    def give_back(self) -> Flow[None]:
        """Frees the lock."""
        self._lease.release()
        yield from ()


class _BindingFiles:
    """`goals/<goal>/turn-sessions/<line>.json`, each an id and whose it is."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def read(self, goal_id: str, line: str) -> Flow[dict[str, Any] | None]:
        """The binding in a line's file."""
        yield from ()
        try:
            found = json.loads(self._file(goal_id, line).read_bytes())
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def write(self, goal_id: str, line: str, binding: dict[str, Any]) -> None:
        """Replaces a line's file as a whole; its folder may be new, and the goal's with it."""
        from ..run_journal.filesystem import sync_folder

        file = self._file(goal_id, line)
        make_folder(self._root, file.parent)
        replace_file(file, binding)
        sync_folder(file.parent)
        sync_folder(file.parent.parent)

    def remove(self, goal_id: str, line: str) -> Flow[None]:
        """Removes a line's file."""
        yield from ()
        with contextlib.suppress(FileNotFoundError):
            self._file(goal_id, line).unlink()

    def _file(self, goal_id: str, line: str) -> Path:
        return self._root / "goals" / goal_id / "turn-sessions" / f"{line}.json"
