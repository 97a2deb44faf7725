"""`DurableRun`: what an agent's loop is written against, sync and async."""

from __future__ import annotations

import asyncio
import inspect
from concurrent.futures import CancelledError
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import InvalidJournalError
from .stepping import _MISS, Arguments, Call, DurableSteps, OnChange, Step, T, Write

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine
    from concurrent.futures import Executor, Future
    from types import TracebackType

__all__ = ["AsyncDurableRun", "DurableRun"]

_PLAIN = frozenset((str, int, float, bool, type(None), dict, list, tuple))


class DurableRun(DurableSteps):
    """One drive of one run: recorded steps return what is on record, and real work starts where the record ends.

    A context manager. Left without an error the run is closed (`done`, unless `finish` said otherwise); left with one
    it stays `running` and can be driven again.

    Args:
        journal: Where the run is recorded.
        run_id: The run; a new id begins a run, a known one resumes it, an ended one is replayed without side effects.
        agent: Whose run it is.
        task: What it is for.
        metadata: A JSON object of the caller's.
        max_resumes: How often the run may be resumed; each resume is counted before it starts.
        take_over: Take the run also from a driver that is alive; what that one records afterwards is refused.
        checkpoints: Snapshots of the workspace: taken with every tool's result, restored before a resume replays.

    Raises, from its first step or on entering:
        TurnBusyError: A living driver has the run.
        ResumeBudgetExhaustedError: It was resumed too often.

    Every step may raise:
        ReplayDivergenceError: It is not the recorded step.
        JournalConflictError: The run has ended, and the step is not on record.

    After `UncertainEffectError`, `ReplayDivergenceError` or `TurnSuspended` the drive takes no further step; nor after
    one that was cut short (cancelled, interrupted, or its record could not be written), whose outcome is not on record.
    A run that is driven inside of a step and stops in one of the first three ways stops the outer one, too.

    Specified in run-journal.md, section 4.
    """

    def start(self) -> None:
        """Claims the run; steps do it by themselves when it was not done before."""
        self._begin()

    def model(self, fn: Callable[..., T], *args: Any, request: Any = None, on_change: OnChange = "diverge") -> T:
        """A model's decision: asked once, then replayed.

        Args:
            fn: Called with `args`; what it returns is recorded as JSON and returned as such.
            args: Its arguments.
            request: What decides the answer (prompt, model, tools, settings); each field's digest is recorded.
            on_change: `"diverge"`: another request than the recorded one is refused. `"ask_again"`: the model is asked
                again, and the former answer is kept beside the new one.

        Raises:
            RecordedToolError: It failed, and the loop went on after that.
        """
        seq, drive = self._issue()
        answer: T = self._run(self._model(seq, drive, fn, args, request, on_change))
        return answer

    def tool(
        self,
        name: str,
        args: Arguments,
        fn: Callable[..., Any],
        *,
        restart_safe: bool = False,
        readback: Callable[[str], Any] | None = None,
        label: str | None = None,
    ) -> Any:
        """A tool's call: recorded, run, its result recorded; then replayed and never run again.

        Args:
            name: The tool's name.
            args: What it is called with, JSON; a mapping becomes keyword arguments.
            fn: The tool. `current_idempotency_key()` tells it its key.
            restart_safe: Whether it may be run again when nobody knows whether it ran.
            readback: Called with the key when nobody knows; answers `Committed(result)`, `Absent()` or `Unknown()`.
            label: The model provider's id of the call; kept, never compared.

        Raises:
            UncertainEffectError: It may have run, and its declaration does not say what to do.
            RecordedToolError: It failed, and the loop went on after that.
            InvalidJournalError: The arguments cannot be recorded (nothing was run), or the result cannot (it has run).
        """
        seq, drive = self._issue()
        memo = self._memo(seq, drive, name, args)
        if memo is not _MISS:
            return memo
        return self._run(self._tool(seq, drive, name, args, fn, restart_safe, readback, label))

    def submit(
        self,
        executor: Executor,
        name: str,
        args: Arguments,
        fn: Callable[..., Any],
        *,
        restart_safe: bool = False,
        readback: Callable[[str], Any] | None = None,
        label: str | None = None,
    ) -> Future[Any]:
        """`tool` in another thread: numbered here and now, so that it replays whatever order such calls end in."""
        seq, drive = self._issue()
        step = self._tool(seq, drive, name, args, fn, restart_safe, readback, label)
        future = executor.submit(copy_context().run, self._run, step)
        with self._returned:
            self._submitted.add(future)
        future.add_done_callback(self._has_come_back)
        return future

    def _has_come_back(self, future: Future[Any]) -> None:
        if future.cancelled():
            self._cut_short(CancelledError())
        with self._returned:
            self._submitted.discard(future)
            self._returned.notify_all()

    def _rest(self) -> None:
        """Waits for the steps in other threads; not with `concurrent.futures.wait`, which never learns of those that
        `shutdown(cancel_futures=True)` has cancelled."""
        with self._returned:
            while self._submitted:
                self._returned.wait()

    def approval(self, question: str, binds: Any = None) -> Any:
        """The decision on a question that was shown with these arguments.

        Args:
            question: What is asked.
            binds: What the decision is bound to; other arguments need a new one.

        Raises:
            TurnSuspended: There is no decision yet; the question is recorded.
        """
        seq, drive = self._issue()
        return self._run(self._approval(seq, drive, question, binds))

    def iteration(self, index: int) -> int:
        """Where the loop is; `RunJournal.last_iteration` finds the highest."""
        seq, drive = self._issue()
        return self._run(self._iteration(seq, drive, index))

    def verification(self, name: str, success: bool, **details: Any) -> dict[str, Any]:
        """The outcome of a check, as it was when it was first recorded."""
        seq, drive = self._issue()
        return self._run(self._verification(seq, drive, name, success, details))

    def now(self) -> float:
        """The time in seconds since the epoch, read once."""
        seq, drive = self._issue()
        return self._run(self._now(seq, drive))

    def random(self) -> float:
        """A random number from 0 up to 1, drawn once."""
        seq, drive = self._issue()
        return self._run(self._random(seq, drive))

    def uuid(self) -> str:
        """A random UUID, made once."""
        seq, drive = self._issue()
        return self._run(self._uuid(seq, drive))

    def finish(self, outcome: str = "done") -> None:
        """Closes the run and ends the drive, once its steps in flight have ended.

        Raises:
            ReplayDivergenceError: The record has steps that the loop did not take.
        """
        self._must_be_in_the_loop()
        self._is_over = True
        try:
            self._rest()
            self._finish(outcome)
        finally:
            self._is_over = self._has_ended

    def release(self) -> None:
        """Ends the drive and leaves the run to be resumed."""
        self._release()

    def __enter__(self) -> DurableRun:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_over = True
        try:
            if error is not None:
                for future in list(self._submitted):
                    future.cancel()
            # What a step in flight comes to is recorded while the run is still ours.
            if error is None or isinstance(error, Exception):
                self._rest()
            if error is None and self._halted is None:
                self._finish("done")
        finally:
            self._release()

    def _run(self, step: Step[T]) -> T:
        try:
            action = next(step)
            while True:
                try:
                    outcome = _perform(action)
                except BaseException as error:
                    if isinstance(action, Write) or not isinstance(error, Exception):
                        self._cut_short(error)
                    action = step.throw(error)
                else:
                    action = step.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result


