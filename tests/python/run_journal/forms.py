"""One loop for both forms of a durable run: the sync form behind the async one's face, and what ends it early."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import pytest

from turn_journal_runtime.run_journal import AsyncDurableRun, DurableRun, current_idempotency_key

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from turn_journal_runtime.run_journal import RunJournal

__all__ = ["Form", "Killed", "Tool", "drive", "interrupt", "killed_after"]

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


class Killed(BaseException):
    """What ends a drive as a crash would: nothing more is recorded."""


class Tool:
    """A tool that notes its calls and the keys it saw."""

    def __init__(self, result: Any = None, error: BaseException | None = None) -> None:
        self.calls: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self._result, self._error = result, error

    def __call__(self, **args: Any) -> Any:
        self.calls.append(args)
        self.keys.append(current_idempotency_key())
        if self._error is not None:
            raise self._error
        return self._result


async def killed_after(loop: Awaitable[Any]) -> None:
    await loop
    raise Killed


def interrupt(form: Form, journal: RunJournal, run_id: str, loop: Callable[[Any], Awaitable[Any]]) -> None:
    async def killed(run: Any) -> None:
        await loop(run)
        raise Killed

    with pytest.raises(Killed):
        drive(form, journal, run_id, killed)
