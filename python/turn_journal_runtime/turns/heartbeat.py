"""A lease that lasts only as long as its holder says so, kept by a thread while the turn is driven.

The thread renews it three times in its life, for sync and asyncio drives alike: neither a host that works for hours nor
an event loop that is busy delays it. It also hears first that the turn was lost, and ends a host that can be ended.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from typing import TYPE_CHECKING, Final

from ..errors import JournalConflictError, TurnJournalError
from ..flow import Call
from .lease import refuse_forked, taken_over

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ..bridge import RuntimeClient
    from ..flow import Flow

#: Renewals in the life of a lease: two of them may fail.
RENEWALS: Final = 3
#: The shortest time that a renewal is given to be answered, in seconds.
_SHORTEST_CALL: Final = 0.5


def now() -> float:
    """Seconds by a clock that nobody sets, and that goes on while the machine sleeps."""
    boot: int | None = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if boot is None else time.clock_gettime(boot)


_held: Final[weakref.WeakSet[HeldLease]] = weakref.WeakSet()


def end_host_of(thread: int) -> None:
    """Ends the host that a thread waits for, where it can be ended."""
    for lease in tuple(_held):
        if lease.thread == thread:
            lease.end_host()


class HeldLease:
    """A lease by a database's clock, renewed until it is given back.

    Args:
        client: What renews it.
        path: The turn.
        number: The lease's number.
        seconds: How long it lasts from each renewal on.
        asked: When it was asked for, by `now`: the database's time for it began no earlier.
    """

    def __init__(self, client: RuntimeClient, path: str, number: int, seconds: float, asked: float) -> None:
        self.number: Final = number
        #: Where the turn is driven.
        self.thread: Final = threading.get_ident()
        self._process = os.getpid()
        self._client = client
        self._path = path
        self._seconds = seconds
        self._until = asked + seconds
        self._lost: JournalConflictError | None = None
        self._end: Callable[[], object] | None = None
        self._lock = threading.Lock()
        self._over = threading.Event()
        _held.add(self)
        threading.Thread(target=self._keep, name="turn-journal-lease", daemon=True).start()

    def check(self) -> None:
        """Raises when the turn is known to be lost, and in a forked child."""
        refuse_forked(self._process)
        if self._lost is not None:
            raise self._lost

    def confirm(self) -> Flow[None]:
        """Asks the database when the lease was not renewed as it should have been."""
        self.check()
        if self._until - now() < self._seconds / RENEWALS:
            asked = now()
            try:
                yield self._renewal()
            except JournalConflictError as error:
                self._lose(error)
                raise
            self._until = asked + self._seconds

    def look(self) -> None:
        """Asks the database whether the latest lease of the turn is this one."""
        self.check()
        if self._client.call("turn_lease.holder", {"path": self._path})["number"] != self.number:
            raise taken_over(self.number)

    @contextlib.contextmanager
    def ending(self, end: Callable[[], object] | None) -> Iterator[None]:
        """Work that `end` brings to an end when the lease is lost, or has run out without an answer."""
        with self._lock:
            self._end = end
        try:
            self.check()
            yield
        finally:
            with self._lock:
                self._end = None

    def give_back(self) -> Flow[None]:
        """Frees the turn; where that cannot be said, it is free when its time is up. In a forked child nothing."""
        if self._process != os.getpid():
            return
        self._over.set()
        if self._lost is None:
            with contextlib.suppress(TurnJournalError):
                yield Call("turn_lease.release", {"path": self._path, "number": self.number})

    def _renewal(self) -> Call:
        ttl = round(self._seconds * 1000)
        return Call("turn_lease.renew", {"path": self._path, "number": self.number, "ttl_ms": ttl})

    def _keep(self) -> None:
        pause = self._seconds / RENEWALS
        while not self._over.wait(min(pause, max(self._until - now(), pause / 10))):
            asked = now()
            try:
                self._client.call(*self._renewal(), timeout=max(self._until - asked, _SHORTEST_CALL))
            except JournalConflictError as error:
                if not self._over.is_set():
                    self._lose(error)
                return
            except TurnJournalError:
                if now() >= self._until and self._run_out():
                    return
            else:
                self._until = asked + self._seconds

    def _run_out(self) -> bool:
        """Another driver may have the turn by now. A host that can be ended is not left to work beside that one's."""
        with self._lock:
            if self._end is None or self._over.is_set():
                return False
        self._lose(
            JournalConflictError(
                f"The turn's lease ran out after {self._seconds:g} s in which the database could not be reached; "
                "another driver may have the turn. What was begun is recovered by the next one.",
                kind="turn_lease_lost",
                details={"number": self.number},
            )
        )
        return True

    def _lose(self, error: JournalConflictError) -> None:
        self._lost = error
        self.end_host()

    def end_host(self) -> None:
        """Brings the work that can be ended to its end, if there is some."""
        with self._lock:
            end = self._end
        if end is not None:
            end()
