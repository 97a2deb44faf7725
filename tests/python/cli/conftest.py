"""The command line, run in this process; `test_terminal.py` runs it as a process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import pytest
from typer.testing import CliRunner

if TYPE_CHECKING:
    from pathlib import Path


class Outcome(NamedTuple):
    """What a command left."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


class Command(Protocol):
    def __call__(self, *arguments: str | Path) -> Outcome: ...


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs `turn-journal` with arguments."""
    from turn_journal_runtime.cli.app import app

    for name in ("TURN_JOURNAL_ROOT", "TURN_JOURNAL_RUNS", "TURN_JOURNAL_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str | Path) -> Outcome:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], prog_name="turn-journal")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run
