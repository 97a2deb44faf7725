"""What is made of what PostgreSQL says, and what a handle leaves behind in it. run-journal.md, sections 1 and 4."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
import pytest
from tests.python.run_journal.databases import Schema

from turn_journal_runtime.errors import JournalStoreError, StoreUnavailableError
from turn_journal_runtime.run_journal import KIND_ITERATION, DurableRun, JournalEvent, RunJournal
from turn_journal_runtime.run_journal.postgres import drive, migrate
from turn_journal_runtime.run_journal.postgres import journal as postgres_journal
from turn_journal_runtime.run_journal.postgres.address import Address
from turn_journal_runtime.run_journal.postgres.database import Database
from turn_journal_runtime.run_journal.postgres.faults import is_lost, is_passing, not_connected, typed_error

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def opened(schema: Schema) -> Iterator[Database]:
    made = Database(Address(schema), "process")
    yield made
    made.close()


@pytest.mark.parametrize("code", ["08006", "08003", "57P01", "25P03", "25P04", "40003"])
def test_an_answer_that_the_server_calls_lost_is_lost(code: str) -> None:
    error = psycopg.errors.lookup(code)()
    assert is_lost(error)
    assert typed_error(error, "postgresql:///db", "unknown").kind == "store_outcome_unknown"


@pytest.mark.parametrize("code", ["57014", "53200", "53300", "55P03", "40001", "40P01"])
def test_a_server_without_time_or_room_may_be_asked_again(code: str) -> None:
    error = psycopg.errors.lookup(code)()
    assert is_passing(error)
    assert not is_lost(error)
    assert typed_error(error, "postgresql:///db").kind == "store_unavailable"


@pytest.mark.parametrize("code", ["40001", "22P02", "42P01"])
def test_a_statement_that_failed_has_its_connection_still(code: str) -> None:
    assert not is_lost(psycopg.errors.lookup(code)())


@pytest.mark.parametrize(
    ("words", "kind"),
    [
        ("FATAL: the database system is starting up", "store_unavailable"),
        ("FATAL:  sorry, too many clients already", "store_unavailable"),
        ("connection refused", "store_unavailable"),
        ('FATAL:  role "nobody" does not exist', "store_denied"),
    ],
)
def test_a_server_that_takes_no_connection_yet_is_none_that_refuses(words: str, kind: str) -> None:
    assert not_connected(psycopg.OperationalError(words), "postgresql:///db").kind == kind


def test_the_time_for_a_connection_is_the_environments_where_it_says_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "connect_timeout=10" in Address("postgresql://host/db").conninfo()
    monkeypatch.setenv("PGCONNECT_TIMEOUT", "3")
    assert "connect_timeout" not in Address("postgresql://host/db").conninfo()
    assert "connect_timeout=4" in Address("postgresql://host/db?connect_timeout=4").conninfo()


def test_keys_of_transactions_do_not_pile_up(opened: Database, schema: Schema) -> None:
    for _ in range(70):
        with opened.transaction() as cursor:
            cursor.execute("SELECT 1")
    count = "SELECT count(*) FROM turn_journal_run_commits"
    assert [n for (n,) in schema.rows(count)] == [70 - 64]
    opened.close()
    assert [n for (n,) in schema.rows(count)] == [0]


def test_what_may_have_been_made_is_not_made_again(opened: Database) -> None:
    tries = 0

    def work() -> None:
        nonlocal tries
        tries += 1
        raise StoreUnavailableError("lost", kind="store_outcome_unknown" if tries > 1 else "store_unavailable")

    with pytest.raises(StoreUnavailableError) as unknown:
        opened.repeat(work)
    assert (unknown.value.kind, tries) == ("store_outcome_unknown", 2)


def test_of_lost_connections_one_is_found_out_by_its_user_and_the_others_are_not_lent(
    opened: Database, schema: Schema
) -> None:
    together = threading.Barrier(4)

    def hold() -> None:
        with opened.transaction() as cursor:
            cursor.execute("SELECT 1")
            together.wait(20)

    users = [threading.Thread(target=hold) for _ in range(4)]
    for user in users:
        user.start()
    for user in users:
        user.join()
    with schema.connection() as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE application_name = 'turn-journal' AND datname = current_database() AND pid <> pg_backend_pid()"
        )
    with pytest.raises(StoreUnavailableError), opened.transaction():
        pytest.fail("a connection that was ended")
    for _ in range(4):
        with opened.transaction() as cursor:
            cursor.execute("SELECT 1")


def test_who_closes_its_journal_owns_nothing_there(schema: Schema) -> None:
    with RunJournal(schema) as journal, suppress(RuntimeError), DurableRun(journal, "r"):
        assert len(list(schema.rows("SELECT token FROM turn_journal_run_owners"))) == 1
        raise RuntimeError
    assert list(schema.rows("SELECT token FROM turn_journal_run_owners")) == []


def test_a_claim_whose_commit_is_not_known_drives_nothing(schema: Schema, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = drive.claim

    def lose(*given: Any, **wanted: Any) -> None:
        claim(*given, **wanted)
        raise StoreUnavailableError("lost", kind="store_outcome_unknown")

    with RunJournal(schema) as journal:
        with monkeypatch.context() as patch:
            patch.setattr(postgres_journal, "claim", lose)
            with pytest.raises(StoreUnavailableError):
                DurableRun(journal, "r").start()
        assert journal.interrupted_runs() == ["r"]
        with DurableRun(journal, "r"):
            assert journal.interrupted_runs() == []


def test_a_backup_is_of_one_moment(schema: Schema, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put = RunJournal.import_run
    with RunJournal(schema) as journal, RunJournal(schema) as other:
        for run_id in ("a", "b"):
            journal.open_run(run_id)
            journal.append(JournalEvent(run_id, 0, KIND_ITERATION, {"index": 0}))

        def put_and_write(*given: Any, **wanted: Any) -> Any:
            for run_id in ("a", "b"):
                other.append(JournalEvent(run_id, 1, KIND_ITERATION, {"index": 1}))
            return put(*given, **wanted)

        monkeypatch.setattr(RunJournal, "import_run", put_and_write)
        journal.backup(tmp_path / "backup.db")
        assert journal.last_iteration("b") == 1
    with RunJournal(tmp_path / "backup.db") as copy:
        assert [copy.last_iteration(run_id) for run_id in ("a", "b")] == [0, 0]


def test_tables_that_another_one_is_making_are_waited_for(schemas: str) -> None:
    empty = Schema.made(schemas, migrated=False)
    made: list[Any] = []
    with psycopg.connect(empty) as first:
        first.execute(
            "CREATE TABLE turn_journal_run_migrations (version integer PRIMARY KEY, name text NOT NULL, "
            "applied_at timestamptz NOT NULL DEFAULT now())"
        )
        second = threading.Thread(target=lambda: made.append(_answer(empty)))
        second.start()
        second.join(0.5)
        assert second.is_alive()
        first.commit()
        second.join(20)
    assert made == [["0001_runs"]]


def _answer(url: str) -> Any:
    try:
        return migrate(url)
    except JournalStoreError as error:
        return error
