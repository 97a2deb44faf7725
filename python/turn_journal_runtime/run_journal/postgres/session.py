"""A connection as this package uses one: it takes the statements that are written for both databases."""

from __future__ import annotations

import re
from functools import cache
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import psycopg
from psycopg import Connection, RawCursor
from psycopg.adapt import AdaptersMap, Loader

from .faults import not_connected

if TYPE_CHECKING:
    from collections.abc import Iterable

    from psycopg.abc import Buffer

    from .address import Address

__all__ = ["OPTIONS", "Cursor", "Session", "connect", "milliseconds", "prepare", "translated"]

Session: TypeAlias = Connection[tuple[Any, ...]]

#: The tables, which may lie among those of others, under the names that statements use.
_TABLES: Final = {
    "runs": "turn_journal_runs",
    "journal": "turn_journal_events",
    "run_drives": "turn_journal_run_drives",
    "step_attempts": "turn_journal_run_attempts",
    "run_lineage": "turn_journal_run_lineage",
    "run_owners": "turn_journal_run_owners",
    "run_commits": "turn_journal_run_commits",
    "run_migrations": "turn_journal_run_migrations",
}
_TABLE: Final = re.compile(rf"\b({'|'.join(_TABLES)})\b")
_PLACE: Final = re.compile(r"\?(\d*)")
_BYTES: Final = re.compile(r"CAST\(([\w.]+) AS BLOB\)")


@cache
def translated(statement: str) -> bytes:
    """A statement of SQLite's in PostgreSQL's words: `?` and `?1` are `$1`, payloads come as bytes by themselves, and
    the tables have longer names."""
    number = count(1)
    statement = _TABLE.sub(lambda table: _TABLES[table[1]], _BYTES.sub(r"\1", statement))
    return _PLACE.sub(lambda place: f"${place[1] or next(number)}", statement).encode()


class Cursor(RawCursor[tuple[Any, ...]]):
    """A cursor that translates; a statement in bytes is taken as it is."""

    def execute(self, query: Any, params: Any = None, **options: Any) -> Cursor:
        """Runs one statement."""
        super().execute(translated(query) if isinstance(query, str) else query, params, **options)
        return self

    def executemany(self, query: Any, params_seq: Iterable[Any], *, returning: bool = False) -> None:
        """Runs one statement for each row of parameters, all sent before the first answer is read."""
        super().executemany(translated(query) if isinstance(query, str) else query, params_seq, returning=returning)


class _Verbatim(Loader):
    def load(self, data: Buffer) -> bytes:
        return bytes(data)


_ADAPTERS: Final = AdaptersMap(psycopg.adapters)
_ADAPTERS.register_loader("varchar", _Verbatim)

OPTIONS: Final[dict[str, Any]] = {"autocommit": True, "cursor_factory": Cursor, "context": _ADAPTERS}

_PREPARE: Final = (
    "SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') = 'off'; "
    "SET extra_float_digits = 3; SET lock_timeout = {}"
)


def connect(address: Address) -> Session:
    """A connection of its own, outside of any pool.

    Raises:
        StoreUnavailableError: The server cannot be reached.
        JournalStoreError: `store_denied`, when it refuses this user or database.
    """
    try:
        session: Session = Connection.connect(address.conninfo(), **OPTIONS)
    except psycopg.OperationalError as error:
        raise not_connected(error, address.shown) from None
    return session


def prepare(session: Session, *, patience: float) -> None:
    """Sees that what is acknowledged is on the server's disk and that times come back to the last digit, whatever the
    database's own settings are, and that nothing waits for longer than `patience` seconds for what another one has
    locked."""
    session.execute(_PREPARE.format(milliseconds(patience)).encode())


def milliseconds(seconds: float) -> int:
    """As the server takes it: 0 is no limit there, and there is a largest one."""
    return min(max(round(seconds * 1000), 1), 2**31 - 1)
