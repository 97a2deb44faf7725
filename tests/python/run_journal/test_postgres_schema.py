"""The tables in PostgreSQL, the address, and what is loaded when. run-journal.md, sections 1 and 5."""

from __future__ import annotations

import logging
import os
import secrets
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest
from psycopg.sql import SQL, Identifier, Literal
from tests.python.run_journal import databases
from tests.python.run_journal.databases import Schema

from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalStoreError,
    StoreUnavailableError,
    TurnJournalError,
)
from turn_journal_runtime.run_journal import KIND_ITERATION, DurableRun, JournalEvent, RunJournal
from turn_journal_runtime.run_journal.postgres import migrate, pending_migrations, session

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import PostgresServer

TABLES = "SELECT table_name::text FROM information_schema.tables WHERE table_schema = current_schema() ORDER BY 1"
MIGRATIONS = "turn_journal_run_migrations"


@pytest.fixture
def empty(schemas: str) -> Schema:
    return Schema.made(schemas, migrated=False)


def test_opening_makes_no_tables_and_names_the_command(empty: Schema) -> None:
    for _ in range(2):
        with pytest.raises(JournalStoreError, match="turn-journal store migrate") as caught:
            RunJournal(empty)
        assert caught.value.kind == "store_schema_missing"
        assert list(empty.rows(TABLES)) == []


def test_migrations_are_made_once_and_on_request(empty: Schema) -> None:
    assert pending_migrations(empty) == ["0001_runs"]
    assert migrate(empty) == ["0001_runs"]
    tables = list(empty.rows(TABLES))
    assert {name for (name,) in tables} >= {"turn_journal_runs", "turn_journal_events", MIGRATIONS}
    assert (migrate(empty), pending_migrations(empty), list(empty.rows(TABLES))) == ([], [], tables)


def test_two_who_migrate_at_once_do_it_once(empty: Schema) -> None:
    program = "import sys; from turn_journal_runtime.run_journal.postgres import migrate; print(migrate(sys.argv[1]))"
    command = [sys.executable, "-c", program, empty]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert sorted(one.communicate(timeout=60)[0] for one in both) == ["['0001_runs']\n", *["[]\n"] * 3]


def test_one_command_makes_all_tables(empty: Schema) -> None:
    command = [sys.executable, "-m", "turn_journal_runtime.cli", "store", "migrate", empty]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Ran 0001_runs." in done.stdout, done.stderr
    assert {("turn_journal_turns",), ("turn_journal_runs",)} <= set(empty.rows(TABLES))
    RunJournal(empty).close()


def test_a_newer_schema_is_refused_and_left_as_it_is(schema: Schema) -> None:
    with schema.connection() as connection:
        connection.execute(f"INSERT INTO {MIGRATIONS} (version, name) VALUES (99, 'later')".encode())  # noqa: S608
    for use in (RunJournal, migrate, pending_migrations):
        with pytest.raises(JournalStoreError, match="upgrade turn-journal-runtime") as caught:
            use(schema)
        assert caught.value.kind == "store_schema_newer"


def test_an_older_schema_is_refused_and_names_the_command(schema: Schema) -> None:
    with schema.connection() as connection:
        connection.execute(f"UPDATE {MIGRATIONS} SET version = 0".encode())  # noqa: S608
    with pytest.raises(JournalStoreError, match="turn-journal store migrate"):
        RunJournal(schema)


def test_tables_that_go_while_a_journal_is_open_are_a_typed_error(schema: Schema) -> None:
    with RunJournal(schema) as journal:
        with schema.connection() as connection:
            connection.execute("DROP TABLE turn_journal_events")
        with pytest.raises(JournalStoreError) as caught:
            journal.append(JournalEvent("r", 0, KIND_ITERATION, {"index": 0}))
        assert caught.value.kind == "store_schema_missing"


# The address


