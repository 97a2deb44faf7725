"""What is not a queue, and what its library says, in the errors of the tree."""

from __future__ import annotations

import logging
from typing import Final

import psycopg
from psycopg import errors

from ..address import is_database
from ..errors import InvalidJournalError, JournalStoreError, StoreUnavailableError
from ..run_journal.postgres.address import Address
from ..run_journal.postgres.faults import typed_error

__all__ = ["Trouble", "queue_error", "refuse_folder"]

_NOT_MIGRATED: Final = (errors.UndefinedFunction, errors.UndefinedObject, errors.UndefinedTable)


def refuse_folder(runtime_root: str) -> None:
    """Raises when a root is no database.

    Raises:
        InvalidJournalError: `invalid_request`.
    """
    if not is_database(runtime_root):
        raise InvalidJournalError(
            "Workers drive the turns of a database: give postgresql://…. Those of a folder are driven by run_turn and "
            "`turn-journal recover --yes`.",
            kind="invalid_request",
            details={"field": "runtime_root"},
        )


def queue_error(error: Exception, runtime_root: str) -> Exception:
    """What procrastinate or its driver raised, in the errors of the tree."""
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    shown = Address(runtime_root).shown
    if isinstance(cause, _NOT_MIGRATED):
        return JournalStoreError(
            f"The database {shown} lacks the queue's tables: run `turn-journal store migrate` with its address.",
            kind="store_schema_missing",
            details={"path": shown},
        )
    if isinstance(cause, errors.ForeignKeyViolation):
        return StoreUnavailableError(
            "The queue took this worker for dead: it said nothing for longer than its lease, as a process that is "
            "stopped. It signs on again.",
            details={"path": shown},
        )
    return typed_error(cause, shown) if isinstance(cause, psycopg.Error) else error


class Trouble(logging.Handler):
    """What ended procrastinate's worker: where that was one of its own tasks, it tells its log alone."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.error: Exception | None = None

    def emit(self, record: logging.LogRecord) -> None:
        # What failed in a job, perhaps while the worker was ending, is no reason why it ended.
        is_its_own = str(getattr(record, "action", "")).startswith("side_task")
        if is_its_own and record.exc_info and isinstance(record.exc_info[1], Exception):
            self.error = record.exc_info[1]

    def __enter__(self) -> Trouble:
        logging.getLogger("procrastinate").addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        logging.getLogger("procrastinate").removeHandler(self)
