"""A durable pydantic-ai agent, offline with pydantic-ai's own test model.

    python examples/pydantic_ai_agent.py WORKSPACE

The agent calls two tools that have real side effects: each appends a line to a file. KILL_IN=notify kills the process
with SIGKILL in the middle of that tool; the next call of the same command goes on from there. The model is not asked
again. The tools run side by side, so that either may have happened: each is looked up by its idempotency key.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic_ai import Agent
from pydantic_ai.models.test import TestModel

from turn_journal_runtime.integrations.pydantic_ai import JournalCapability
from turn_journal_runtime.run_journal import Absent, AsyncDurableRun, Committed, RunJournal, current_idempotency_key

if TYPE_CHECKING:
    from collections.abc import Callable


async def main(workspace: Path) -> None:
    agent = Agent(TestModel(), system_prompt="You bill customers.")

    def effect(name: str) -> str:
        with (workspace / name).open("a", encoding="utf-8") as file:
            file.write(f"{current_idempotency_key()}\n")
        if os.environ.get("KILL_IN") == name:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{name} done"

    @agent.tool_plain
    def charge(amount: int) -> str:
        """Charges the customer."""
        return effect("charge")

    @agent.tool_plain
    def notify(text: str) -> str:
        """Sends the customer a message."""
        return effect("notify")

    def readback(name: str) -> Callable[[str], Committed | Absent]:
        """What a real tool asks its provider: did the effect with this key happen?"""

        def find(key: str) -> Committed | Absent:
            done = workspace / name
            return Committed(f"{name} done") if done.exists() and key in done.read_text() else Absent()

        return find

    with RunJournal(workspace / "runs.db") as journal:
        async with AsyncDurableRun(journal, "bill-42", agent="pydantic-ai") as run:
            durable = JournalCapability(run, readbacks={name: readback(name) for name in ("charge", "notify")})
            result = await agent.run("Bill order 42.", capabilities=[durable])
    print(result.output)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