def test_a_password_is_in_no_error_log_or_repr(schema: Schema, caplog: pytest.LogCaptureFixture) -> None:
    secret = "hunter2-s3cret"  # noqa: S105 - looked for
    caplog.set_level(logging.DEBUG)
    host = schema.split("@")[1]
    texts: list[str] = []

    def attempt(use: Callable[[], Any]) -> None:
        try:
            use()
        except TurnJournalError as error:
            texts.extend((str(error), repr(error), repr(error.details), repr(error.__cause__), repr(error.__context__)))

    attempt(lambda: RunJournal(f"postgresql://nobody:{secret}@{host}"))
    attempt(lambda: RunJournal(f"postgresql://postgres:{secret}@127.0.0.1:1/none"))
    attempt(lambda: RunJournal(f"postgresql://postgres:{secret}%zz@{host}"))
    attempt(lambda: migrate(f"postgresql://postgres:{secret}@{host}&sslmode=require"))
    assert len(texts) == 4 * 5
    with RunJournal(f"postgresql://postgres:{secret}@{host}&sslpassword={secret}") as journal:
        journal.open_run("r")
        texts += [repr(journal), journal.path, repr(journal._database), repr(vars(journal)), repr(journal.settings)]
        texts += [repr(vars(journal._database))]
        attempt(lambda: journal.open_run("\x00"))
        attempt(lambda: journal._database.read("SELECT nothing"))
    attempt(lambda: journal.open_run("r"))
    assert len(texts) == 4 * 5 + 6 + 3 * 5
    assert not [text for text in [*texts, caplog.text] if secret in text]


@pytest.mark.parametrize("password", ["s3cr/et", "12/s3cret", "x@s3cret", "s3cret@"])
def test_an_address_that_would_be_cut_within_its_password_is_not_repeated(password: str) -> None:
    with pytest.raises(InvalidJournalError, match="percent-encoded") as caught:
        RunJournal(f"postgresql://postgres:{password}@127.0.0.1:1/none")
    assert "s3c" not in f"{caught.value}{caught.value.details}{caught.value.__cause__}{caught.value.__context__}"


def _variables(url: str, role: str, password: str, _: Path) -> tuple[str, dict[str, str]]:
    parts = urlsplit(url)
    (options,) = parse_qs(parts.query)["options"]
    place = {"PGHOST": parts.hostname or "", "PGPORT": str(parts.port), "PGDATABASE": parts.path[1:]}
    return "postgresql://", {**place, "PGUSER": role, "PGPASSWORD": password, "PGOPTIONS": options}


def _file(url: str, role: str, password: str, folder: Path) -> tuple[str, dict[str, str]]:
    file = folder / "passwords"
    file.write_text(f"*:*:*:other:no\n*:{urlsplit(url).port}:*:{role}:{password}\n")
    file.chmod(0o600)
    return url.replace("postgres@", f"{role}@"), {"PGPASSFILE": str(file)}


@pytest.mark.parametrize("surroundings", [_variables, _file])
def test_what_stands_for_a_url_stands_for_it_in_both_halves(
    empty: Schema, tmp_path: Path, surroundings: Callable[[str, str, str, Path], tuple[str, dict[str, str]]]
) -> None:
    role, password = f"asked_{secrets.token_hex(6)}", secrets.token_hex(8)
    with empty.connection() as connection:
        connection.execute(SQL("CREATE ROLE {} LOGIN PASSWORD {}").format(Identifier(role), Literal(password)))
        connection.execute(SQL("GRANT ALL ON SCHEMA {} TO {}").format(Identifier(empty.name), Identifier(role)))
        # The queue's tables are in a schema of their own.
        grant = SQL("GRANT CREATE ON DATABASE {} TO {}")
        connection.execute(grant.format(Identifier(connection.info.dbname), Identifier(role)))
    url, variables = surroundings(str(empty), role, password, tmp_path)
    command = [sys.executable, "-m", "turn_journal_runtime", "store", "migrate", url]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
    done = subprocess.run(command, env={**environment, **variables}, capture_output=True, text=True, check=False)
    assert (done.returncode, password in done.stdout + done.stderr) == (0, False), done.stderr
    # The run journal's are made by libpq, the turns' by the core.
    assert {name for (name,) in empty.rows(TABLES)} >= {"turn_journal_runs", "turn_journal_turns"}
    refused = subprocess.run(command, env=environment | {"PGUSER": role}, capture_output=True, text=True, check=False)
    assert refused.returncode != 0
    with empty.connection() as connection:
        connection.execute(SQL("DROP OWNED BY {}").format(Identifier(role)))
        connection.execute(SQL("DROP ROLE {}").format(Identifier(role)))


