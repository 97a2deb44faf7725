"""What must stand still while the process forks.

SQLite notes in the process's memory which of its connections holds which lock. A child that inherits such a note
believes it: it skips locks that it does not have, or waits for ever for one that nobody will release. So no thread is
in the middle of a call and no connection is open while a process forks, and parent and child each open their own.

The same is true of modules that another thread is loading, as a first call does: nobody would release their locks in
the child. They are waited for.
"""

from __future__ import annotations

import _imp
import importlib
import os
import sys
import threading
from contextlib import suppress
from typing import Any, Final, Protocol
from weakref import WeakSet

__all__ = ["Forked", "stands_still"]


class Forked(Protocol):
    """What is used under a lock of its own, such as a connection."""

    def _pause(self) -> None:
        """Takes the lock, and closes a connection; whoever needs it next opens it again."""

    def _go_on(self) -> None:
        """Releases the lock."""


#: What a call of ours may load. Not all that there is: a program may run to its end within an import of its own.
_LIBRARIES: Final = sys.stdlib_module_names | {
    *(__name__.partition(".")[0], "dulwich", "filelock", "jsonschema_rs", "opentelemetry", "orjson", "platformdirs"),
    *("psycopg", "psycopg_pool", "pydantic", "pydantic_core", "pydantic_settings"),
}
#: A thread that waits for what this one is loading cannot be waited for.
_MOST_WAITS: Final = 100
#: Python's own; where it has none that can be seen, nothing is waited for.
_module_locks: Final[dict[str, Any]] = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
#: One thread forks at a time: two that did would release each other's locks, or wait for them.
_fork: Final = threading.RLock()
_all: Final[WeakSet[Forked]] = WeakSet()
#: What stands still, of each fork that is going on: a signal handler may begin one in the middle of another.
_still: Final[list[list[Forked]]] = []


def stands_still(one: Forked) -> None:
    """Lets it stand still at every fork from now on; to be called before it opens its first connection."""
    with _fork:
        _all.add(one)


def _loading() -> list[str]:
    """The libraries that other threads are loading, or about to: those whose locks they hold, or have in hand."""
    here = threading.get_ident()
    locks = {name: lock() for name, lock in _module_locks.copy().items() if name.partition(".")[0] in _LIBRARIES}
    return [name for name, lock in locks.items() if lock is not None and lock.owner != here]


def _before_fork() -> None:
    for _ in range(_MOST_WAITS):
        _hold_still()
        names = _loading()
        if not names:
            return
        # Not waited for with the locks held, which may be needed over there.
        _after_fork()
        for name in names:
            with suppress(Exception):  # the other thread's to tell
                importlib.import_module(name)
    _hold_still()


def _hold_still() -> None:
    _fork.acquire()
    still: list[Forked] = []
    _still.append(still)
    for one in list(_all):
        one._pause()
        still.append(one)
    # No module begins to be loaded while this is held, as it is during a fork in any case.
    _imp.acquire_lock()


def _after_fork() -> None:
    with suppress(RuntimeError):  # it may be free in a child
        _imp.release_lock()
    for one in _still.pop():
        one._go_on()
    _fork.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork)
