"""A durable agent with openai-agents, offline with a model made for this example.

    python examples/openai_agents_agent.py WORKSPACE

The model is wrapped once, so that its answers are recorded; each tool takes its step with `run.tool`. KILL_IN=notify
kills the process with SIGKILL in the middle of that tool; the next call of the same command goes on from there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agents import Agent, Model, ModelResponse, RunConfig, Runner, Usage, function_tool
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from pydantic import TypeAdapter

from turn_journal_runtime.run_journal import Absent, AsyncDurableRun, Committed, RunJournal, current_idempotency_key

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

RESPONSE = TypeAdapter(ModelResponse)


class ScriptedModel(Model):
    """Stands for a model: charges, notifies, and says that it is done."""

    async def get_response(self, *, input: Any, **_: Any) -> ModelResponse:
        answered = [item for item in input if isinstance(item, dict) and item.get("type") == "function_call_output"]
        steps: list[Any] = [
            ResponseFunctionToolCall(type="function_call", call_id="1", name="charge", arguments='{"amount": 5}'),
            ResponseFunctionToolCall(type="function_call", call_id="2", name="notify", arguments='{"text": "paid"}'),
            ResponseOutputMessage(
                id="m",
                type="message",
                role="assistant",
                status="completed",
                content=[ResponseOutputText(type="output_text", text="Order 42 is billed.", annotations=[])],
            ),
        ]
        return ModelResponse(output=[steps[len(answered)]], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError("This example does not stream.")


class RecordedModel(Model):
    """Any model of the SDK, asked once for each step of a run."""

    def __init__(self, model: Model, run: AsyncDurableRun) -> None:
        self._model, self._run = model, run

    async def get_response(self, *, system_instructions: Any, input: Any, model_settings: Any, **rest: Any) -> Any:
        request = {"system_instructions": system_instructions, "input": input, "model_settings": model_settings}

        async def ask() -> Any:
            return RESPONSE.dump_python(await self._model.get_response(**request, **rest), mode="json")

        request_record = {**request, "model_settings": model_settings.to_json_dict()}
        return RESPONSE.validate_python(await self._run.model(ask, request=request_record))

    def stream_response(self, *arguments: Any, **named: Any) -> AsyncIterator[Any]:
        return self._model.stream_response(*arguments, **named)


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

    with RunJournal(workspace / "runs.db") as journal:
        async with AsyncDurableRun(journal, "bill-42", agent="openai-agents") as run:
            # failure_error_function=None: an outcome that is not known stops the run, and is no news for the model.
            @function_tool(failure_error_function=None)
            async def charge(amount: int) -> str:
                """Charges the customer."""
                return str(await run.tool("charge", {"amount": amount}, lambda amount: effect("charge")))

            @function_tool(failure_error_function=None)
            async def notify(text: str) -> str:
                """Sends the customer a message."""
                step = run.tool("notify", {"text": text}, lambda text: effect("notify"), readback=was_sent)
                return str(await step)

            agent = Agent("billing", tools=[charge, notify], model=RecordedModel(ScriptedModel(), run))
            result = await Runner.run(agent, "Bill order 42.", run_config=RunConfig(tracing_disabled=True))
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
