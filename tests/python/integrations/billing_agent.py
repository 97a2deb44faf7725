"""A pydantic-ai agent that is killed from outside of itself: `python billing_agent.py FOLDER plain|streamed`.

Its model and its tools write down what really happened. KILL_IN names the tool, or `model`, in whose middle the process
dies; the third tool raises first, and needs a second try.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic_ai import Agent, ModelRetry
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from turn_journal_runtime.integrations.pydantic_ai import JournalCapability
from turn_journal_runtime.run_journal import Absent, AsyncDurableRun, Committed, RunJournal, current_idempotency_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

FOLDER = Path(sys.argv[1])
SIDE_BY_SIDE = ("charge", "notify", "archive")


def note(log: str, line: str = "") -> None:
    """Writes down what really happened, and dies there when that is asked for."""
    with (FOLDER / log).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")
    if os.environ.get("KILL_IN") == log:
        os.kill(os.getpid(), signal.SIGKILL)


def next_step(messages: list[ModelMessage]) -> list[ToolCallPart] | str:
    """What the model decides: three calls side by side, the refused one again, then its answer."""
    returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    done = {part.tool_name for part in returned if part.outcome == "success"}
    if not returned:
        return [ToolCallPart(name, {"order": 1 if name == "archive" else 42}, f"call-{name}") for name in SIDE_BY_SIDE]
    if "archive" not in done:
        return [ToolCallPart("archive", {"order": 42}, "call-again")]
    return f"billed: {', '.join(sorted(done))}"


def respond(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    note("model")
    step = next_step(messages)
    return ModelResponse([TextPart(step)] if isinstance(step, str) else step)


async def stream(messages: list[ModelMessage], _: AgentInfo) -> AsyncIterator[Any]:
    step = next_step(messages)
    if isinstance(step, str):
        for word in step.split(" "):
            yield f"{word} "
    else:
        for index, call in enumerate(step):
            yield {index: DeltaToolCall(call.tool_name, call.args_as_json_str(), tool_call_id=call.tool_call_id)}
    note("model")


def found(name: str) -> Callable[[str], Committed | Absent]:
    """What a real tool asks its provider: did the effect with this key happen?"""

    def look(key: str) -> Committed | Absent:
        log = FOLDER / name
        return Committed(f"{name} done") if log.exists() and key in log.read_text() else Absent()

    return look


async def effect(name: str) -> str:
    await asyncio.sleep(0)
    note(name, str(current_idempotency_key()))
    await asyncio.sleep(0.02)
    return f"{name} done"


agent: Agent[None, str] = Agent(FunctionModel(respond, stream_function=stream))


@agent.tool_plain
async def charge(order: int) -> str:
    """Charges the customer."""
    return await effect("charge")


@agent.tool_plain
async def notify(order: int) -> str:
    """Tells the customer."""
    return await effect("notify")


@agent.tool_plain
async def archive(order: int) -> str:
    """Archives the order."""
    if order != 42:
        raise ModelRetry("There is only order 42.")
    return await effect("archive")


async def main(streamed: bool) -> None:
    with RunJournal(FOLDER / "runs.db") as journal:
        async with AsyncDurableRun(journal, "bill-42") as run:
            durable = JournalCapability(run, readbacks={name: found(name) for name in SIDE_BY_SIDE})
            if streamed:
                events = agent.run_stream_events("Bill order 42.", capabilities=[durable])
                async with events as stream:
                    async for event in stream:
                        if event.event_kind == "agent_run_result":
                            print(event.result.output.strip())
            else:
                result = await agent.run("Bill order 42.", capabilities=[durable])
                print(result.output.strip())


if __name__ == "__main__":
    asyncio.run(main(sys.argv[2] == "streamed"))