class AsyncDurableRun(DurableSteps):
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

    def model(
        self, fn: Callable[..., Awaitable[T] | T], *args: Any, request: Any = None, on_change: OnChange = "diverge"
    ) -> Coroutine[Any, Any, T]:
        """As `DurableRun.model`."""
        seq, drive = self._issue()
        return self._run(self._model(seq, drive, fn, args, request, on_change))

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
        return self._run(self._tool(seq, drive, name, args, fn, restart_safe, readback, label))

    def approval(self, question: str, binds: Any = None) -> Coroutine[Any, Any, Any]:
        """As `DurableRun.approval`."""
        seq, drive = self._issue()
        return self._run(self._approval(seq, drive, question, binds))

    def iteration(self, index: int) -> Coroutine[Any, Any, int]:
        """As `DurableRun.iteration`."""
        seq, drive = self._issue()
        return self._run(self._iteration(seq, drive, index))

    def verification(self, name: str, success: bool, **details: Any) -> Coroutine[Any, Any, dict[str, Any]]:
        """As `DurableRun.verification`."""
        seq, drive = self._issue()
        return self._run(self._verification(seq, drive, name, success, details))

    def now(self) -> Coroutine[Any, Any, float]:
        """As `DurableRun.now`."""
        seq, drive = self._issue()
        return self._run(self._now(seq, drive))

    def random(self) -> Coroutine[Any, Any, float]:
        """As `DurableRun.random`."""
        seq, drive = self._issue()
        return self._run(self._random(seq, drive))

    def uuid(self) -> Coroutine[Any, Any, str]:
        """As `DurableRun.uuid`."""
        seq, drive = self._issue()
        return self._run(self._uuid(seq, drive))

    async def finish(self, outcome: str = "done") -> None:
        """As `DurableRun.finish`."""
        self._must_be_in_the_loop()
        self._is_over = True
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
        self._is_over = True
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

    async def _run(self, step: Step[T]) -> T:
        self._in_flight += 1
        try:
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
        if inspect.iscoroutinefunction(action.func):
            return await action()
        outcome = await asyncio.to_thread(action)
        return await outcome if inspect.isawaitable(outcome) else outcome

    async def _offload(self, function: Callable[..., T], *arguments: Any) -> T:
        # A commit that the kernel keeps takes less time than a change of threads; a flush to the disk does not.
        if self._journal.durability == "process" and self._checkpoints is None:
            return function(*arguments)
        work = partial(copy_context().run, function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._journal._threads, work)


def _perform(action: Call | Write) -> Any:
    outcome = action()
    # Most results are of a type that is plain to see, and the question costs more than many a tool.
    if isinstance(action, Write) or type(outcome) in _PLAIN or not inspect.isawaitable(outcome):
        return outcome
    if inspect.iscoroutine(outcome):
        outcome.close()
    name = getattr(action.func, "__name__", action.func)
    raise InvalidJournalError(f"{name!r:.80} is async; use AsyncDurableRun.", kind="invalid_request")


async def _known(value: T) -> T:
    return value
