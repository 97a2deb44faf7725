"""One open call: who waits for it, and how the outcome reaches them."""

from __future__ import annotations

import math
import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from .failures import Lost

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future, TimerHandle

#: An answer of the core, or why there will be none.
Outcome: TypeAlias = dict[str, Any] | Lost


class Call(Protocol):
    """What the connection knows of a waiting caller."""

    id: int

    def put(self, outcome: Outcome, /) -> None:
        """Hands over the outcome, from any thread; doing so twice does no harm."""


class BlockingCall(SimpleQueue[Outcome]):
    """Waited for by a thread. A `SimpleQueue` hands over in one C call that no signal handler can cut in two."""

    __slots__ = ("id", "thread")

    id: int
    #: The thread that waits.
    thread: int

    def outcome(self, deadline: float) -> Outcome | None:
        """Waits; None when the deadline passes first."""
        try:
            return self.get(timeout=max(deadline - time.monotonic(), 0.0))
        except Empty:
            return None


class AsyncCall:
    """Waited for by a task of a running event loop."""

    __slots__ = ("_future", "_mailbox", "id")

    id: int

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self._future: Future[Outcome | None] = mailbox.loop.create_future()

    def put(self, outcome: Outcome, /) -> None:
        self._mailbox.put(self._future, outcome)

    async def outcome(self, deadline: float) -> Outcome | None:
        """Waits; None when the deadline passes first."""
        future = self._future
        deadlines = self._mailbox.deadlines
        deadlines[future] = deadline
        self._mailbox.watch(deadline)
        try:
            return await future
        finally:
            del deadlines[future]


class Mailbox:
    """Outcomes on their way to the tasks of one event loop, and when those stop waiting.

    The loop is woken once, however many outcomes there are, and has one timer, however many wait: a timer for each call
    costs more than the call's other bookkeeping.
    """

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self.deadlines: dict[Future[Outcome | None], float] = {}
        self._outcomes: deque[tuple[Future[Outcome | None], Outcome]] = deque()
        self._is_rung = False
        self._timer: TimerHandle | None = None
        self._timer_at = math.inf

    def put(self, future: Future[Outcome | None], outcome: Outcome) -> None:
        """Leaves an outcome, from any thread."""
        self._outcomes.append((future, outcome))
        if not self._is_rung:
            self._is_rung = True
            try:
                self.loop.call_soon_threadsafe(self._empty)
            except RuntimeError:
                self._outcomes.clear()  # the loop is closed: nobody waits there any more
            except BaseException:
                self._is_rung = False  # interrupted: whoever does it again rings
                raise

    def _empty(self) -> None:
        # First, so that whoever leaves something from here on rings again.
        self._is_rung = False
        while self._outcomes:
            future, outcome = self._outcomes.popleft()
            if not future.done():
                future.set_result(outcome)

    def watch(self, deadline: float) -> None:
        """Sees to it that a deadline is noticed."""
        if deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer_at = deadline
            self._timer = self.loop.call_later(deadline - time.monotonic(), self._expire)

    def _expire(self) -> None:
        self._timer, self._timer_at = None, math.inf
        now = time.monotonic()
        for future, deadline in self.deadlines.items():
            if deadline <= now and not future.done():
                future.set_result(None)
        self.watch(min((deadline for deadline in self.deadlines.values() if deadline > now), default=math.inf))
