"""The numbered migrations of the run journal's tables: made on request, never silently.

Each is one file in `migrations/` and one transaction; what was made stands in a table of its own. `turn-journal store
migrate` calls `migrate`. Specified in run-journal.md, section 5.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Final, NamedTuple

import psycopg
from psycopg import IsolationLevel
from psycopg.errors import DuplicateObject, DuplicateTable, UndefinedTable, UniqueViolation

from ...errors import JournalStoreError
from .address import Address
from .faults import typed_error
from .session import connect

if TYPE_CHECKING:
    from .session import Session

__all__ = ["Migration", "migrate", "pending_migrations", "refuse_other_version"]

_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS run_migrations "
    "(version integer PRIMARY KEY, name text NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())"
)
#: Of the table itself, its row type, or the server's own index of names: wherever another one was a moment ahead.
_MADE_MEANWHILE: Final = (DuplicateTable, DuplicateObject, UniqueViolation)
#: Whoever migrates at the same time waits here for the other one, and then finds the number taken.
_CLAIM: Final = "INSERT INTO run_migrations (version, name) VALUES (?, ?) ON CONFLICT (version) DO NOTHING"
_NAME: Final = re.compile(r"(\d{4})_(\w+)\.sql")


class Migration(NamedTuple):
    """One step from one version of the tables to the next."""

    version: int
    name: str
    sql: bytes


@cache
def _migrations() -> tuple[Migration, ...]:
    found = []
    for file in files(__package__).joinpath("migrations").iterdir():
        name = _NAME.fullmatch(file.name)
        if name is not None:
            found.append(Migration(int(name[1]), name[2], file.read_bytes()))
    return tuple(sorted(found))


def migrate(url: str) -> list[str]:
    """Brings the tables of the run journal to the version of this package.

    Args:
        url: `postgresql://…`; the tables are made in the first schema of its search path.

    Returns:
        The migrations that were made, as `0001_runs`; empty when there was nothing to do.

    Raises:
        StoreUnavailableError: The server cannot be reached.
        JournalStoreError: It refuses, or its tables are newer (`store_schema_newer`); nothing was changed.

    Specified in run-journal.md, section 5.
    """
    address = Address(url)
    made = []
    try:
        with connect(address) as session:
            try:
                session.execute(_TABLE)
            except _MADE_MEANWHILE:
                session.execute(_TABLE)
            version = _version(session)
            _refuse_newer(version, address.shown)
            session.isolation_level = IsolationLevel.READ_COMMITTED
            for migration in _migrations():
                if version >= migration.version:
                    continue
                with session.transaction():
                    if session.execute(_CLAIM, (migration.version, migration.name)).rowcount == 0:
                        continue
                    session.execute(migration.sql)
                made.append(f"{migration.version:04}_{migration.name}")
    except psycopg.Error as error:
        raise typed_error(error, address.shown) from error
    return made


def pending_migrations(url: str) -> list[str]:
    """The migrations that `migrate` would make; nothing is changed.

    Raises:
        As `migrate`.
    """
    address = Address(url)
    try:
        with connect(address) as session:
            version = _version(session)
    except psycopg.Error as error:
        raise typed_error(error, address.shown) from error
    _refuse_newer(version, address.shown)
    return [f"{one.version:04}_{one.name}" for one in _migrations() if one.version > version]


def refuse_other_version(session: Session, shown: str) -> None:
    """Raises when the tables are not those of this package; nothing is changed.

    Raises:
        JournalStoreError: `store_schema_missing`, `store_schema_older` or `store_schema_newer`.
    """
    version, wanted = _version(session), _migrations()[-1].version
    _refuse_newer(version, shown)
    if version < wanted:
        found = "has no tables for runs" if version == 0 else f"has the tables for runs of version {version}"
        raise JournalStoreError(
            f"{shown} {found}, and this package needs version {wanted}: run `turn-journal store migrate` with its "
            "address.",
            kind="store_schema_older" if version else "store_schema_missing",
            details={"database": shown, "version": version, "needed": wanted},
        )


def _refuse_newer(version: int, shown: str) -> None:
    supported = _migrations()[-1].version
    if version > supported:
        raise JournalStoreError(
            f"{shown} has the tables for runs of version {version}, and this package knows up to {supported}: upgrade "
            "turn-journal-runtime. Nothing was changed.",
            kind="store_schema_newer",
            details={"database": shown, "version": version, "supported": supported},
        )


def _version(session: Session) -> int:
    try:
        row = session.execute("SELECT COALESCE(MAX(version), 0) FROM run_migrations").fetchone()
    except UndefinedTable:
        return 0
    return int(row[0]) if row is not None else 0
