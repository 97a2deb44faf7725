"""One loop for both forms of a durable run: the sync form behind the async one's face."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from turn_journal_runtime.run_journal import AsyncDurableRun, DurableRun

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from turn_journal_runtime.run_journal import RunJournal

__all__ = ["Form", "drive"]

Form = Literal["sync", "async"]
T = TypeVar("T")


class Blocking:
    """A `DurableRun` whose steps can be awaited; each is done when its call returns."""

    def __init__(self, run: DurableRun) -> None:
        self._run = run

    def __getattr__(self, name: str) -> Any:
        step = getattr(self._run, name)
        if not callable(step):
            return step

        async def done(*arguments: Any, **keywords: Any) -> Any:
            return step(*arguments, **keywords)

        return done


def drive(form: Form, journal: RunJournal, run_id: str, loop: Callable[[Any], Awaitable[T]], **options: Any) -> T:
    """Drives a loop to its end, in one form or the other."""

    async def main() -> T:
        if form == "sync":
            with DurableRun(journal, run_id, **options) as run:
                return await loop(Blocking(run))
        async with AsyncDurableRun(journal, run_id, **options) as run:
            return await loop(run)

    return asyncio.run(main())
