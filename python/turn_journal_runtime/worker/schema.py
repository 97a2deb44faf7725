"""The queue's tables: procrastinate's own, in a schema beside the turns', made on request and never silently.

A schema of its own keeps it apart from what else runs on procrastinate in the database. `turn-journal store migrate`
calls `migrate`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import psycopg
from procrastinate.schema import SchemaManager
from psycopg import IsolationLevel
from psycopg.errors import InvalidSchemaName, UndefinedTable

from ..errors import JournalStoreError
from ..run_journal.postgres.address import Address
from ..run_journal.postgres.faults import typed_error
from ..run_journal.postgres.session import connect

if TYPE_CHECKING:
    from ..run_journal.postgres.session import Session

__all__ = ["ENTER", "migrate", "pending_migrations", "refuse_other_version"]

#: Goes from the schema of the turns into that of their queue.
ENTER: Final = "SELECT set_config('search_path', quote_ident(current_schema() || '_turn_queue'), false)"
_CREATE: Final = """
DO $$ BEGIN
  EXECUTE format('CREATE SCHEMA IF NOT EXISTS %I', current_schema() || '_turn_queue');
END $$
"""
#: A schema that a user may not use is passed over by the search path, as if it were not there.
_MAY_ENTER: Final = """
SELECT nspname, has_schema_privilege(oid, 'USAGE') FROM pg_namespace WHERE nspname = current_schema() || '_turn_queue'
"""
_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS turn_queue_migrations "
    "(name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now())"
)
#: Two who migrate at once do it one after the other.
_LOCK: Final = "SELECT pg_advisory_xact_lock(7024186114)"
_HAS_PLACE: Final = "SELECT 1 WHERE current_schema() IS NOT NULL"
_ADD: Final = "INSERT INTO turn_queue_migrations (name) VALUES (?)"


def migrate(url: str) -> list[str]:
    """Brings the queue's tables to the version of the procrastinate that is installed.

    Args:
        url: `postgresql://…`, the runtime root.

    Returns:
        The migrations that were made, by procrastinate's names for them; empty when there was nothing to do.

    Raises:
        StoreUnavailableError: The server cannot be reached; nothing was changed.
        JournalStoreError: It refuses; nothing was changed.
    """
    address = Address(url)
    try:
        with connect(address) as session:
            # Who has waited for another one sees what that one made.
            session.isolation_level = IsolationLevel.READ_COMMITTED
            with session.transaction():
                return _migrate(session, address.shown)
    except psycopg.Error as error:
        raise typed_error(error, address.shown) from error


def _migrate(session: Session, shown: str) -> list[str]:
    session.execute(_LOCK)
    if session.execute(_HAS_PLACE).fetchone() is None:
        raise JournalStoreError(
            f"The search path of {shown} names no schema that is there: create it (CREATE SCHEMA …), then migrate.",
            kind="store_schema_missing",
            details={"database": shown},
        )
    session.execute(_CREATE)
    session.execute(ENTER)
    session.execute(_TABLE)
    known = _known(session)
    made = [name for name in _names() if name not in known]
    if known:
        for name in made:
            _execute(session, Path(SchemaManager.get_migrations_path(), f"{name}.sql").read_text("utf-8"))
    else:
        _execute(session, SchemaManager.get_schema())  # as all migrations leave it
    with session.cursor() as cursor:
        cursor.executemany(_ADD, [(name,) for name in made])
    return made if known else made[-1:]


def pending_migrations(url: str) -> list[str]:
    """The migrations that `migrate` would make; nothing is changed.

    Raises:
        As `migrate`.
    """
    address = Address(url)
    try:
        with connect(address) as session:
            name, may_enter = session.execute(_MAY_ENTER).fetchone() or (None, True)
            if not may_enter:
                raise JournalStoreError(
                    f"This user may not use the queue of {address.shown}: GRANT USAGE ON SCHEMA {name}, and the rights "
                    "on what is in it.",
                    kind="store_denied",
                    details={"database": address.shown, "schema": name},
                )
            session.execute(ENTER)
            known = _known(session)
    except (UndefinedTable, InvalidSchemaName):
        known = set()
    except psycopg.Error as error:
        raise typed_error(error, address.shown) from error
    return [name for name in _names() if name not in known]


def refuse_other_version(url: str) -> None:
    """Raises when the queue's tables are missing or older than the procrastinate that is installed.

    Raises:
        JournalStoreError: `store_schema_missing`, `store_schema_older`, or `store_denied`; or as `migrate`.
    """
    pending = pending_migrations(url)
    if pending:
        shown = Address(url).shown
        raise JournalStoreError(
            f"The queue of {shown} is missing or older than the procrastinate that is installed here: run "
            "`turn-journal store migrate` with its address.",
            kind="store_schema_missing" if pending == _names() else "store_schema_older",
            details={"path": shown, "pending": list(pending)},
        )


def _names() -> list[str]:
    return sorted(file.stem for file in Path(SchemaManager.get_migrations_path()).glob("*.sql"))


def _known(session: Session) -> set[str]:
    return {name for (name,) in session.execute("SELECT name FROM turn_queue_migrations")}


def _execute(session: Session, statements: str) -> None:
    session.execute(statements.encode())
