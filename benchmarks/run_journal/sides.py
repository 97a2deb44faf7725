"""The sides of the comparison that every machine has: this package's journal, and SQLite without anything around it."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING, Any

from turn_journal_runtime.run_journal import KIND_ITERATION, KIND_TOOL_CALL, DurableRun, JournalEvent, RunJournal
from turn_journal_runtime.run_journal.connection import PAGE_SIZE
from turn_journal_runtime.run_journal.payload import encode
from turn_journal_runtime.run_journal.schema import STATEMENTS

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from turn_journal_runtime.run_journal.connection import Durability

#: A step as agents take them.
ARGS = {"query": "durable execution", "limit": 10}
PAYLOAD: dict[str, Any] = {"name": "search", "args": ARGS, "idempotency_key": "run-1:12:search"}


def no_op(query: str, limit: int) -> str:
    """A tool that costs nothing."""
    return "ok"


class Raw:
    """One insert into the same tables with the same settings: nothing that stores an event in SQLite is faster."""

    def __init__(self, path: Path, synchronous: str = "NORMAL") -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute(f"PRAGMA page_size = {PAGE_SIZE}")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute(f"PRAGMA synchronous = {synchronous}")
        self._connection.execute(f"PRAGMA wal_autocheckpoint = {4096 * 1000 // PAGE_SIZE}")
        for statement in STATEMENTS[:2]:
            self._connection.execute(statement)
        self._text = encode(PAYLOAD).decode()

    def __call__(self, number: int) -> None:
        """Inserts one event."""
        self._connection.execute(
            "INSERT INTO journal VALUES (?, ?, ?, ?, ?)", ("run-1", number, KIND_TOOL_CALL, self._text, 1.0)
        )


class Steps:
    """Durable tool steps of one run that never ends."""

    def __init__(self, path: Path, durability: Durability) -> None:
        self._run = DurableRun(RunJournal(path, durability=durability), "run-1")

    def __call__(self, _: int) -> None:
        """One step: intent recorded, tool run, result recorded."""
        self._run.tool("search", ARGS, no_op)


def filled(path: Path, events: int, in_one_run: int, open_journal: Callable[[Path], Any] = RunJournal) -> Any:
    """A journal with many events, `in_one_run` of them in the run `large`."""
    journal = open_journal(path)
    for start in range(0, events, 10_000):
        run_id = "large" if start < in_one_run else f"run {start // 10_000}"
        journal.append_many(
            JournalEvent(run_id, n, KIND_ITERATION if n % 100 == 0 else KIND_TOOL_CALL, {"index": n, **PAYLOAD})
            for n in range(start, start + 10_000)
        )
    return journal
