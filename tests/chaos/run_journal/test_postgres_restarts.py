"""The server dies under its writers again and again: nothing acknowledged is lost, and nothing stands twice."""

from __future__ import annotations

import collections
import os
import random
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.chaos.run_journal.test_many_writers import WRITERS
from tests.python.run_journal.databases import Schema

from turn_journal_runtime.run_journal import (
    KIND_ITERATION,
    DurableRun,
    JournalEvent,
    RunJournal,
    current_idempotency_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.chaos.run_journal.conftest import Start
    from tests.conftest import PostgresServer

SOAK = os.environ.get("TURN_JOURNAL_SOAK") == "1"
RESTARTS = 20 if SOAK else 3

pytestmark = [pytest.mark.chaos, pytest.mark.process, pytest.mark.timeout(900)]


@pytest.fixture
def schema(postgres_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Schema:
    monkeypatch.setenv("TURN_JOURNAL_HOME", str(tmp_path / "host"))
    monkeypatch.setenv("TURN_JOURNAL_POSTGRES_TIMEOUT", "60")
    return Schema.made(postgres_url)


def work_through_restarts(
    threads: list[threading.Thread],
    end: threading.Event,
    server: PostgresServer,
    have_worked: Callable[[], bool],
) -> None:
    """Lets threads work while the server dies again and again; they are to end at the event."""
    for thread in threads:
        thread.start()
    for _ in range(RESTARTS):
        time.sleep(random.uniform(0.1, 0.6))
        server.restart()
    time.sleep(0.5)
    late = time.monotonic() + 60
    while not have_worked() and time.monotonic() < late:
        time.sleep(0.01)
    end.set()
    for thread in threads:
        thread.join()


def test_writers_of_many_threads_outlive_the_death_of_the_server(
    schema: Schema, postgres_server: PostgresServer
) -> None:
    stop = threading.Event()
    acknowledged: dict[str, int] = {}
    failures: list[BaseException] = []

    def append(run_id: str) -> None:
        """Every event has its number in it; of two that came late the older would be seen by that."""
        try:
            number = 0
            while not stop.is_set():
                event = JournalEvent(run_id, number % 7, KIND_ITERATION, {"index": number})
                if number % 5:
                    journal.append(event)
                else:
                    journal.append_many([event, JournalEvent(run_id, 7 + number, KIND_ITERATION, {"index": number})])
                acknowledged[run_id] = number
                number += 1
        except BaseException as error:
            failures.append(error)

    def fork(run_id: str) -> None:
        try:
            journal.open_run(run_id)
            number = 0
            while not stop.is_set():
                journal.fork(run_id, f"{run_id}.{number}", upto=0)
                number += 1
            acknowledged[run_id] = number
        except BaseException as error:
            failures.append(error)

    with RunJournal(schema) as journal:
        threads = [threading.Thread(target=append, args=(f"append {n}",)) for n in range(6)]
        threads += [threading.Thread(target=fork, args=(f"fork {n}",)) for n in range(3)]

        def have_worked() -> bool:
            return failures != [] or all(acknowledged.get(f"append {n}", 0) > 0 for n in range(6))

        work_through_restarts(threads, stop, postgres_server, have_worked)
        assert failures == []
        for run_id, last in acknowledged.items():
            if run_id.startswith("append"):
                index = journal.replay_index(run_id)
                for number in range(max(0, last - 6), last + 1):
                    assert index[number % 7, KIND_ITERATION]["index"] == number
                assert {seq - 7 for seq, _ in index if seq >= 7} == set(range(0, last + 1, 5))
            else:
                forks = [one for one in journal.interrupted_runs() if one.startswith(f"{run_id}.")]
                assert len(forks) == last
        assert min(acknowledged[f"append {n}"] for n in range(6)) > 0


def test_an_agents_tools_run_once_though_the_server_dies(schema: Schema, postgres_server: PostgresServer) -> None:
    ran: collections.Counter[str | None] = collections.Counter()
    done = threading.Event()
    failures: list[BaseException] = []

    def drive(run_id: str) -> None:
        try:
            with RunJournal(schema) as journal, DurableRun(journal, run_id) as run:
                number = 0
                while not done.is_set():
                    found = run.tool("t", {"n": number}, lambda n: ran.update([current_idempotency_key()]) or n)
                    assert found == number
                    number += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=drive, args=(f"r{n}",)) for n in range(4)]
    work_through_restarts(threads, done, postgres_server, lambda: failures != [] or len(ran) > 0)
    assert failures == []
    assert set(ran.values()) == {1}
    with RunJournal(schema) as journal:
        results = 0
        for number in range(4):
            run = journal.run_meta(f"r{number}")
            assert run is not None
            assert run.status == "done"
            assert journal.uncertain(f"r{number}") == []
            results += sum(event.kind == "tool_result" for event in journal.events(f"r{number}"))
        assert results == len(ran)


def test_many_processes_and_threads_append_to_one_database(schema: Schema, start: Start) -> None:
    count = 1000 if SOAK else 60
    writers = [start(WRITERS, schema, "threads", 8, count)]
    writers += [start(WRITERS, schema, f"process{number}", 1, count) for number in range(4)]
    for writer in writers:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
    for writer in writers:
        assert writer.stdin is not None
        writer.stdin.write("go\n")
        writer.stdin.flush()
    assert [writer.communicate(timeout=800)[0] for writer in writers] == ["ok\n"] * 5
    with RunJournal(schema) as journal:
        runs = journal.interrupted_runs()
        assert len(runs) == 12
        for run_id in runs:
            assert [event.seq for event in journal.events(run_id)] == list(range(count))
            assert len(journal.events(f"{run_id}, driven")) == 2 * (count // 4)
