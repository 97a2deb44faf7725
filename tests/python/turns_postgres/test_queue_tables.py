"""The tables of the queue. session-recovery.md, section 3."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg.sql import SQL, Identifier

from turn_journal_runtime.errors import JournalStoreError, StoreUnavailableError
from turn_journal_runtime.worker.schema import migrate, pending_migrations, refuse_other_version

if TYPE_CHECKING:
    from collections.abc import Callable


def test_a_search_path_without_a_schema_is_said_to_be_so(postgres_url: str) -> None:
    with pytest.raises(JournalStoreError, match="CREATE SCHEMA") as caught:
        migrate(f"{postgres_url}?options=-csearch_path%3Dnowhere")
    assert caught.value.kind == "store_schema_missing"


@pytest.mark.parametrize("use", [migrate, pending_migrations])
def test_why_no_connection_comes_about_is_said(postgres_url: str, use: Callable[[str], list[str]]) -> None:
    parts = urlsplit(postgres_url)
    nobody = parts._replace(netloc=f"nobody:not-to-be-said@127.0.0.1:{parts.port}").geturl()
    for url, word in ((nobody, "nobody"), (parts._replace(path="/nowhere").geturl(), "nowhere")):
        with pytest.raises(JournalStoreError, match=f'"{word}" does not exist') as refused:
            use(url)
        assert refused.value.kind == "store_denied"
        assert "not-to-be-said" not in f"{refused.value!s} {refused.value.details}"
    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        use("postgresql://nobody@127.0.0.1:1/none")


def test_a_queue_that_a_user_may_not_use_is_not_said_to_be_missing(postgres_url: str) -> None:
    name = Identifier(f"user_{secrets.token_hex(6)}")
    url = postgres_url.replace("postgres@", f"{name.as_string().strip(chr(34))}@")
    migrate(postgres_url)
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        connection.execute(SQL("CREATE ROLE {} LOGIN").format(name))
        try:
            with pytest.raises(JournalStoreError, match="GRANT USAGE ON SCHEMA public_turn_queue") as refused:
                refuse_other_version(url)
            assert refused.value.kind == "store_denied"
            connection.execute(SQL("GRANT USAGE ON SCHEMA public_turn_queue TO {}").format(name))
            with pytest.raises(JournalStoreError, match="lacks a right"):
                refuse_other_version(url)
            connection.execute(SQL("GRANT SELECT ON ALL TABLES IN SCHEMA public_turn_queue TO {}").format(name))
            refuse_other_version(url)
        finally:
            connection.execute(SQL("DROP OWNED BY {}").format(name))
            connection.execute(SQL("DROP ROLE {}").format(name))
