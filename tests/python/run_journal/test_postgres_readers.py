"""Who may only read: a role without other rights, and a session that is read-only, as those of a standby are.
run-journal.md, section 1."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from psycopg.sql import SQL, Identifier

from turn_journal_runtime import aio, check_replay
from turn_journal_runtime.errors import JournalStoreError, TurnSuspended
from turn_journal_runtime.run_journal import KIND_ITERATION, DurableRun, JournalEvent, RunJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.python.run_journal.databases import Schema


def loop(journal: RunJournal, run_id: str) -> None:
    with DurableRun(journal, run_id) as run:
        run.iteration(0)
        run.tool("look", {"at": run_id}, lambda at: at)


@pytest.fixture
def recorded(schema: Schema) -> Schema:
    """Two runs that ended, and one that waits for a decision."""
    with RunJournal(schema) as journal:
        for run_id in ("a", "b"):
            loop(journal, run_id)
        with pytest.raises(TurnSuspended), DurableRun(journal, "asks") as run:
            run.approval("may it?", binds={})
    return schema


@pytest.fixture
def role(recorded: Schema) -> Iterator[str]:
    """The address for a role that may read the tables of a schema, and do nothing else."""
    name = f"reader_{secrets.token_hex(6)}"
    with recorded.connection() as connection:
        for statement in (
            "CREATE ROLE {role} LOGIN",
            "GRANT USAGE ON SCHEMA {schema} TO {role}",
            "GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}",
        ):
            connection.execute(SQL(statement).format(role=Identifier(name), schema=Identifier(recorded.name)))
        yield recorded.replace("postgres@", f"{name}@")
        for statement in ("DROP OWNED BY {role}", "DROP ROLE {role}"):
            connection.execute(SQL(statement).format(role=Identifier(name)))


@pytest.fixture(params=["role", "session"])
def reader(request: pytest.FixtureRequest, recorded: Schema) -> str:
    if request.param == "role":
        return str(request.getfixturevalue("role"))
    return f"{recorded}%20-c%20default_transaction_read_only%3Don"


def test_all_that_reads_runs_works(reader: str, tmp_path: Path) -> None:
    with RunJournal(reader) as journal:
        assert journal.interrupted_runs() == ["asks"]
        assert [event.seq for event in journal.events("a")] == [0, 1, 1]
        assert len(journal.replay_index("a")) == 3
        assert journal.last_iteration("a") == 0
        assert (journal.run_meta("a") or pytest.fail("no run")).status == "done"
        assert [one.seq for one in journal.pending_approvals()] == [0]
        assert (journal.uncertain("a"), journal.pending_sleeps()) == ([], [])
        assert (journal.diff("a", "b") or pytest.fail("they differ")).fields == ("args.at",)
        assert journal.parent("a") is None
        assert journal.prune(0, dry_run=True) == ["a", "b"]
        assert check_replay(journal, "a", loop).replays
        assert asyncio.run(aio.check_replay(journal, "b", loop)).replays
        journal.backup(tmp_path / "runs.db")
        with RunJournal(tmp_path / "runs.db") as copy:
            assert list(copy.export("a")) == list(journal.export("a"))


def test_the_command_line_reads_as_well(reader: str) -> None:
    command = [sys.executable, "-m", "turn_journal_runtime.cli", "run", "show", "a", "--db", reader]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "look" in done.stdout, done.stderr


WRITES: list[Callable[[RunJournal], Any]] = [
    lambda journal: journal.open_run("new"),
    lambda journal: journal.close_run("asks"),
    lambda journal: journal.append(JournalEvent("a", 9, KIND_ITERATION)),
    lambda journal: journal.append_many([JournalEvent("a", 9, KIND_ITERATION)]),
    lambda journal: journal.approve("asks", 0, decision=True, by="me"),
    lambda journal: journal.delete_run("a"),
    lambda journal: journal.prune(0),
    lambda journal: journal.fork("a", "new", upto=0),
    lambda journal: journal.import_run(journal.export("a"), overwrite=True),
    lambda journal: DurableRun(journal, "new").iteration(0),
]


def test_all_that_writes_says_why_it_may_not_and_changes_nothing(reader: str, recorded: Schema) -> None:
    with RunJournal(recorded) as journal:
        before = list(journal.export("a"))
    with RunJournal(reader) as journal:
        for write in WRITES:
            with pytest.raises(JournalStoreError, match=r"it is read-only|lacks a right") as caught:
                write(journal)
            assert (caught.value.kind, caught.value.is_retryable) == ("store_denied", False)
        assert list(journal.export("a")) == before


def test_a_vacuum_that_the_server_only_warns_of_is_refused(role: str, recorded: Schema) -> None:
    """It says so in words of its own language, and to the client alone."""
    with RunJournal(role) as journal, pytest.raises(JournalStoreError, match="MAINTAIN") as caught:
        journal.vacuum()
    assert caught.value.kind == "store_denied"
    with RunJournal(recorded) as journal:
        journal.vacuum()
