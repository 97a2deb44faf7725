"""Every example is killed in the middle of an effect and run again: it ends, and each effect happened once."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from turn_journal_runtime.bridge.node import locate_node
from turn_journal_runtime.settings import Settings

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform == "win32", reason="the examples kill themselves with SIGKILL"),
]


def _run(command: list[str], workspace: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **os.environ,
        **variables,
        # Nobody answers there: an example that asks a network fails.
        **dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"), "http://127.0.0.1:9"),
    }
    return subprocess.run(
        [*command, str(workspace)], capture_output=True, text=True, env=environment, timeout=240, check=False
    )


@pytest.mark.parametrize(
    ("example", "answer"),
    [
        ("pydantic_ai_agent.py", '{"charge":"charge done","notify":"notify done"}'),
        ("openai_agents_agent.py", "Order 42 is billed."),
        ("langgraph_graph.py", "Order 42 is billed."),
    ],
)
def test_an_agent_of_a_framework_survives_its_kill(example: str, answer: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / example)]
    killed = _run(command, tmp_path, KILL_IN="notify")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert killed.stdout == ""
    resumed = _run(command, tmp_path)
    assert resumed.returncode == 0, resumed.stderr
    assert resumed.stdout.strip() == answer
    assert len((tmp_path / "charge").read_text().splitlines()) == 1
    assert len((tmp_path / "notify").read_text().splitlines()) == 1


def test_a_turn_in_typescript_survives_its_kill(tmp_path: Path) -> None:
    node = locate_node(Settings()).path
    command = [node, "--disable-warning=ExperimentalWarning", str(EXAMPLES / "typescript_effect.ts")]
    killed = _run(command, tmp_path, KILL_IN="convert")
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert _run(command, tmp_path).stdout.strip() == "committed"
    assert _run(command, tmp_path).stdout.strip() == "return_existing: terminal_result_retained"
    for name in ("fetch", "convert", "publish"):
        assert (tmp_path / name).read_text() == f"report-42#{name}\n"


@pytest.mark.parametrize("at", ["1", "2", "3"])
def test_plain_code_survives_its_kill(at: str, tmp_path: Path) -> None:
    command = [sys.executable, str(EXAMPLES / "plain_code.py")]
    assert _run(command, tmp_path, KILL_AT=at).returncode == -signal.SIGKILL
    resumed = _run(command, tmp_path)
    assert resumed.stdout.splitlines()[-1] == "finished: a.txt, b.txt, c.txt", resumed.stderr
    for name in ("a.txt", "b.txt", "c.txt"):
        assert len((tmp_path / name).read_text().splitlines()) == 1
