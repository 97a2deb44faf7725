"""Both kinds of root: what the executor promises holds in a folder and in a database."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.python.turns.roots import emptied, migrated

from turn_journal_runtime.turns.database_root import close_run_journals

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import PostgresServer


@pytest.fixture(scope="session")
def turns_database(postgres_server: PostgresServer) -> Iterator[str]:
    """A database with all tables, which the tests of this process take one after the other."""
    with migrated(postgres_server.url) as url:
        yield url
        close_run_journals()


@pytest.fixture
def database(turns_database: str) -> str:
    """A database without turns."""
    emptied(turns_database)
    return turns_database


@pytest.fixture(scope="session", params=["folder", "database"])
def turns_place(request: pytest.FixtureRequest) -> str | None:
    """Which of both it is: the database, or None for a folder."""
    # Of the session, so that no test is taken for the one that starts the server.
    found: str | None = request.getfixturevalue("turns_database") if request.param == "database" else None
    return found


@pytest.fixture
def root(turns_place: str | None, tmp_path: Path) -> Path | str:
    """A root without turns."""
    if turns_place is None:
        return tmp_path / "root"
    emptied(turns_place)
    return turns_place
