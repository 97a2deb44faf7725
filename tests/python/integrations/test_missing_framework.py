"""An adapter whose framework is not installed says what to install."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("adapter", "framework"), [("pydantic_ai", "pydantic_ai"), ("openai_agents", "agents")])
def test_without_its_framework_the_extra_is_named(adapter: str, framework: str) -> None:
    program = f"import sys; sys.modules[{framework!r}] = None; import turn_journal_runtime.integrations.{adapter}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "ModuleNotFoundError" in done.stderr
    assert f"pip install 'turn-journal-runtime[{adapter.replace('_', '-')}]'" in done.stderr.splitlines()[-1]
