"""An event loop goes on while the run journal of a database is opened, however long that takes."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import psycopg
from tests.python.turns.world import AGENT, GOAL, RESULT, TODO

from turn_journal_runtime.hosts import CallableHost
from turn_journal_runtime.turns import aio

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
        result = await aio.run_turn(database, goal_id=GOAL, agent_id=AGENT, todo_id=TODO, host=CallableHost(work))
        watching.cancel()
        return result.status

    with psycopg.connect(database) as other:
        # Who opens a run journal tidies up in this table first.
        other.execute("LOCK TABLE turn_journal_run_commits IN ACCESS EXCLUSIVE MODE")
        threading.Timer(OPENING_SECONDS, other.rollback).start()
        begun = time.monotonic()
        assert asyncio.run(drive()) == "committed"
        assert time.monotonic() - begun > OPENING_SECONDS / 2, "it waited for the table"
    assert longest < OPENING_SECONDS / 2
