"""A pydantic-ai agent is killed in the middle of a model's answer, or of one of three tools side by side."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("billing_agent.py")
TOOLS = ("charge", "notify", "archive")

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(sys.platform == "win32", reason="the agent kills itself with SIGKILL"),
]


def _run(folder: Path, form: str, kill_in: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(PROGRAM), str(folder), form],
        capture_output=True,
        text=True,
        env={**os.environ, "KILL_IN": kill_in},
        timeout=240,
        check=False,
    )


def _happened(folder: Path, log: str) -> int:
    path = folder / log
    return len(path.read_text().splitlines()) if path.exists() else 0


@pytest.mark.parametrize("form", ["plain", "streamed"])
@pytest.mark.parametrize("kill_in", TOOLS)
def test_a_tool_that_was_killed_is_done_once_and_nothing_is_asked_again(
    form: str, kill_in: str, tmp_path: Path
) -> None:
    assert _run(tmp_path, form, kill_in).returncode == -signal.SIGKILL
    asked = _happened(tmp_path, "model")
    resumed = _run(tmp_path, form)
    assert resumed.stdout.strip() == "billed: archive, charge, notify", resumed.stderr
    assert {tool: _happened(tmp_path, tool) for tool in TOOLS} == dict.fromkeys(TOOLS, 1)
    assert asked in (1, 2)
    assert _happened(tmp_path, "model") == 3
    again = _run(tmp_path, form)
    assert again.stdout == resumed.stdout, again.stderr
    assert _happened(tmp_path, "model") == 3


@pytest.mark.parametrize("form", ["plain", "streamed"])
def test_a_model_that_was_killed_before_its_answer_was_whole_is_asked_again(form: str, tmp_path: Path) -> None:
    assert _run(tmp_path, form, "model").returncode == -signal.SIGKILL
    resumed = _run(tmp_path, form)
    assert resumed.stdout.strip() == "billed: archive, charge, notify", resumed.stderr
    assert _happened(tmp_path, "model") == 4


def test_what_was_recorded_without_streaming_is_replayed_into_a_stream_and_back(tmp_path: Path) -> None:
    assert _run(tmp_path, "plain", "archive").returncode == -signal.SIGKILL
    resumed = _run(tmp_path, "streamed")
    assert resumed.stdout.strip() == "billed: archive, charge, notify", resumed.stderr
    assert _run(tmp_path, "plain").stdout == resumed.stdout
    assert (_happened(tmp_path, "model"), _happened(tmp_path, "archive")) == (3, 1)
