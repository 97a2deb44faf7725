"""An openai-agents agent whose tools are those of an MCP server: `python mcp_agent.py FOLDER drive|serve`.

The server is a process of its own, started by the agent. Its tools write down what really happened; KILL_IN names the
one in whose middle the agent is killed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path
from typing import Any

from agents import Agent, RunConfig, Runner
from agents.mcp import MCPServerStdio, MCPToolMetaContext
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from turn_journal_runtime.integrations.openai_agents import JournalModel, journal_mcp_tools
from turn_journal_runtime.run_journal import Absent, AsyncDurableRun, Committed, RunJournal, current_idempotency_key

FOLDER = Path(sys.argv[1])
TOOLS = ("charge", "look_up", "notify")


def note(log: str, line: str = "once") -> None:
    """Writes down what really happened."""
    with (FOLDER / log).open("a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def serve() -> None:
    from mcp.server import MCPServer

    server = MCPServer("shop")

    def serves(name: str) -> None:
        def tool(order: int) -> str:
            note(name)
            if os.environ.get("KILL_IN") == name:
                os.kill(os.getppid(), signal.SIGKILL)
            return f"{name} {order}"

        server.tool(name=name)(tool)

    for name in TOOLS:
        serves(name)
    server.run()


def decide(call: ModelCall) -> ModelStep:
    note("model")
    items = [item for item in call.input if isinstance(item, dict)]
    outputs = [item["output"] for item in items if item.get("type") == "function_call_output"]
    if len(outputs) < len(TOOLS):
        name = TOOLS[len(outputs)]
        return ModelStep([function_call(name, {"order": 42}, call_id=f"call-{name}")])
    return ModelStep([assistant_message("; ".join(output[0]["text"] for output in outputs))])


def was_notified(_: str) -> Any:
    return Committed({"type": "text", "text": "notify 42"}) if (FOLDER / "notify").exists() else Absent()


def with_key(_: MCPToolMetaContext) -> dict[str, Any]:
    note("keys", str(current_idempotency_key()))
    return {"idempotency_key": current_idempotency_key()}


async def drive() -> None:
    parameters: Any = {"command": sys.executable, "args": [__file__, str(FOLDER), "serve"], "env": {**os.environ}}
    async with MCPServerStdio(parameters, client_session_timeout_seconds=30, tool_meta_resolver=with_key) as server:
        with RunJournal(FOLDER / "runs.db") as journal:
            async with AsyncDurableRun(journal, "bill-42") as run:
                model = ScriptedModel([ModelStep.respond(decide)] * 4)
                agent = await journal_mcp_tools(
                    Agent("billing", model=JournalModel(model, run), mcp_servers=[server]),
                    run,
                    restart_safe={"look_up"},
                    readbacks={"notify": was_notified},
                )
                assert not agent.mcp_servers, "the SDK would have each tool twice, and once not recorded"
                result = await Runner.run(agent, "Bill order 42.", run_config=RunConfig(tracing_disabled=True))
                print(result.final_output)


if __name__ == "__main__":
    serve() if sys.argv[2] == "serve" else asyncio.run(drive())
