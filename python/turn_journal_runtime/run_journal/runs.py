"""The rows that runs have, beside their events. Specified in run-journal.md, section 1."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

from ..errors import JournalConflictError, JournalCorruptError
from .events import RUNNING, TERMINAL_STATUSES, RunMeta
from .faults import check_run_id, unknown_run
from .payload import DamagedPayload, decode, encode

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .database import Database
    from .journal import RunJournal
    from .ownership import Ownership

__all__ = [
    "CLOSE_RUN",
    "OPEN_RUN",
    "SET_CHECKPOINT",
    "close",
    "close_running",
    "closing",
    "opening",
    "read_meta",
    "read_metadata",
    "refuse_ended",
]

OPEN_RUN: Final = (
    "INSERT INTO runs (run_id, agent, task, status, outcome, checkpoint_id, created_at, updated_at, metadata) "
    "VALUES (?, ?, ?, 'running', NULL, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET status = 'running', "
    "outcome = NULL, checkpoint_id = COALESCE(excluded.checkpoint_id, runs.checkpoint_id), "
    "updated_at = excluded.updated_at"
)
SET_CHECKPOINT: Final = "UPDATE runs SET checkpoint_id = ?, updated_at = ? WHERE run_id = ?"
CLOSE_RUN: Final = "UPDATE runs SET status = ?, outcome = ?, updated_at = ? WHERE run_id = ?"
_STANDING: Final = (
    "SELECT status, owner, holder FROM runs LEFT JOIN run_drives ON run_drives.run_id = runs.run_id "
    "WHERE runs.run_id = ?"
)
_END_DRIVE: Final = "UPDATE run_drives SET owner = NULL, holder = NULL WHERE run_id = ?"


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
        agent, task, stored = said_of(shown)
    now = time.time()
    return run_id, agent, task, checkpoint_id, now, now, stored.decode()


def said_of(shown: Mapping[str, Any]) -> tuple[str, str, bytes]:
    """The agent, the task and the metadata of a run, as `redact` lets them be kept: what it leaves out is empty."""
    return str(shown.get("agent") or ""), str(shown.get("task") or ""), encode(shown.get("metadata") or {})


def closing(run_id: str, outcome: str) -> tuple[str, str, float, str]:
    """What `CLOSE_RUN` asks for."""
    return outcome if outcome in TERMINAL_STATUSES else "done", outcome, time.time(), run_id


def close(database: Database, ownership: Ownership, run_id: str, outcome: str, *, only_running: bool = False) -> None:
    """Ends a run that nobody else drives. A driver that only counts as dead, and wakes, records nothing after it.

    Raises:
        RunNotFoundError: No such run.
        TurnBusyError: Another living owner drives it.
        JournalConflictError: It has ended, and only a running one is to be closed.
    """
    with database.transaction() as cursor:
        found = cursor.execute(_STANDING, (run_id,)).fetchone()
        if found is None:
            raise unknown_run(run_id)
        status, token, holder = found
        if only_running:
            refuse_ended(run_id, status)
        if not ownership.drives_here(run_id, token):
            ownership.refuse_owner(run_id, token, holder)
            cursor.execute(_END_DRIVE, (run_id,))
        cursor.execute(CLOSE_RUN, closing(run_id, outcome))


def refuse_ended(run_id: str, status: str) -> None:
    """Raises when a run has ended.

    Raises:
        JournalConflictError: It has.
    """
    if status != RUNNING:
        raise JournalConflictError(
            f"Run {run_id!r} has ended: {status}. Nothing was changed; fork it to go on from one of its steps.",
            details={"run_id": run_id, "status": status},
        )


def close_running(journal: RunJournal, run_id: str, outcome: str) -> None:
    """As `RunJournal.close_run`, but a run that has ended keeps its outcome.

    Raises:
        RunNotFoundError: No such run.
        TurnBusyError: A living process drives it.
        JournalConflictError: It has ended.
    """
    journal._close(run_id, outcome, only_running=True)


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
    run.metadata = read_metadata(run_id, metadata)
    return run


def read_metadata(run_id: str, stored: bytes | None) -> dict[str, Any]:
    """The metadata of a run's row.

    Raises:
        JournalCorruptError: It is damaged.
    """
    try:
        found: dict[str, Any] = {} if stored is None else decode(stored)
    except DamagedPayload as error:
        raise JournalCorruptError(
            f"The metadata of run {run_id!r} is damaged: {error}.", details={"run_id": run_id, "table": "runs"}
        ) from error
    return found
