"""A host that is a Python function: an agent loop in this process."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from ..flow import in_thread, is_async

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from ..run_journal import AsyncDurableRun, DurableRun
    from ..turns.host import HostRequest, HostResult


class CallableHost:
    """Runs a function for each turn, with a `TurnContext` over the turn's own run: what was recorded is replayed.

    A function that takes one argument gets the context; one that takes two gets the request as well. A coroutine
    function gets an `AsyncTurnContext`. It returns one JSON object with `result_kind`, or raises `HostFailedError`; any
    other exception is an `unknown` failure.

    Args:
        function: The agent's loop.

    Specified in session-recovery.md, section 5.
    """

    def __init__(self, function: Callable[..., HostResult | Awaitable[HostResult]]) -> None:
        self._function = function
        self._is_async = is_async(function)
        self._takes_request = _positionals(function) > 1

    def execute(self, request: HostRequest) -> HostResult | Awaitable[HostResult]:
        """Calls the function; the run is closed when it returns, and stays open for the next attempt when it raises."""
        if self._is_async:
            return self._execute_async(request)
        from ..run_journal import DurableRun

        with request.open_run(DurableRun) as context:
            result: HostResult = self._function(*self._arguments(context, request))  # type: ignore[assignment]
        return result

    def resume(self, session_id: str, request: HostRequest) -> HostResult | Awaitable[HostResult]:
        """As `execute`: a function's session is its run, and a run goes on by being replayed."""
        del session_id
        return self.execute(request)

    def session_exists(self, session_id: str, request: HostRequest) -> bool:
        """True: the run is recorded where the request opens it."""
        del session_id, request
        return True

    def healthcheck(self) -> bool:
        """A function can always be called."""
        return True

    def close(self) -> None:
        """Nothing of a function outlives its call."""

    async def _execute_async(self, request: HostRequest) -> HostResult:
        from ..run_journal import AsyncDurableRun

        # The journal may be in a database that takes its time.
        async with await in_thread(request.open_run, AsyncDurableRun) as context:
            result: HostResult = await self._function(*self._arguments(context, request))  # type: ignore[misc]
        return result

    def _arguments(self, context: DurableRun | AsyncDurableRun, request: HostRequest) -> tuple[Any, ...]:
        return (context, request) if self._takes_request else (context,)


def _positionals(function: Callable[..., Any]) -> int:
    """How many positional arguments a function must be given, at least; one when it does not tell."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 1
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(one.kind in kinds and one.default is inspect.Parameter.empty for one in parameters)
