"""An openai-agents agent whose tools are those of an MCP server is killed in the middle of one."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from agents import Agent, FunctionTool, LocalShellTool, RunConfig, Runner, WebSearchTool, function_tool
from agents.testing import ScriptedModel, assistant_message

from turn_journal_runtime.integrations.openai_agents import JournalModel, journal_tool
from turn_journal_runtime.run_journal import AsyncDurableRun, RunJournal

PROGRAM = Path(__file__).with_name("mcp_agent.py")
TOOLS = ("charge", "look_up", "notify")

process = pytest.mark.process
without_sigkill = pytest.mark.skipif(sys.platform == "win32", reason="the agent is killed with SIGKILL")


def _run(folder: Path, kill_in: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error::RuntimeWarning", str(PROGRAM), str(folder), "drive"],
        capture_output=True,
        text=True,
        env={**os.environ, "KILL_IN": kill_in},
        timeout=240,
        check=False,
    )


def _happened(folder: Path) -> dict[str, int]:
    logs = {tool: folder / tool for tool in (*TOOLS, "model")}
    return {tool: len(log.read_text().splitlines()) if log.exists() else 0 for tool, log in logs.items()}


@process
@without_sigkill
def test_a_tool_of_a_server_is_settled_by_what_is_declared_of_it(tmp_path: Path) -> None:
    for tool in ("look_up", "notify"):
        assert _run(tmp_path, tool).returncode == -signal.SIGKILL
    for _ in range(2):  # the second one replays
        resumed = _run(tmp_path)
        assert resumed.stdout.strip() == "charge 42; look_up 42; notify 42", resumed.stderr
        assert _happened(tmp_path) == {"charge": 1, "look_up": 2, "notify": 1, "model": 4}
    keys = (tmp_path / "keys").read_text().splitlines()
    assert keys == ["bill-42:1:charge", *["bill-42:3:look_up"] * 2, "bill-42:5:notify"]


@process
@without_sigkill
def test_a_tool_of_a_server_of_which_nothing_is_declared_is_never_run_again_on_a_guess(tmp_path: Path) -> None:
    assert _run(tmp_path, "charge").returncode == -signal.SIGKILL
    refused = _run(tmp_path)
    assert (refused.returncode, "'charge' at step 1 of run 'bill-42' may have run" in refused.stderr) == (1, True)
    assert _happened(tmp_path)["charge"] == 1


@function_tool
def plain() -> str:
    """Does something."""
    return "done"


def _told(tools: list[Any], *, wrapped: list[FunctionTool], streamed: bool) -> list[str]:
    async def drive() -> None:
        with RunJournal(":memory:") as journal:
            async with AsyncDurableRun(journal, "run") as run:
                model = JournalModel(ScriptedModel([[assistant_message("Done.")]] * 2), run)
                agent = Agent("told", model=model, tools=[*tools, *(journal_tool(tool, run) for tool in wrapped)])
                for _ in range(2):
                    if streamed:
                        result = Runner.run_streamed(agent, "Go.", run_config=RunConfig(tracing_disabled=True))
                        assert [event async for event in result.stream_events()]
                    else:
                        await Runner.run(agent, "Go.", run_config=RunConfig(tracing_disabled=True))

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(drive())
    return [str(one.message) for one in caught if one.category is RuntimeWarning]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_tool_that_is_not_recorded_is_told_once(streamed: bool) -> None:
    told = _told([plain, WebSearchTool()], wrapped=[], streamed=streamed)
    assert len(told) == 1
    assert told[0].startswith("The tool 'plain' is not recorded: after a crash it runs again.")
    # What is done at the provider is a part of its response.
    assert _told([WebSearchTool()], wrapped=[plain], streamed=streamed) == []


def test_what_runs_in_this_process_without_being_a_function_is_told_as_well() -> None:
    told = _told([LocalShellTool(executor=lambda _: "")], wrapped=[], streamed=False)
    assert [one.split(" is ")[0] for one in told] == ["The tool 'local_shell'"]
