"""One open call: who waits for it, and how the outcome reaches them."""

from __future__ import annotations

import time
from collections import deque
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from .failures import Lost

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop, Future

#: An answer of the core, or why there will be none.
Outcome: TypeAlias = dict[str, Any] | Lost


class Call(Protocol):
    """What the connection knows of a waiting caller."""

    id: int

    def put(self, outcome: Outcome, /) -> None:
        """Hands over the outcome, from any thread; doing so twice does no harm."""


class BlockingCall(SimpleQueue[Outcome]):
    """Waited for by a thread. A `SimpleQueue` hands over in one C call that no signal handler can cut in two."""

    __slots__ = ("id",)

    id: int

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
        timer = self._mailbox.loop.call_later(deadline - time.monotonic(), _resolve, self._future, None)
        try:
            return await self._future
        finally:
            timer.cancel()


class Mailbox:
    """Outcomes on their way to an event loop, which is woken once however many there are."""

    def __init__(self, loop: AbstractEventLoop) -> None:
        self.loop = loop
        self._outcomes: deque[tuple[Future[Outcome | None], Outcome]] = deque()
        self._is_rung = False

    def put(self, future: Future[Outcome | None], outcome: Outcome) -> None:
        """Leaves an outcome, from any thread."""
        self._outcomes.append((future, outcome))
        if not self._is_rung:
            self._is_rung = True
            try:
                self.loop.call_soon_threadsafe(self._empty)
            except RuntimeError:
                self._outcomes.clear()  # the loop is closed: nobody waits there any more

    def _empty(self) -> None:
        # First, so that whoever leaves something from here on rings again.
        self._is_rung = False
        while self._outcomes:
            _resolve(*self._outcomes.popleft())


def _resolve(future: Future[Outcome | None], outcome: Outcome | None) -> None:
    if not future.done():
        future.set_result(outcome)
