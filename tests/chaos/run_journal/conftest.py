"""Programs beside a test that outlive it in no case."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from contextlib import ExitStack
from subprocess import PIPE
from typing import TYPE_CHECKING, TypeAlias

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Start: TypeAlias = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts a program; what a failed test leaves of it is ended."""
    with ExitStack() as processes:

        def start(program: str, *arguments: object) -> subprocess.Popen[str]:
            command = [sys.executable, "-c", textwrap.dedent(program), *map(str, arguments)]
            process = processes.enter_context(subprocess.Popen(command, stdin=PIPE, stdout=PIPE, text=True))
            processes.callback(process.kill)
            return process

        yield start
