"""What a chat has accepted: durable, in order, once."""

from __future__ import annotations

import os
import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from turn_journal_runtime.chat import SessionNotFoundError, SessionStore
from turn_journal_runtime.errors import InvalidJournalError, JournalConflictError, JournalCorruptError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SessionStore]:
    made = SessionStore(tmp_path / "chat" / "chat.db")
    made.open_session("s", work_dir="/work", objective="talk")
    yield made
    made.close()


def test_messages_stand_in_the_order_of_their_acceptance(store: SessionStore) -> None:
    for number in range(5):
        assert store.accept("s", f"message {number}", f"id-{number}").seq == number + 1
    first = store.begin_next("s")
    assert first is not None
    assert (first.seq, first.status, first.is_over) == (1, "running", False)
    again = store.begin_next("s")
    assert again == first, "the next one begins when this one is over"
    store.end("s", 1, status="answered", result={"n": 1}, reason=None)
    assert store.end("s", 1, status="failed", result=None, reason="late").status == "answered"
    second = store.begin_next("s")
    assert second is not None
    assert second.seq == 2
    assert [turn.status for turn in store.turns("s")] == ["answered", "running", "queued", "queued", "queued"]


def test_the_same_client_turn_id_is_the_same_turn(store: SessionStore) -> None:
    accepted = store.accept("s", "hello", "id")
    assert store.accept("s", "hello", "id") == accepted
    with pytest.raises(JournalConflictError):
        store.accept("s", "good-bye", "id")
    assert len(store.turns("s")) == 1
    store.open_session("other", work_dir="/", objective="")
    assert store.accept("other", "good-bye", "id").seq == 1


def test_an_unknown_and_a_closed_session_are_key_errors_that_read_well(store: SessionStore) -> None:
    store.accept("s", "hello", "id")
    store.close_session("s")
    store.close_session("s")
    for name, state in (("s", "closed"), ("unknown", "unknown")):
        with pytest.raises(KeyError, match=f"The session is {state}") as raised:
            store.session(name)
        assert raised.value.details["session_id"] == name  # type: ignore[attr-defined]
        with pytest.raises(SessionNotFoundError):
            store.accept(name, "hello", "id-2")
        with pytest.raises(SessionNotFoundError):
            store.place_session(name, work_dir="/", objective="")
    assert store.turn("s", "id").status == "cancelled"
    with pytest.raises(SessionNotFoundError):
        store.close_session("unknown")
    with pytest.raises(SessionNotFoundError):
        store.open_session("s", work_dir="/", objective="")


@pytest.mark.parametrize(
    ("message", "client_turn_id"), [("\ud800", "id"), ("hello", ""), ("hello", " "), (1, "id"), ("hello", None)]
)
def test_what_is_no_message_is_refused(store: SessionStore, message: object, client_turn_id: object) -> None:
    with pytest.raises(InvalidJournalError):
        store.accept("s", message, client_turn_id)  # type: ignore[arg-type]
    assert store.turns("s") == []


def test_many_threads_and_stores_share_one_file(store: SessionStore) -> None:
    def accept(number: int) -> None:
        own = SessionStore(store.path) if number % 2 else store
        for message in range(10):
            own.accept("s", "hello", f"{number}-{message}")
        if own is not store:
            own.close()

    threads = [threading.Thread(target=accept, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [turn.seq for turn in store.turns("s")] == list(range(1, 81))
    assert store.unfinished_sessions() == ["s"]


def test_a_closed_session_is_not_unfinished_whatever_still_runs_in_it(store: SessionStore) -> None:
    store.accept("s", "hello", "id")
    assert store.begin_next("s") is not None
    store.close_session("s")
    assert [turn.status for turn in store.turns("s")] == ["running"]
    assert store.unfinished_sessions() == []


def test_a_forked_child_opens_its_own_connection(store: SessionStore) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            store.accept("s", "from the child", "child")
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert store.accept("s", "from the parent", "parent").seq == 2


def test_settings_and_modes_are_what_they_are_said_to_be(store: SessionStore) -> None:
    with store._transaction() as cursor:
        assert cursor.execute("PRAGMA journal_mode").fetchone() == ("wal",)
        assert cursor.execute("PRAGMA synchronous").fetchone() == (2,)
        assert cursor.execute("PRAGMA foreign_keys").fetchone() == (1,)
    assert store.path.stat().st_mode & 0o777 == 0o600
    assert store.path.parent.stat().st_mode & 0o777 == 0o700


def test_foreign_newer_and_broken_files_are_refused_and_left_alone(tmp_path: Path) -> None:
    foreign, newer, broken = (tmp_path / name for name in ("foreign.db", "newer.db", "broken.db"))
    with sqlite3.connect(foreign) as database:
        database.execute("CREATE TABLE theirs (x)")
    SessionStore(newer).close()
    with sqlite3.connect(newer) as database:
        database.execute("PRAGMA user_version = 99")
    broken.write_bytes(b"no database at all, " * 100)
    for path in (foreign, newer, broken):
        before = (
            sqlite3.connect(path).execute("PRAGMA user_version").fetchone() if path != broken else path.read_bytes()
        )
        with pytest.raises(JournalCorruptError):
            SessionStore(path)
        after = sqlite3.connect(path).execute("PRAGMA user_version").fetchone() if path != broken else path.read_bytes()
        assert before == after


def test_what_was_said_in_a_session_is_deleted_and_its_id_stays_taken(store: SessionStore) -> None:
    store.open_session("other", work_dir="/", objective="the other objective")
    for session_id in ("s", "other"):
        store.accept(session_id, f"the message of {session_id} " * 200, "id")
        store.begin_next(session_id)
        store.end(session_id, 1, status="answered", result={"text": f"the answer to {session_id}"}, reason=None)
    with pytest.raises(JournalConflictError, match="close it first"):
        store.delete_session("s")
    store.close_session("s")
    store.delete_session("s")
    store.delete_session("s")
    assert store.turns("s") == []
    with pytest.raises(SessionNotFoundError, match="closed"):
        store.open_session("s", work_dir="/", objective="another")
    with pytest.raises(SessionNotFoundError):
        store.delete_session("unknown")
    left = b"".join(file.read_bytes() for file in store.path.parent.glob("chat.db*"))
    assert (b"of s " in left, b"answer to s" in left, b"/work" in left) == (False, False, False)
    assert (b"of other " in left, store.turns("other")[0].result) == (True, {"text": "the answer to other"})
