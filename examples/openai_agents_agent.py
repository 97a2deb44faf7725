"""A durable agent with openai-agents, offline with a model made for this example.

    python examples/openai_agents_agent.py WORKSPACE

Its answers and its tools' calls are recorded by the adapter. KILL_IN=notify kills the process with SIGKILL in the
middle of that tool; the next call of the same command goes on from there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

from agents import Agent, RunConfig, Runner, function_tool
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from turn_journal_runtime.integrations.openai_agents import JournalModel, journal_tool
from turn_journal_runtime.run_journal import Absent, AsyncDurableRun, Committed, RunJournal, current_idempotency_key


def decide(call: ModelCall) -> ModelStep:
    """Stands for a model: charges, notifies, and says that it is done."""
    answered = [item for item in call.input if isinstance(item, dict) and item.get("type") == "function_call_output"]
    steps = (
        function_call("charge", {"amount": 5}, call_id="1"),
        function_call("notify", {"text": "paid"}, call_id="2"),
        assistant_message("Order 42 is billed."),
    )
    return ModelStep([steps[len(answered)]])


async def main(workspace: Path) -> None:
    def effect(name: str) -> str:
        with (workspace / name).open("a", encoding="utf-8") as file:
            file.write(f"{current_idempotency_key()}\n")
        if os.environ.get("KILL_IN") == name:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{name} done"

    def was_sent(key: str) -> Committed | Absent:
        """What a real tool asks its provider: did the message with this key go out?"""
        sent = workspace / "notify"
        return Committed("notify done") if sent.exists() and key in sent.read_text() else Absent()

    @function_tool
    def charge(amount: int) -> str:
        """Charges the customer."""
        return effect("charge")

    @function_tool
    def notify(text: str) -> str:
        """Sends the customer a message."""
        return effect("notify")

    with RunJournal(workspace / "runs.db") as journal:
        async with AsyncDurableRun(journal, "bill-42", agent="openai-agents") as run:
            agent = Agent(
                "billing",
                tools=[journal_tool(charge, run), journal_tool(notify, run, readback=was_sent)],
                model=JournalModel(ScriptedModel([ModelStep.respond(decide)] * 3), run),
            )
            result = await Runner.run(agent, "Bill order 42.", run_config=RunConfig(tracing_disabled=True))
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
