"""A journal with runs of every kind, for the commands on whole runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from turn_journal_runtime.errors import TurnSuspended
from turn_journal_runtime.run_journal import DurableRun, JournalEvent, RunJournal
from turn_journal_runtime.run_journal.copying import run_ids

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["contents", "fill", "filled", "loop"]


def loop(run: DurableRun, query: str, *, reports: bool = True) -> None:
    """Search, and report what was found."""
    with run:
        run.iteration(0)
        run.tool("search", {"q": query, "n.max": 1}, lambda **args: args["q"])
        if reports:
            run.model(lambda: "found it", request={"about": query})


def fill(journal: RunJournal) -> None:
    """Three finished runs, one that died while it paid, and one that asks."""
    loop(DurableRun(journal, "one", agent="a", task="t"), "x")
    loop(DurableRun(journal, "other", agent="a", task="t"), "y")
    loop(DurableRun(journal, "short", agent="a", task="t"), "x", reports=False)
    journal.open_run("died", agent="b")
    call = {"name": "pay", "args": {"amount": 5}, "idempotency_key": "died:0:pay"}
    journal.append(JournalEvent("died", 0, "tool_call", call))
    with pytest.raises(TurnSuspended), DurableRun(journal, "asks") as run:
        run.approval("Publish?", {"page": "index"})


def filled(path: Path) -> Path:
    """A new file with those runs."""
    with RunJournal(path) as journal:
        fill(journal)
    return path


def contents(path: Path) -> dict[str, list[str]]:
    """All that a journal says, so that what left no trace can be told."""
    with RunJournal(path) as journal:
        return {run_id: list(journal.export(run_id)) for run_id in run_ids(journal)}
