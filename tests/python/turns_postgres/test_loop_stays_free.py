"""An event loop goes on while the run journal of a database is opened, however long that takes."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

from tests.python.turns.world import AGENT, GOAL, RESULT, TODO

from turn_journal_runtime.hosts import CallableHost
from turn_journal_runtime.turns import aio, database_root

if TYPE_CHECKING:
    from turn_journal_runtime import AsyncTurnContext

OPENING_SECONDS = 0.8


async def work(turn: AsyncTurnContext) -> dict[str, object]:
    await turn.tool("step", {}, dict)
    return dict(RESULT)


def test_the_loop_goes_on_while_a_run_journal_is_opened(database: str) -> None:
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - begun)

    async def drive() -> str:
        watching = asyncio.create_task(watch())
        # As long as another thread opens one, nobody else does.
        database_root._lock.acquire()
        threading.Timer(OPENING_SECONDS, database_root._lock.release).start()
        result = await aio.run_turn(database, goal_id=GOAL, agent_id=AGENT, todo_id=TODO, host=CallableHost(work))
        watching.cancel()
        return result.status

    assert asyncio.run(drive()) == "committed"
    assert longest < OPENING_SECONDS / 2
