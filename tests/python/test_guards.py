"""What the suite does about its own tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

REPOSITORY = Path(__file__).parents[2]

LEAVES_PIPES = """
import gc, subprocess, sys

def test_that_fails():
    child = subprocess.Popen([sys.executable, "-S", "-c", ""], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is None

def test_that_passes():
    gc.collect()
"""


def test_what_a_failed_test_leaves_open_fails_no_later_one(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text("from tests.conftest import pytest_runtest_protocol\n")
    (tmp_path / "test_pipes.py").write_text(LEAVES_PIPES)
    command = [sys.executable, "-m", "pytest", "-q", "-c", "pyproject.toml", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert "1 failed, 1 passed" in done.stdout, done.stdout + done.stderr
