"""The rows that runs have, beside their events. Specified in run-journal.md, section 1."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from ..errors import JournalCorruptError
from .events import TERMINAL_STATUSES, RunMeta
from .faults import check_run_id
from .payload import DamagedPayload, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .database import Database

__all__ = ["CLOSE_RUN", "OPEN_RUN", "SET_CHECKPOINT", "closing", "opening", "read_meta"]

OPEN_RUN: Final = (
    "INSERT INTO runs (run_id, agent, task, status, outcome, checkpoint_id, created_at, updated_at, metadata) "
    "VALUES (?, ?, ?, 'running', NULL, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET status = 'running', "
    "outcome = NULL, checkpoint_id = COALESCE(excluded.checkpoint_id, runs.checkpoint_id), "
    "updated_at = excluded.updated_at"
)
SET_CHECKPOINT: Final = "UPDATE runs SET checkpoint_id = ?, updated_at = ? WHERE run_id = ?"
CLOSE_RUN: Final = "UPDATE runs SET status = ?, outcome = ?, updated_at = ? WHERE run_id = ?"


def opening(
    redact: Callable[[dict[str, Any]], dict[str, Any]] | None,
    run_id: str,
    agent: str,
    task: str,
    checkpoint_id: str | None,
    metadata: Mapping[str, Any] | None,
) -> tuple[Any, ...]:
    """What `OPEN_RUN` asks for.

    Raises:
        InvalidJournalError: An id that is no text, or metadata that is not JSON.
    """
    check_run_id(run_id)
    stored = encode(metadata or {})
    if redact is not None:
        shown = redact({"agent": agent, "task": task, "metadata": decode(stored)})
        agent, task, stored = str(shown["agent"]), str(shown["task"]), encode(shown["metadata"])
    now = time.time()
    return run_id, agent, task, checkpoint_id, now, now, stored.decode()


def closing(run_id: str, outcome: str) -> tuple[str, str, float, str]:
    """What `CLOSE_RUN` asks for."""
    return outcome if outcome in TERMINAL_STATUSES else "done", outcome, time.time(), run_id


def read_meta(database: Database, run_id: str) -> RunMeta | None:
    """What is known of a run, or None.

    Raises:
        JournalCorruptError: Its metadata is damaged.
    """
    rows = database.read(
        "SELECT run_id, agent, task, status, outcome, checkpoint_id, created_at, updated_at, "
        "CAST(metadata AS BLOB) FROM runs WHERE run_id = ?",
        (run_id,),
    )
    if not rows:
        return None
    *columns, metadata = rows[0]
    run = RunMeta(*columns)
    try:
        run.metadata = {} if metadata is None else decode(metadata)
    except DamagedPayload as error:
        raise JournalCorruptError(
            f"The metadata of run {run_id!r} is damaged: {error}.", details={"run_id": run_id, "table": "runs"}
        ) from error
    return run
