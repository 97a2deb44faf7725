"""Databases for turns: with all tables, and emptied from one test to the next."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
from psycopg.sql import SQL, Identifier

from turn_journal_runtime.bridge import default_client
from turn_journal_runtime.run_journal import postgres as run_journal
from turn_journal_runtime.turns.database_root import close_run_journals
from turn_journal_runtime.worker import schema as queue

if TYPE_CHECKING:
    from collections.abc import Iterator

_TABLES = (
    "SELECT quote_ident(schemaname) || '.' || quote_ident(tablename) FROM pg_tables "
    "WHERE schemaname IN ('public', 'public_turn_queue') AND tablename NOT LIKE '%_migrations'"
)


@contextmanager
def migrated(server: str) -> Iterator[str]:
    """A new database of a server, with the tables of turns, runs and their queue."""
    name = f"turns_{secrets.token_hex(6)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
    url = urlsplit(server)._replace(path=f"/{name}").geturl()
    migrate(url)
    yield url
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


def migrate(url: str) -> None:
    """Makes all tables of a root."""
    default_client().call("store.migrate", {"runtime_root": url})
    run_journal.migrate(url)
    queue.migrate(url)


def emptied(url: str) -> None:
    """Takes everything out of a root but its tables."""
    close_run_journals()  # the one of this process would say again that it lives
    with psycopg.connect(url, autocommit=True) as connection:
        tables = ", ".join(name for (name,) in connection.execute(_TABLES))
        connection.execute(f"TRUNCATE {tables}".encode())


def texts_in(url: str) -> str:
    """Everything that stands in a root, as one text."""
    with psycopg.connect(url, autocommit=True) as connection:
        tables = [name for (name,) in connection.execute(_TABLES)]
        rows = [connection.execute(b"SELECT to_jsonb(one)::text FROM " + name.encode() + b" one") for name in tables]
        return "\n".join(str(row) for found in rows for (row,) in found)
