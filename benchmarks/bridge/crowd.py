"""Many callers at once: threads and tasks."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from turn_journal_runtime.bridge import AsyncRuntimeClient, RuntimeClient

from .journals import question, turn
from .report import Line

if TYPE_CHECKING:
    from collections.abc import Iterator

SMALL = 2048
CALLS = 20_000
TARGET = 10_000


def lines() -> Iterator[Line]:
    """Inspections a second."""
    for callers in (1, 32):
        yield _line(f"{callers} threads" if callers > 1 else "1 thread", threads(callers), callers > 1)
    for callers in (1, 256):
        yield _line(f"{callers} tasks" if callers > 1 else "1 task", asyncio.run(tasks(callers)), callers > 1)


def _line(what: str, rate: float, has_target: bool) -> Line:
    line = Line(what, None, f"{rate:,.0f} inspections/s")
    return line._replace(target=f"at least {TARGET:,}/s", holds=rate >= TARGET) if has_target else line


def threads(callers: int) -> float:
    """Inspections a second of as many threads."""
    params = question(turn(0, SMALL))
    each = CALLS // callers // (4 if callers == 1 else 1)
    with RuntimeClient() as client:

        def call() -> None:
            for _ in range(each):
                client.call("turn_journal.inspect", params)

        call()
        crowd = [threading.Thread(target=call) for _ in range(callers)]
        begin = time.perf_counter()
        for one in crowd:
            one.start()
        for one in crowd:
            one.join()
        return each * callers / (time.perf_counter() - begin)


async def tasks(callers: int) -> float:
    """Inspections a second of as many tasks."""
    params = question(turn(0, SMALL))
    each = CALLS // callers // (4 if callers == 1 else 1)
    async with AsyncRuntimeClient() as client:

        async def call() -> None:
            for _ in range(each):
                await client.call("turn_journal.inspect", params)

        await call()
        begin = time.perf_counter()
        await asyncio.gather(*(call() for _ in range(callers)))
        return each * callers / (time.perf_counter() - begin)
