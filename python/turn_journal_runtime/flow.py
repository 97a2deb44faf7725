"""One conversation with the core and the user's callables, written once and driven by a thread or by an event loop.

A flow is a generator that yields what it needs (`Call` the core, `Ask` a callable) and returns its result. `run` drives
it for sync callers, `run_async` for asyncio, so that no rule of a conversation is written twice.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

if TYPE_CHECKING:
    from .bridge import AsyncRuntimeClient, RuntimeClient

T = TypeVar("T")


class Call(NamedTuple):
    """A method of the core, answered with its result."""

    method: str
    params: dict[str, Any]


class Ask(NamedTuple):
    """A callable of the user, sync or async, answered with what it returns or raises."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    #: Asks the callable to come to an end, when nobody waits for its answer any more.
    interrupt: Callable[[], object] | None = None


Flow: TypeAlias = Generator[Call | Ask, Any, T]


def run(flow: Flow[T], client: RuntimeClient, timeout: float | None = None) -> T:
    """Drives a flow to its result in the calling thread."""
    try:
        step = next(flow)
        while True:
            try:
                answer = (
                    client.call(*step, timeout=timeout)
                    if isinstance(step, Call)
                    else answered(step.function(*step.arguments))
                )
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


async def run_async(flow: Flow[T], client: AsyncRuntimeClient, timeout: float | None = None) -> T:  # noqa: ASYNC109
    """Drives a flow to its result without blocking the event loop; sync callables run in a thread."""
    try:
        step = next(flow)
        while True:
            try:
                answer = await (client.call(*step, timeout=timeout) if isinstance(step, Call) else ask_async(step))
            except BaseException as error:
                step = flow.throw(error)
            else:
                step = flow.send(answer)
    except StopIteration as end:
        result: T = end.value
        return result


def answered(answer: Any) -> Any:
    """What a callable of the user answers, sync or async."""
    return wait_for(answer) if isinstance(answer, Awaitable) else answer


async def ask_async(step: Ask) -> Any:
    """The answer of a callable, without blocking the event loop; a sync one runs in a thread."""
    import inspect

    if inspect.iscoroutinefunction(step.function):
        return await step.function(*step.arguments)
    answer = await in_thread(step.function, *step.arguments, interrupt=step.interrupt)
    return await answer if isinstance(answer, Awaitable) else answer


def is_async(function: Callable[..., Any]) -> bool:
    """Whether it is a coroutine function, or an object that is called as one."""
    import inspect

    called = function if inspect.isroutine(function) else getattr(function, "__call__", function)  # noqa: B004
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


async def in_thread(function: Callable[..., T], *arguments: Any, interrupt: Callable[[], object] | None = None) -> T:
    """What a sync callable returns, without blocking the event loop. A cancelled caller waits for its end."""
    import asyncio

    work = asyncio.ensure_future(asyncio.to_thread(function, *arguments))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        # A thread cannot be cancelled, and nothing may go on as if it had ended.
        if interrupt is not None:
            interrupt()
        while not work.done():
            with contextlib.suppress(asyncio.CancelledError):  # asked again: the thread is as busy as before
                await asyncio.wait([work])
        if not work.cancelled():
            work.exception()  # nobody is left to hear it
        raise


def wait_for(awaitable: Awaitable[Any]) -> Any:
    """Waits for an async callable's answer in a sync call, also where an event loop is running in this thread."""
    # asyncio takes most of the time that importing this package may cost; only those who use it pay.
    import asyncio
    import threading

    async def wait() -> Any:
        return await awaitable

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(wait())
    outcome: list[Any] = []

    def in_thread() -> None:
        try:
            outcome.append((True, asyncio.run(wait())))
        except BaseException as error:
            outcome.append((False, error))

    thread = threading.Thread(target=in_thread, name="turn-journal-wait")
    thread.start()
    thread.join()
    succeeded, value = outcome[0]
    if succeeded:
        return value
    raise value
