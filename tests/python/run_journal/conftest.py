"""Journals for the tests of the run journal: each test runs on a file and on PostgreSQL, but for those that ask for the
file by its path."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import pytest
from tests.python.run_journal import databases
from tests.python.run_journal.databases import Schema

from turn_journal_runtime.run_journal import RunJournal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import PostgresServer
    from tests.python.run_journal.forms import Form

Address: TypeAlias = "Path | Schema"


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "database" in metafunc.fixturenames:
        names = ["file"] if "path" in metafunc.fixturenames else ["file", "postgres"]
        metafunc.parametrize("database", names, indirect=True, scope="session")


@pytest.fixture(scope="session")
def database(request: pytest.FixtureRequest) -> str:
    """Where the test's journals are: in a `file`, or in `postgres`."""
    if request.param == "postgres":
        request.getfixturevalue("postgres_server")  # starts before any test looks at the processes
    return str(request.param)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """The file; a test that asks for it is about files alone."""
    return tmp_path / "runs" / "journal.db"


@pytest.fixture(scope="session")
def schemas(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of a database for the schemas of these tests: to make one takes a quarter of the time of a database."""
    with databases.made(postgres_server.url) as url:
        yield url


@pytest.fixture
def schema(schemas: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Schema:
    """A schema with the tables of the run journal, seen from a host of its own."""
    monkeypatch.setenv("TURN_JOURNAL_HOME", str(tmp_path / "host"))
    return Schema.made(schemas)


@pytest.fixture
def address(request: pytest.FixtureRequest, database: str) -> Address:
    """What a journal is opened by."""
    found: Address = request.getfixturevalue("path" if database == "file" else "schema")
    return found


@pytest.fixture
def journal(address: Address) -> Iterator[RunJournal]:
    with RunJournal(address) as journal:
        yield journal


@pytest.fixture(params=["process", "power"])
def any_journal(request: pytest.FixtureRequest, address: Address) -> Iterator[RunJournal]:
    """For what the async form does in another thread when a write is a flush."""
    with RunJournal(address, durability=request.param) as journal:
        yield journal


@pytest.fixture(params=["sync", "async"])
def form(request: pytest.FixtureRequest) -> Form:
    found: Form = request.param
    return found
