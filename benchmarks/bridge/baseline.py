"""What nothing can be faster than: the pipe alone, and the disk alone."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

from turn_journal_runtime.bridge.node import locate_node
from turn_journal_runtime.settings import current

if TYPE_CHECKING:
    from types import TracebackType


class Echo:
    """A bare pipe round trip of the same bytes to a Node process that echoes."""

    def __init__(self, frame: bytes) -> None:
        self._frame = frame
        command = [locate_node(current()).path, str(Path(__file__).with_name("echo.mjs"))]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        #: The process that echoes.
        self.pid: int = self._process.pid
        self._stdin, self._stdout = self._process.stdin.fileno(), self._process.stdout.fileno()

    def __call__(self, _: int) -> None:
        os.write(self._stdin, self._frame)
        while not os.read(self._stdout, 65536).endswith(b"\n"):
            pass

    def __enter__(self) -> Echo:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate()


class SyncedWrite:
    """What a durable write with a history costs from Python with nothing else around it.

    As many fsyncs as the core does for a transition of a turn in a folder that it knows: the new snapshot, the line of
    the history, and the folder after the rename.
    """

    FSYNCS = 3

    def __init__(self, folder: Path, journal: bytes) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._journal = journal
        self._descriptor = os.open(folder, os.O_RDONLY)

    def __call__(self, number: int) -> None:
        path = self._folder / f"{number}.json"
        draft = self._folder / f"{number}.draft"
        self._write(draft, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        self._write(self._folder / f"{number}.history.jsonl", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        os.rename(draft, path)
        os.fsync(self._descriptor)

    def _write(self, path: Path, flags: int) -> None:
        descriptor = os.open(path, flags, 0o600)
        os.write(descriptor, self._journal)
        os.fsync(descriptor)
        os.close(descriptor)

    def close(self) -> None:
        """Lets go of the folder."""
        os.close(self._descriptor)
