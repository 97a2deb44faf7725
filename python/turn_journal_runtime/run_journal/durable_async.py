"""`AsyncDurableRun`: `DurableRun` for asyncio."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, overload

from .recording import Call, Step, Write
from .sleeps import Sleeping
from .stepping import _MISS, Arguments, OnChange, T

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator
    from datetime import datetime, timedelta
    from types import TracebackType

    from .drive import Drive

__all__ = ["AsyncDurableRun"]


class AsyncDurableRun(Sleeping):
    """`DurableRun` for asyncio: the same steps, numbered where they are called, awaited in any order.

    Coroutine functions are awaited; other functions run in a thread. An async context manager.

    Specified in run-journal.md, section 4.
    """

    _in_flight = 0
    _at_rest: asyncio.Event | None = None

    async def start(self) -> None:
        """Claims the run; steps do it by themselves when it was not done before, and the event loop waits for that."""
        claiming = asyncio.ensure_future(self._offload(self._begin))
        try:
            await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # The thread goes on, and what it claims would stay taken until this process ends.
            await asyncio.shield(self._give_back(claiming))
            raise

    async def _give_back(self, claiming: asyncio.Future[Any]) -> None:
        with suppress(Exception):
            await claiming
        await self._offload(self._release)

    @overload
    def model(
        self, fn: Callable[..., Awaitable[T]], *args: Any, request: Any = None, on_change: OnChange = "diverge"
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def model(
        self, fn: Callable[..., T], *args: Any, request: Any = None, on_change: OnChange = "diverge"
    ) -> Coroutine[Any, Any, T]: ...
    def model(
        self, fn: Callable[..., Any], *args: Any, request: Any = None, on_change: OnChange = "diverge"
    ) -> Coroutine[Any, Any, Any]:
        """As `DurableRun.model`."""
        seq, drive = self._issue()
        return self._numbered(seq, drive, self._model(seq, drive, fn, args, request, on_change))

    @overload
    def tool(
        self,
        name: str,
        args: Arguments,
        fn: Callable[..., Awaitable[T]],
        *,
        restart_safe: bool = False,
        readback: Callable[[str], Any] | None = None,
        label: str | None = None,
    ) -> Coroutine[Any, Any, T]: ...
    @overload
    def tool(
        self,
        name: str,
        args: Arguments,
        fn: Callable[..., T],
        *,
        restart_safe: bool = False,
        readback: Callable[[str], Any] | None = None,
        label: str | None = None,
    ) -> Coroutine[Any, Any, T]: ...
    def tool(
        self,
        name: str,
        args: Arguments,
        fn: Callable[..., Any],
        *,
        restart_safe: bool = False,
        readback: Callable[[str], Any] | None = None,
        label: str | None = None,
    ) -> Coroutine[Any, Any, Any]:
        """As `DurableRun.tool`."""
        seq, drive = self._issue()
        memo = self._memo(seq, drive, name, args)
        if memo is not _MISS:
            return _known(memo)
        return self._numbered(seq, drive, self._tool(seq, drive, name, args, fn, restart_safe, readback, label))

    def approval(self, question: str, binds: Any = None) -> Coroutine[Any, Any, Any]:
        """As `DurableRun.approval`."""
        seq, drive = self._issue()
        return self._numbered(seq, drive, self._approval(seq, drive, question, binds))

    def iteration(self, index: int) -> Coroutine[Any, Any, int]:
        """As `DurableRun.iteration`."""
        seq, drive = self._issue()
        return self._numbered(seq, drive, self._iteration(seq, drive, index))

    def verification(self, name: str, success: bool, **details: Any) -> Coroutine[Any, Any, dict[str, Any]]:
        """As `DurableRun.verification`."""
        seq, drive = self._issue()
        return self._numbered(seq, drive, self._verification(seq, drive, name, success, details))

    def now(self) -> Coroutine[Any, Any, float]:
        """As `DurableRun.now`."""
        seq, drive = self._issue()
        return self._numbered(seq, drive, self._now(seq, drive))

    def random(self) -> Coroutine[Any, Any, float]:
        """As `DurableRun.random`."""
        seq, drive = self._issue()
        return self._numbered(seq, drive, self._random(seq, drive))

    def uuid(self) -> Coroutine[Any, Any, str]:
        """As `DurableRun.uuid`."""
        seq, drive = self._issue()
        return self._numbered(seq, drive, self._uuid(seq, drive))

    def sleep(self, seconds: float | timedelta, *, suspend: bool = False) -> Coroutine[Any, Any, None]:
        """As `DurableRun.sleep`."""
        seq, drive = self._issue()
        return self._numbered(seq, drive, self._sleep(seq, drive, seconds, suspend))

    def sleep_until(self, moment: float | datetime, *, suspend: bool = False) -> Coroutine[Any, Any, None]:
        """As `DurableRun.sleep_until`."""
        seq, drive = self._issue()
        return self._numbered(seq, drive, self._sleep_until(seq, drive, moment, suspend))

    async def _pause(self, seconds: float) -> None:
        woken = asyncio.Event()
        loop = asyncio.get_running_loop()

        def wake() -> None:
            with suppress(RuntimeError):  # the event loop has ended
                loop.call_soon_threadsafe(woken.set)

        self._sleepers.add(wake)
        try:
            if self._halted is None and not self._is_over:
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await woken.wait()
        finally:
            self._sleepers.discard(wake)

    async def finish(self, outcome: str = "done") -> None:
        """As `DurableRun.finish`."""
        self._must_be_in_the_loop()
        self._close()
        try:
            await self._rest()
            await self._offload(self._finish, outcome)
        finally:
            self._is_over = self._has_ended

    async def release(self) -> None:
        """As `DurableRun.release`."""
        await self._offload(self._release)

    async def __aenter__(self) -> AsyncDurableRun:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        try:
            # What a step in flight comes to is recorded while the run is still ours; cancelled ones end by themselves.
            if error is None or isinstance(error, Exception):
                await self._rest()
            if error is None and self._halted is None:
                await self._offload(self._finish, "done")
        finally:
            # Not to be cancelled away: the run would stay taken until this process ends.
            if not self._has_ended:
                await asyncio.shield(self._offload(self._release))

    async def _rest(self) -> None:
        """Waits for the steps in flight: those of a `gather` of which another one has failed are still under way."""
        await asyncio.sleep(0)  # a task that was made a moment ago has not begun its step yet
        while self._in_flight:
            if self._at_rest is None:
                self._at_rest = asyncio.Event()
            await self._at_rest.wait()

    def _numbered(self, seq: int, drive: Drive, step: Step[T]) -> Coroutine[Any, Any, T]:
        return _Numbered(self._run(step), partial(self._given_up, seq, drive))

    async def _run(self, step: Step[T]) -> T:
        self._in_flight += 1
        try:
            self._must_not_be_halted()
            action = next(step)
            while True:
                try:
                    outcome = await self._perform(action)
                except BaseException as error:
                    if isinstance(action, Write) or not isinstance(error, Exception):
                        self._cut_short(error)
                    action = step.throw(error)
                else:
                    action = step.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result
        finally:
            self._in_flight -= 1
            if not self._in_flight and self._at_rest is not None:
                self._at_rest.set()
                self._at_rest = None

    async def _perform(self, action: Call | Write) -> Any:
        if isinstance(action, Write):
            return await self._offload(action)
        try:
            if inspect.iscoroutinefunction(action.func):
                return await action()
            outcome = await asyncio.to_thread(action)
            return await outcome if inspect.isawaitable(outcome) else outcome
        except Exception:
            # Steps of tasks that were made together with this one's get their numbers before it has failed: they do not
            # follow from that.
            await asyncio.sleep(0)
            raise

    async def _offload(self, function: Callable[..., T], *arguments: Any) -> T:
        # A commit that the kernel keeps takes less time than a change of threads; a flush to the disk does not.
        if self._journal.durability == "process" and self._checkpoints is None:
            return function(*arguments)
        work = partial(copy_context().run, function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._journal._threads, work)


class _Numbered(Coroutine[Any, Any, T]):
    """A step that has its number, and is told when it is cancelled before it begins: a coroutine alone is not."""

    __slots__ = ("_given_up", "_step")

    def __init__(self, step: Coroutine[Any, Any, T], given_up: Callable[[BaseException], None]) -> None:
        self._step = step
        self._given_up = given_up

    def __await__(self) -> Generator[Any, Any, T]:
        return self._step.__await__()

    def send(self, value: Any) -> Any:
        return self._step.send(value)

    def throw(self, error: Any, *rest: Any) -> Any:
        if inspect.getcoroutinestate(self._step) == inspect.CORO_CREATED:
            self._given_up(error() if isinstance(error, type) else error)
        return self._step.throw(error, *rest)

    def close(self) -> None:
        self._step.close()


async def _known(value: T) -> T:
    return value
