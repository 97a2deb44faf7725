"""What must stand still while the process forks.

SQLite notes in the process's memory which of its connections holds which lock. A child that inherits such a note
believes it: it skips locks that it does not have, or waits for ever for one that nobody will release. So no thread is
in the middle of a call and no connection is open while a process forks, and parent and child each open their own.
"""

from __future__ import annotations

import os
import threading
from typing import Final, Protocol
from weakref import WeakSet

__all__ = ["Forked", "stands_still"]


class Forked(Protocol):
    """What has a connection, each of which it opens and uses under a lock of its own."""

    def _pause(self) -> None:
        """Takes the lock, and closes the connection; whoever needs it next opens it again."""

    def _go_on(self) -> None:
        """Releases the lock."""


#: One thread forks at a time: two that did would release each other's locks, or wait for them.
_fork: Final = threading.RLock()
_all: Final[WeakSet[Forked]] = WeakSet()
#: What stands still, of each fork that is going on: a signal handler may begin one in the middle of another.
_still: Final[list[list[Forked]]] = []


def stands_still(one: Forked) -> None:
    """Lets it stand still at every fork from now on; to be called before it opens its first connection."""
    with _fork:
        _all.add(one)


def _before_fork() -> None:
    _fork.acquire()
    still: list[Forked] = []
    _still.append(still)
    for one in list(_all):
        one._pause()
        still.append(one)


def _after_fork() -> None:
    for one in _still.pop():
        one._go_on()
    _fork.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
