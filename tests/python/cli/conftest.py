"""The command line, run in this process; `test_terminal.py` runs it as a process."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

import pytest
from tests.python.cli.answer_schemas import fits

if TYPE_CHECKING:
    from pathlib import Path
from typer.testing import CliRunner

_GROUPS: Final = {"run", "node", "store"}


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
        outcome = Outcome(result.exit_code, result.stdout, result.stderr)
        if "json" in arguments:
            _check(arguments, outcome)
        return outcome

    return run


def _check(arguments: tuple[str | Path, ...], outcome: Outcome) -> None:
    """Every answer in JSON, in whatever test, fits the schema that is committed for it."""
    if outcome.out:
        words = [str(word) for word in arguments[: 2 if arguments[0] in _GROUPS else 1]]
        fits("-".join(words), outcome.json)
    elif not outcome.err.startswith("Usage:"):  # what cannot be read at all may not say how it wants its answer
        fits("error", json.loads(outcome.err))
