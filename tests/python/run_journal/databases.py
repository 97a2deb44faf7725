"""Schemas of a PostgreSQL database, one for each journal of a test."""

from __future__ import annotations

import secrets
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

import psycopg
from psycopg.sql import SQL, Identifier

from turn_journal_runtime.run_journal.postgres import migrate

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager

__all__ = ["Schema", "made"]


@contextmanager
def made(server_url: str, *, encoding: str = "UTF8") -> Iterator[str]:
    """The URL of a new database, which goes with all that is in it."""
    name = f"runs_{secrets.token_hex(6)}"
    with psycopg.connect(server_url, autocommit=True) as connection:
        plain = SQL("CREATE DATABASE {} TEMPLATE template0 LOCALE 'C' ENCODING {}")
        connection.execute(plain.format(Identifier(name), encoding))
    yield urlsplit(server_url)._replace(path=f"/{name}").geturl()
    with psycopg.connect(server_url, autocommit=True) as connection:
        connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


class Schema(str):
    """The address of a run journal in a schema of its own; as a path does, it makes others beside it."""

    __slots__ = ()

    @classmethod
    def made(cls, server_url: str, *, migrated: bool = True) -> Schema:
        name = f"runs_{secrets.token_hex(6)}"
        with psycopg.connect(server_url, autocommit=True) as connection:
            connection.execute(SQL("CREATE SCHEMA {}").format(Identifier(name)))
        made = cls(f"{server_url}?options={quote(f'-c search_path={name}')}")
        if migrated:
            migrate(made)
        return made

    @property
    def name(self) -> str:
        return self.rpartition("%3D")[2]

    def with_name(self, _: str) -> Schema:
        return Schema.made(self.partition("?")[0])

    def drop(self) -> None:
        """Removes it with all that is in it."""
        with self.connection() as connection:
            connection.execute(SQL("DROP SCHEMA {} CASCADE").format(Identifier(self.name)))

    def connection(self) -> AbstractContextManager[psycopg.Connection[Any]]:
        """A connection beside the journal's."""
        return psycopg.connect(self, autocommit=True)

    def rows(self, statement: str) -> Iterator[tuple[Any, ...]]:
        """What a query finds."""
        with self.connection() as connection:
            yield from connection.execute(statement.encode()).fetchall()
