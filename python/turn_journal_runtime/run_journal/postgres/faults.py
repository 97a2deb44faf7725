"""What PostgreSQL and its driver say, in the errors of the tree.

A server's own words may quote what was stored: of it only codes are repeated.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import psycopg
from psycopg import errors as postgres

from ...errors import InvalidJournalError, JournalStoreError, StoreUnavailableError, TurnJournalError

__all__ = ["Outcome", "is_lost", "is_passing", "not_connected", "typed_error"]

#: Whether the write that failed may have been made.
Outcome: TypeAlias = Literal["not_applied", "unknown"]

_LOST: Final = (
    # The server itself does not know.
    postgres.StatementCompletionUnknown,
    postgres.AdminShutdown,
    postgres.CrashShutdown,
    postgres.CannotConnectNow,
    postgres.IdleSessionTimeout,
    postgres.IdleInTransactionSessionTimeout,
    postgres.TransactionTimeout,
)
#: Another transaction was in the way: the same one, begun again, sees what that one did.
_CONTENDED: Final = (
    postgres.SerializationFailure,
    postgres.DeadlockDetected,
    postgres.UniqueViolation,
    postgres.LockNotAvailable,
)
#: The server had no time or no room for it.
_BUSY: Final = (postgres.QueryCanceled, postgres.OutOfMemory, postgres.TooManyConnections)
_ADVICE: Final = "run `turn-journal store migrate` with its address"
#: Of a server that will take connections in a moment.
_SOON: Final = ("starting up", "shutting down", "recovery", "too many", "remaining connection slots")
#: What does not fit, by how a server's code begins.
_DENIED: Final = {
    "28": "user, password or access rule do not fit",
    "3D000": "there is no such database",
    "42501": "this user lacks a right on its tables: SELECT to read them, INSERT, UPDATE and DELETE to write",
    "25006": "it is read-only, as a standby is: this needs one that takes writes",
}


def is_lost(error: psycopg.Error) -> bool:
    """Whether the answer is gone, as it is with its connection."""
    if isinstance(error, _LOST) or (error.sqlstate or "").startswith("08"):
        return True
    return error.sqlstate is None and isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))


def is_passing(error: psycopg.Error) -> bool:
    """Whether the same statement may succeed in a moment."""
    return is_lost(error) or isinstance(error, (*_CONTENDED, *_BUSY))


def not_connected(error: psycopg.OperationalError, shown: str) -> JournalStoreError:
    """The error for a connection that did not come about; there the driver has no codes, only libpq's words, which
    name host, user and database."""
    words = " ".join(str(error).split())
    details = {"database": shown, "code": "connection_refused", "cause": words}
    if "FATAL:" in words and not any(word in words for word in _SOON):
        return JournalStoreError(f"{shown} refuses the connection: {words}.", kind="store_denied", details=details)
    return StoreUnavailableError(
        f"{shown} cannot be reached: {words}. Nothing was changed; see that the server runs and can be reached from "
        "here.",
        details=details,
    )


def typed_error(error: Exception, shown: str, outcome: Outcome = "not_applied") -> TurnJournalError:
    """The error of the tree that says what the driver's says.

    Args:
        error: The driver's error.
        shown: The address without its secrets.
        outcome: What is known of a write whose connection was lost.
    """
    if isinstance(error, TurnJournalError):
        return error
    if not isinstance(error, psycopg.Error):
        return InvalidJournalError(f"The value cannot be stored: {error}.", kind="invalid_request")
    code = error.sqlstate or ("connection_lost" if is_lost(error) else "refused_by_client")
    details = {"database": shown, "code": code}
    if outcome == "unknown":
        return StoreUnavailableError(
            f"{shown} was lost while it wrote ({code}), and did not come back in time: whether the write was made is "
            "not known. The same call again finds out, and does nothing twice.",
            kind="store_outcome_unknown",
            details=details,
        )
    if is_passing(error):
        return StoreUnavailableError(
            f"{shown} cannot be used now ({code}); nothing was changed. See that the server runs, can be reached from "
            "here, and has connections to spare.",
            details=details,
        )
    if isinstance(error, (postgres.UndefinedTable, postgres.InvalidSchemaName)):
        return JournalStoreError(
            f"{shown} has no tables for runs where this user looks for them: {_ADVICE}.",
            kind="store_schema_missing",
            details=details,
        )
    if isinstance(error, postgres.UndefinedColumn):
        return JournalStoreError(
            f"The tables for runs of {shown} are of an older version: {_ADVICE}.",
            kind="store_schema_older",
            details=details,
        )
    if isinstance(error, postgres.DiskFull):
        return JournalStoreError(
            f"The disk of {shown} is full ({code}); nothing was changed. Free some space.",
            kind="store_full",
            details=details,
        )
    why = next((why for begin, why in _DENIED.items() if code.startswith(begin)), None)
    if why is not None:
        return JournalStoreError(
            f"{shown} cannot be used ({code}): {why}. Nothing was changed.", kind="store_denied", details=details
        )
    if isinstance(error, (psycopg.DataError, psycopg.IntegrityError, psycopg.ProgrammingError)):
        what = str(error) if error.sqlstate is None else code
        return InvalidJournalError(f"The value cannot be stored: {what}.", kind="invalid_request", details=details)
    return JournalStoreError(f"{shown} refused a statement ({code}); nothing was changed.", details=details)
