"""What reads and writes where no caller does. `PollPump` where pipes can be polled, `ThreadPump` where they cannot."""

from __future__ import annotations

import contextlib
import os
import select
import sys
import threading
import time
import weakref
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, Protocol

from .connection import LOOK_SECONDS

if TYPE_CHECKING:
    from .connection import Connection

_LET_OTHERS_SECONDS: Final = 0.01


class Pump(Protocol):
    """Driven by a thread of the connection's own."""

    def wake(self) -> None:
        """Says that there is something to do. From any thread, at any time."""

    def serve(self) -> None:
        """Reads and writes until the process's output ends; the reading role stays with the pump then."""


class PollPump:
    """Sleeps while callers read and write for themselves, and takes over what they leave."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._bell, self._rope = os.pipe()
        for descriptor in (self._bell, self._rope):
            os.set_blocking(descriptor, False)
            # Not at the end of the process: callers who come late still ring.
            weakref.finalize(self, os.close, descriptor).atexit = False

    def wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(self._rope, b"\0")

    def serve(self) -> None:
        connection = self._connection
        stdout = connection.child.stdout
        os.set_blocking(connection.child.stdin, False)
        connection.readable = select.poll()
        connection.readable.register(stdout, select.POLLIN)
        connection.writing.give_back(self)
        connection.reading.give_back(self)
        while True:
            reads = connection.is_owed and connection.reading.take(self)
            if reads and not connection.catch_up():
                return
            writes = not connection.flush(self)
            events = self._wait(reads, writes)
            if connection.child.stdin in events and not writes:
                connection.deaf = True
            if stdout in events:
                if connection.reading.take(self):
                    if not connection.receive():
                        return
                else:
                    # The end of the output, which the caller who reads is about to see.
                    time.sleep(_LET_OTHERS_SECONDS)
            elif reads and not events:
                if connection.child.exited():
                    return
                if connection.deaf and not connection.closing:
                    connection.child.kill()
            if not connection.is_owed:
                connection.reading.give_back(self)

    def _wait(self, reads: bool, writes: bool) -> set[int]:
        """The descriptors with something to do; that the other side has closed one is something in any case."""
        connection = self._connection
        child = connection.child
        poll = select.poll()
        poll.register(self._bell, select.POLLIN)
        poll.register(child.stdout, select.POLLIN if reads else 0)
        if child.stdin >= 0 and not connection.deaf:
            poll.register(child.stdin, select.POLLOUT if writes else 0)
        events = {descriptor for descriptor, _ in poll.poll(LOOK_SECONDS * 1000 if reads else None)}
        if self._bell in events:
            os.read(self._bell, 4096)
        return events


class ThreadPump:
    """Keeps both roles and blocks in the pipes: for systems that cannot poll them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._work: SimpleQueue[None] = SimpleQueue()
        self._ended = False

    def wake(self) -> None:
        self._work.put(None)

    def serve(self) -> None:
        writer = threading.Thread(target=self._write, name="turn-journal-writer", daemon=True)
        writer.start()
        while self._connection.receive():
            pass
        self._ended = True
        self.wake()
        writer.join(LOOK_SECONDS)

    def _write(self) -> None:
        self._connection.threads.add(threading.get_ident())
        while not self._ended:
            self._work.get()
            self._connection.write()


def make_pump(connection: Connection) -> Pump:
    """The pump for this system."""
    return ThreadPump(connection) if sys.platform == "win32" else PollPump(connection)
