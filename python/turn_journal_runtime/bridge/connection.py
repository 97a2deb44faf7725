"""One process and the calls it owes answers to.

Whoever waits does the work. A thread that waits for an answer takes the *reading* role when it is free, reads, and
hands other callers theirs; so a lone caller is never woken by another thread. The pump, a thread of the connection,
takes over where nobody waits in a position to read: for event loops, for callers that left, at the start and at the
end. The *writing* role is the same for what is queued. Reading never waits for writing, so that two full pipes cannot
block each other.

A KeyboardInterrupt may cut the main thread between any two steps. Therefore bytes go in and out in single C calls that
record what they did (`list.extend` over `map`), and every step in between may be done twice.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections import OrderedDict
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from .calls import AsyncCall, BlockingCall, Mailbox
from .failures import NO_ROOM, closed
from .frames import MAX_LINE_BYTES, LineBuffer, Notification, decode, encode_request, with_id
from .roles import Role

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable
    from select import poll

    from .calls import Call, Outcome
    from .child import Child
    from .failures import Lost
    from .pumps import Pump

#: What the process says first.
READY: Final = "runtime.ready"
#: How often a reader that hears nothing looks whether the process is still there.
LOOK_SECONDS: Final = 1.0
_LOOK_MILLISECONDS: Final = 1000
#: Being woken takes longer than most answers do. So a lone caller in a loop, whose last answer was quick and who asks
#: again soon, looks so many times before it sleeps.
_QUICK_SECONDS: Final = 500e-6
_SOON_SECONDS: Final = 200e-6
_LOOKS: Final = 200

_READ_BYTES: Final = (64 * 1024,)
#: Queued frames are joined up to this size, so that a burst of calls is one write.
_BATCH_BYTES: Final = 256 * 1024
#: What a caller is told who waited for room in the queue.
_ROOM: Final[dict[str, Any]] = {}
_NOTHING: Final[tuple[bytes | None, list[int]]] = (None, [])


class Connection:
    """The open calls of one process, and its two streams.

    Args:
        make_pump: Makes what reads and writes where no caller does.
        max_queued: Calls that may be open; more wait for room.
    """

    def __init__(self, make_pump: Callable[[Connection], Pump], *, max_queued: int) -> None:
        self.pump: Pump = make_pump(self)
        # Both are the pump's until the process is ready; what is asked meanwhile waits in the outbox.
        self.reading: Role = Role({0: self.pump})
        self.writing: Role = Role({0: self.pump})
        self.pending: dict[int, Call] = {}
        #: Set once, when the process is gone: the outcome of every call.
        self.lost: Lost | None = None
        #: What the process said of itself when it was ready.
        self.ready: Any = None
        #: Whether it ever answered.
        self.answered: bool = False
        #: Nothing new is asked; what comes is read to its end.
        self.closing = False
        #: The process no longer listens.
        self.deaf: bool = False
        #: Set by a pump beside which callers may read: waits for something to read.
        self.readable: poll | None = None
        #: The threads that move bytes where no caller does.
        self.threads: set[int] = set()
        self.child: Child
        self._stdout: tuple[int]
        self._hanging_up = False
        #: When a reader got its own answer, and quickly.
        self._answered_quickly = 0.0
        self._max_queued = max_queued
        #: Who waits for room, in the order of their coming.
        self._queue: OrderedDict[Call, None] = OrderedDict()
        self._ids = itertools.count(1)
        self._lines = LineBuffer()
        self._outbox: list[bytes] = []
        #: The frame that is being written, and what each write took of it.
        self._progress = _NOTHING
        self._mailboxes: dict[AbstractEventLoop, Mailbox] = {}
        #: The event loop that will flush at the end of its turn.
        self._flushing: AbstractEventLoop | None = None

    @property
    def is_owed(self) -> bool:
        """Whether somebody has to read."""
        return bool(self.pending) or self.closing or self.deaf

    def is_held_here(self) -> bool:
        """Whether this thread is in a signal handler or a finalizer that interrupted a call of its own, or the pump:
        what those read or write goes on only when the handler has returned."""
        if get_ident() in self.threads:
            return True
        for role in (self.reading, self.writing):
            holder = role.get(0)
            if type(holder) is BlockingCall and holder.thread == get_ident():
                return True
        return False

    # -- calls

    def ask(self, request: bytes, deadline: float) -> Outcome | None:
        """Sends one request and waits in the calling thread; None when the deadline passes first."""
        while len(self.pending) >= self._max_queued and self.lost is None:
            turn = BlockingCall()
            try:
                self._enqueue(turn)
                if turn.outcome(deadline) is None:
                    return NO_ROOM
            finally:
                self._stop_waiting(turn)
        call = BlockingCall()
        call.id = next(self._ids)
        call.thread = get_ident()
        try:
            try:
                self.pending[call.id] = call
                # Looked at when the call is registered: whoever sets it settles what is registered.
                if self.lost is not None or self.closing:
                    return self.lost or closed()
                self._outbox.append(with_id(call.id, request))
                self.flush(call)
                # Whoever gets the role reads for everybody.
                if self.reading.setdefault(0, call) is call:
                    outcome = self._read_for(call, deadline)
                    if outcome is not None:
                        return outcome
                    # The deadline has passed, or the process is gone; how it went is the pump's to find out.
                    self.reading.give_back(call)
                    self.pump.wake()
                return call.outcome(deadline)
            finally:
                self._leave(call)
        except BaseException:
            # Again: the interrupt may have come while it was left, or before what it queued was written.
            self._leave(call)
            self.pump.wake()
            raise

    async def ask_async(self, request: bytes, deadline: float, loop: AbstractEventLoop) -> Outcome | None:
        """The same for a task of a running event loop."""
        mailbox = self._mailboxes.get(loop) or self._mailbox_of(loop)
        while len(self.pending) >= self._max_queued and self.lost is None:
            turn = AsyncCall(mailbox)
            try:
                self._enqueue(turn)
                if await turn.outcome(deadline) is None:
                    return NO_ROOM
            finally:
                self._stop_waiting(turn)
        call = AsyncCall(mailbox)
        call.id = next(self._ids)
        try:
            self.pending[call.id] = call
            if self.lost is not None or self.closing:
                return self.lost or closed()
            self._outbox.append(with_id(call.id, request))
            # At the end of the loop's turn, once for all calls that are made in it.
            if self._flushing is not loop:
                self._flushing = loop
                loop.call_soon(self._flush_for_loop)
            return await call.outcome(deadline)
        finally:
            self._leave(call)

    def _mailbox_of(self, loop: AbstractEventLoop) -> Mailbox:
        """A new loop's; those of loops that are over are dropped, of which each `asyncio.run` leaves one."""
        for known in tuple(self._mailboxes):
            if known.is_closed():
                self._mailboxes.pop(known, None)
        return self._mailboxes.setdefault(loop, Mailbox(loop))

    def _flush_for_loop(self) -> None:
        self._flushing = None
        writer = BlockingCall()
        writer.thread = get_ident()
        try:
            self.flush(writer)
        except BaseException:
            self.writing.give_back(writer)
            self.pump.wake()
            raise
        if not self.reading:
            self.pump.wake()

    def _read_for(self, call: BlockingCall, deadline: float) -> Outcome | None:
        """Reads until the caller's own outcome is there; None when it will not come this way."""
        readable = self.readable
        chunks = self._lines.chunks
        asked = now = time.monotonic()
        is_soon = asked - self._answered_quickly < _SOON_SECONDS
        looks = _LOOKS if is_soon and len(self.pending) == 1 and _has_cores() else 0
        # Another reader may have left the answer before this one took over, and one that was interrupted its lines.
        if chunks and not self._hand_out():
            return None
        while call.empty():
            remaining = deadline - now
            if remaining <= 0 or readable is None:
                return None
            while looks and not readable.poll(0):
                looks -= 1
            if looks or readable.poll(remaining * 1000 if remaining < LOOK_SECONDS else _LOOK_MILLISECONDS):
                self._read()
                # Mostly one answer has come, and it is the caller's own: it needs no hands to go through.
                if len(chunks) == 1 and chunks[0].find(b"\n") + 1 == len(chunks[0]) > 0:
                    message = decode(chunks[0])
                    if type(message) is dict and message["id"] == call.id:
                        self.answered = True
                        chunks.clear()
                        now = time.monotonic()
                        if now - asked < _QUICK_SECONDS:
                            self._answered_quickly = now
                        return message
                if not self._hand_out():
                    return None
            elif self.deaf or self.child.exited():
                return None
            now = time.monotonic()
        return call.get()

    def _leave(self, call: Call) -> None:
        """Forgets a call and the roles it held; the pump reads on for those who wait."""
        self.pending.pop(call.id, None)
        if self.reading.get(0) is call:
            del self.reading[0]
            if self.pending:
                self.pump.wake()
        if self.writing.get(0) is call:
            del self.writing[0]
        if self._queue:
            self._admit()

    def _enqueue(self, turn: Call) -> None:
        self._queue[turn] = None
        self._admit()

    def _stop_waiting(self, turn: Call) -> None:
        """Room that comes later is for those who still wait."""
        self._queue.pop(turn, None)
        self._admit()

    def _admit(self) -> None:
        """Tells as many of those who wait for room as there is room for."""
        room = self._max_queued - len(self.pending)
        while room > 0 and self._queue:
            try:
                turn = next(iter(self._queue))
            except (StopIteration, RuntimeError):
                continue  # another thread does the same
            # Told first: whoever is told twice passes on what room there is.
            turn.put(_ROOM)
            self._queue.pop(turn, None)
            room -= 1

    # -- bytes

    def connect(self, child: Child) -> None:
        """Lets the calls reach a process that was started."""
        self.child = child
        self._stdout = (child.stdout,)

    def receive(self) -> bool:
        """Reads once and hands out the answers; False at the end. For the reader alone."""
        if not self.catch_up():
            return False
        self._read()
        return self._hand_out()

    def catch_up(self) -> bool:
        """Hands out what a reader that was interrupted has left; False at the end. For the reader alone."""
        return not self._lines.chunks or self._hand_out()

    def _read(self) -> None:
        self._lines.chunks.extend(map(os.read, self._stdout, _READ_BYTES))

    def _hand_out(self) -> bool:
        if not self._lines.chunks[-1]:
            return False
        lines = self._lines.lines()
        if not lines:
            return self._lines.size <= MAX_LINE_BYTES
        self._dispatch(lines)
        self._lines.discard()
        return True

    def _dispatch(self, lines: list[bytes]) -> None:
        pending = self.pending
        settled: list[int] = []
        for line in lines:
            message = decode(line)
            if type(message) is dict:
                call_id: int = message["id"]
                call = pending.get(call_id)
                # Nobody waits for an answer that comes late, or twice, or unasked.
                if call is not None:
                    call.put(message)
                    settled.append(call_id)
            elif isinstance(message, Notification):
                if message.method == READY:
                    self.ready = message.params
            else:
                self.child.note(line)
        # Not before: an interrupted reader's lines are read again.
        for call_id in settled:
            self.answered = True
            pending.pop(call_id, None)
        if self._queue:
            self._admit()

    def flush(self, writer: object) -> bool:
        """Writes what is queued, unless somebody else does; False when the pipe is full. Never waits."""
        writing = self.writing
        while self._outbox or self._hanging_up:
            if writing.setdefault(0, writer) is not writer:
                if writing.get(0) is self.pump:
                    self.pump.wake()
                return True
            try:
                is_done = self.write()
            finally:
                writing.give_back(writer)
            if not is_done:
                # What a caller cannot write, the pump does.
                if writer is not self.pump:
                    self.pump.wake()
                return False
        return True

    def write(self) -> bool:
        """Writes what is queued; False when the pipe is full. For the writer alone."""
        outbox = self._outbox
        try:
            while outbox:
                frame = outbox[0]
                if self._progress[0] is not frame:
                    if len(outbox) > 1:
                        frame = self._joined()
                    self._progress = (frame, [])
                taken = self._progress[1]
                while (start := sum(taken)) < len(frame):
                    rest = memoryview(frame)[start:] if start else frame
                    taken.extend(map(os.write, (self.child.stdin,), (rest,)))
                del outbox[0]
            self._progress = _NOTHING
        except BlockingIOError:
            return False
        except OSError:
            # The process is going; the end of its output says how.
            outbox.clear()
            self.deaf = True
            self.pump.wake()
        if self._hanging_up:
            self._hanging_up = False
            self.child.close_stdin()
        return True

    def _joined(self) -> bytes:
        """Makes one frame of the first few, so that a burst of calls is one write."""
        outbox = self._outbox
        count = size = 0
        for frame in outbox:
            size += len(frame)
            if count and size > _BATCH_BYTES:
                break
            count += 1
        outbox[:count] = [b"".join(outbox[:count])]
        return outbox[0]

    def tell(self, method: str) -> None:
        """Sends a request whose answer nobody waits for."""
        self._outbox.append(with_id(next(self._ids), encode_request(method, b"{}")))
        self.flush(object())

    def hang_up(self) -> None:
        """Closes the process's input when everything queued is written."""
        self._hanging_up = True
        self.pump.wake()

    def end(self, lost: Lost) -> None:
        """Answers every open call, and every later one, with the loss of the process."""
        self.lost = lost
        for call in [*self.pending.values(), *self._queue]:
            call.put(lost)


def _has_cores() -> bool:
    """Whether the process has a core to work on while this thread looks."""
    return (len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1) > 1