@pytest.mark.parametrize("encoding", ["SQL_ASCII", "UTF8"])
def test_texts_come_back_as_they_were_whatever_the_server_and_the_environment_say(
    postgres_server: PostgresServer, encoding: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PGCLIENTENCODING", "LATIN1")
    with databases.made(postgres_server.url, encoding=encoding) as url:
        migrate(url)
        for _ in range(2):
            with RunJournal(url) as journal, DurableRun(journal, "r\u2713", agent="\u2713") as run:
                assert run.tool("t", {"x": "\u2713"}, lambda x: f"{x} done") == "\u2713 done"
                assert {(one.run_id, one.kind) for one in journal.events("r\u2713")} >= {("r\u2713", "tool_call")}


def test_parameters_of_the_address_reach_the_server(schema: Schema) -> None:
    with RunJournal(f"{schema}&application_name=planner") as journal:
        found = journal._database.read("SELECT current_setting('application_name'), current_schema()::text")
        assert found == [("planner", schema.name)]
    with pytest.raises(JournalStoreError, match="SSL"):
        RunJournal(f"{schema}&sslmode=require")


def test_a_server_that_cannot_be_reached_is_an_error_that_may_pass() -> None:
    with pytest.raises(StoreUnavailableError) as caught:
        RunJournal("postgresql://postgres@127.0.0.1:1/none")
    assert (caught.value.kind, caught.value.is_retryable) == ("store_unavailable", True)


def test_a_user_or_database_that_is_refused_is_an_error_that_stays(schema: Schema) -> None:
    for address in (schema.replace("postgres@", "nobody@"), schema.replace("/runs_", "/no_runs_")):
        with pytest.raises(JournalStoreError) as caught:
            RunJournal(address)
        assert (caught.value.kind, caught.value.is_retryable) == ("store_denied", False)


def test_what_cannot_be_stored_is_an_error_and_does_not_spoil_the_connection(schema: Schema) -> None:
    with RunJournal(schema) as journal:
        uses: tuple[Callable[[], object], ...] = (
            lambda: journal.open_run("a\x00b"),
            lambda: journal.append(JournalEvent("r", 0, KIND_ITERATION, {}, "soon")),  # type: ignore[arg-type]
            lambda: journal.append_many([JournalEvent("r", 0, KIND_ITERATION, {}, "soon")]),  # type: ignore[arg-type]
        )
        for use in uses:
            with pytest.raises(InvalidJournalError):
                use()
        journal.append(JournalEvent("r", 0, KIND_ITERATION, {"text": "a\x00b"}))
        assert journal.events("r")[0].payload == {"text": "a\x00b"}


def test_a_server_that_does_not_wait_for_its_disk_is_made_to(schema: Schema) -> None:
    with RunJournal(f"{schema}%20-c%20synchronous_commit%3Doff") as journal:
        assert journal.settings["synchronous_commit"] == "on"
        assert journal.durability == "power"


def test_times_come_back_to_the_last_digit_whatever_the_server_rounds_to(schema: Schema) -> None:
    at = 1796034259.0849091
    with RunJournal(f"{schema}%20-c%20extra_float_digits%3D0") as journal:
        journal.append(JournalEvent("r", 0, KIND_ITERATION, {}, at))
        assert [event.created_at for event in journal.events("r")] == [at]


def test_the_command_line_shows_the_runs_of_a_database(schema: Schema) -> None:
    with RunJournal(schema) as journal:
        journal.open_run("trip-7", agent="ann")
    command = [sys.executable, "-m", "turn_journal_runtime.cli", "runs", "--db", schema, "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "trip-7" in done.stdout, done.stderr


# What is loaded


def test_nothing_of_postgresql_is_loaded_for_a_file() -> None:
    program = (
        "import sys; from turn_journal_runtime.run_journal import RunJournal; RunJournal(':memory:').close(); "
        "sys.exit(any(name.startswith('psycopg') for name in sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_without_psycopg_the_extra_is_named() -> None:
    program = (
        "import sys; sys.modules['psycopg_pool'] = None\n"
        "from turn_journal_runtime.run_journal import RunJournal\n"
        "for _ in range(2):\n"
        "    try: RunJournal('postgresql://x/y')\n"
        "    except Exception as error: print(type(error).__name__, error.kind, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout.count("turn-journal-runtime[postgres]") == 2
    assert done.stdout.startswith("JournalStoreError store_unsupported")


def test_a_drive_asks_one_thing_of_the_server_for_each_record(schema: Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[bytes] = []
    execute = session.Cursor.execute

    def watch(cursor: session.Cursor, query: Any, params: Any = None, **options: Any) -> session.Cursor:
        if threading.current_thread() is threading.main_thread():  # the owner says in its own that it lives
            asked.append(query)
        return execute(cursor, query, params, **options)

    with RunJournal(schema) as journal, DurableRun(journal, "r") as run:
        run.iteration(0)
        monkeypatch.setattr(session.Cursor, "execute", watch)
        run.tool("t", {}, lambda: 1)
        journal.append(JournalEvent("bare", 0, KIND_ITERATION, {"index": 0}))
        journal.append_many(JournalEvent("bare", n, KIND_ITERATION, {"index": n}) for n in range(1000))
        journal.events("bare")
        assert len(asked) == 4, "two for the tool, one for each of the appends; events are streamed"
