"""One PostgreSQL database, shared by threads, processes and hosts.

It answers as `run_journal.database.Database` does, so that what is written for the file runs here too. A statement by
itself is one round trip and is sent again when its connection is lost: every one that comes here may arrive twice. A
transaction carries a key, by which it is found out whether a commit whose answer was lost was made. Specified in
run-journal.md, sections 1 and 4.
"""

from __future__ import annotations

import os
import random
import secrets
import threading
import time
import weakref
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from ...errors import InvalidJournalError, JournalStoreError, StoreUnavailableError
from ...settings import Settings, current
from ..database import check_durability
from ..schema import RUN_TABLES
from .faults import Outcome, is_lost, is_passing, typed_error
from .migration import refuse_other_version
from .session import OPTIONS, Cursor, Session, connect, milliseconds, prepare, translated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from ..connection import Durability
    from .address import Address

__all__ = ["Database"]

T = TypeVar("T")
Row = tuple[Any, ...]

_SNAPSHOT: Final = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
#: What a transaction locks is free again when its host is cut off in the middle of it: one that is silent for as long
#: as a driver may be counts as dead here, too.
_BEGIN: Final = (
    "BEGIN ISOLATION LEVEL {}; SET LOCAL idle_in_transaction_session_timeout = {}; "
    "INSERT INTO turn_journal_run_commits (key, committed) VALUES ({}, true)"
)
#: Also of processes that died with keys noted. Only who has written a key asks for it: who may read alone can open.
_FORGET: Final = "DELETE FROM run_commits WHERE key = ANY(?) OR noted_at < now() - interval '1 day'"
#: A transaction that still runs holds its key; this waits for its end, and keeps one that comes later from committing.
_ASK: Final = "INSERT INTO run_commits (key, committed) VALUES (?, false) ON CONFLICT (key) DO NOTHING"
_DUPLICATE: Final = "23505"
#: Where the server warns from, in whatever language.
_NOT_PERMITTED: Final = "vacuum_is_permitted_for_relation"
_TRIES: Final = 3
#: How many keys of ended transactions may lie about.
_KEYS: Final = 64
#: Rows that are on their way at once.
_CHUNK: Final = 500

#: Pools that a child got with its memory. Nothing of them is ever closed there: it would end the parent's sessions.
_of_parents: list[ConnectionPool[Session]] = []


class Database:
    """A pool of connections; a forked child gets one of its own.

    Args:
        address: Where it is.
        durability: Either; it is checked and makes no difference.

    Raises:
        StoreUnavailableError: The server cannot be reached.
        JournalStoreError: It refuses, or its tables are not of this version (`store_schema_missing`,
            `store_schema_older`, `store_schema_newer`).
    """

    #: A commit is on the server's disk.
    durability: Durability = "power"

    def __init__(self, address: Address, durability: Durability) -> None:
        check_durability(durability)
        self._address = address
        self.path: str = address.shown
        self._settings = current()
        self._closed = False
        self._keys: list[int] = []
        # A pool says why it has no connection only in a log; a first one of its own says it in an error.
        try:
            with connect(address) as session:
                refuse_other_version(session, address.shown)
        except psycopg.Error as error:
            raise typed_error(error, self.path) from error
        self._start()

    def _start(self) -> None:
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._mine = threading.local()
        self._pool: ConnectionPool[Session] | None = None

    @property
    def connections(self) -> int:
        """The most connections, and so the most writes at one time."""
        return self._settings.postgres_max_connections

    @property
    def settings(self) -> dict[str, Any]:
        """What decides on durability, as the server reports it."""
        names = ("server_version", "synchronous_commit", "fsync")
        row = self.read("SELECT " + ", ".join(f"current_setting('{name}')" for name in names))[0]
        return dict(zip(names, row, strict=True))

    # Statements

    def write(self, sql: str, parameters: Iterable[Any]) -> int:
        """Runs one statement, a transaction of its own; the number of rows it changed. It may arrive twice."""
        statement = translated(sql)
        return self._persist(lambda session: session.execute(statement, tuple(parameters)).rowcount)

    def read(self, sql: str, parameters: Iterable[Any] = ()) -> list[Row]:
        """All rows of a query, or those that a statement returns, which may arrive twice."""
        statement = translated(sql)
        is_query = sql.startswith("SELECT")
        return self._persist(lambda session: session.execute(statement, tuple(parameters)).fetchall(), is_query)

    def collect(self, sql: str, parameters: Iterable[Any], gather: Callable[[Iterator[Row]], T]) -> T:
        """What becomes of a query's rows; they come in parts while the server still reads."""

        def work(session: Session) -> T:
            with session.cursor() as cursor:
                size = _CHUNK if psycopg.capabilities.has_stream_chunked() else 1
                return gather(cursor.stream(translated(sql), tuple(parameters), size=size))

        return self._persist(work, is_query=True)

    def try_to_write(self, sql: str, parameters: Iterable[Any]) -> None:
        """Runs one statement if that can be done now, for what time does too."""
        with suppress(psycopg.Error), self._lent(seconds=1) as session:
            session.execute(translated(sql), tuple(parameters))

    def _persist(self, work: Callable[[Session], T], is_query: bool = False) -> T:
        """Does something until it is done, or has failed for good, or the time for it is over."""
        pause = _Pause(self._settings.postgres_timeout)
        outcome: Outcome = "not_applied"
        while True:
            try:
                with self._lent() as session:
                    return work(session)
            except psycopg.Error as error:
                if is_lost(error) and not isinstance(error, PoolTimeout) and not is_query:
                    outcome = "unknown"
                # What is left of a transaction is begun again by whoever began it.
                within = self._held() is not None
                if within or not is_passing(error) or pause.is_over:
                    raise typed_error(error, self.path, "not_applied" if within else outcome) from error
                self._look_after(error)
            except (UnicodeError, OverflowError) as error:
                raise typed_error(error, self.path) from error
            pause.wait()

    # Transactions

    def transaction(self) -> AbstractContextManager[Cursor]:
        """All or none. It sees one state, and fails as not applied when another one was in the way: see `repeat`."""
        return self._committed("REPEATABLE READ")

    def locking(self) -> AbstractContextManager[Cursor]:
        """As `transaction`, but every statement sees what was committed before it, for one that begins with a lock."""
        return self._committed("READ COMMITTED")

    def snapshot(self) -> AbstractContextManager[Cursor]:
        """Several queries that see one state."""
        return self._within(_SNAPSHOT)

    @contextmanager
    def _committed(self, level: str) -> Iterator[Cursor]:
        key = secrets.randbits(63)
        try:
            with self._within(_BEGIN.format(level, milliseconds(self._settings.run_lease), key)) as cursor:
                yield cursor
        except _CommitLost as lost:
            try:
                has_committed = self._has_committed(key)
            except StoreUnavailableError as away:
                raise typed_error(lost.error, self.path, "unknown") from away
            if not has_committed:
                raise typed_error(lost.error, self.path) from lost.error
        with self._lock:
            self._keys.append(key)
            if len(self._keys) < _KEYS:
                return
            keys, self._keys = self._keys, []
        # What is left of it is swept some day; the transaction was made.
        self.try_to_write(_FORGET, (keys,))

    @contextmanager
    def _within(self, begin: str) -> Iterator[Cursor]:
        held = self._held()
        if held is not None and begin == _SNAPSHOT:
            yield Cursor(held)
            return
        with self._lent_for_transaction() as session:
            try:
                try:
                    session.execute(begin.encode())
                    self._mine.session = session
                    yield Cursor(session)
                finally:
                    self._mine.session = None
            except BaseException as error:
                with suppress(psycopg.Error):
                    session.execute(b"ROLLBACK")
                if isinstance(error, psycopg.Error):
                    self._look_after(error)
                    raise typed_error(error, self.path) from error
                if isinstance(error, (UnicodeError, OverflowError)):
                    raise typed_error(error, self.path) from error
                raise
            try:
                session.execute(b"ROLLBACK" if begin == _SNAPSHOT else b"COMMIT")
            except psycopg.Error as error:
                self._look_after(error)
                if begin == _SNAPSHOT:
                    return  # all was read
                if is_lost(error):
                    raise _CommitLost(error) from error
                raise typed_error(error, self.path) from error

    def _has_committed(self, key: int) -> bool:
        self.write(_ASK, (key,))
        return bool(self.read("SELECT committed FROM run_commits WHERE key = ?", (key,))[0][0])

    def repeat(self, work: Callable[[], T]) -> T:
        """Does something with transactions in it again, as long as it was not applied and may be in a moment."""
        pause = _Pause(self._settings.postgres_timeout)
        duplicates = 0
        while True:
            try:
                return work()
            except StoreUnavailableError as error:
                # Another one that stored the same key at the same time is seen when it is tried again.
                duplicates += error.details.get("code") == _DUPLICATE
                if duplicates > _TRIES:
                    raise InvalidJournalError(
                        "The values cannot be stored: two of them have one key.", kind="invalid_request"
                    ) from error
                if error.kind == "store_outcome_unknown" or pause.is_over:
                    raise
            pause.wait()

    # Space

    def empty_log(self) -> None:
        """The server's log is the server's."""

    def vacuum(self) -> None:
        """Has the server make the space of deleted rows free for others.

        Raises:
            JournalStoreError: `store_denied`: this user may not. The server only warns of that.
        """
        notices: list[str | None] = []

        def note(notice: psycopg.errors.Diagnostic) -> None:
            notices.append(notice.source_function)

        def work(session: Session) -> None:
            session.add_notice_handler(note)
            try:
                session.execute(translated(f"VACUUM {', '.join(RUN_TABLES)}"))
            finally:
                session.remove_notice_handler(note)

        self._persist(work)
        if _NOT_PERMITTED in notices:
            raise JournalStoreError(
                f"{self.path} lets only the owner of the tables, and who has MAINTAIN on them, run VACUUM. Nothing was "
                "changed; the server frees the space by itself in a while.",
                kind="store_denied",
                details={"database": self.path},
            )

    # Connections

    def _held(self) -> Session | None:
        """The connection of the transaction that this thread is in."""
        return getattr(self._mine, "session", None) if self._process == os.getpid() else None

    @contextmanager
    def _lent(self, seconds: float | None = None) -> Iterator[Session]:
        held = self._held()
        if held is not None:
            yield held
            return
        pool = self._opened()
        session = pool.getconn(seconds or self._settings.postgres_timeout)
        try:
            yield session
        finally:
            pool.putconn(session)

    @contextmanager
    def _lent_for_transaction(self) -> Iterator[Session]:
        with ExitStack() as stack:
            try:
                session = stack.enter_context(self._lent())
            except PoolTimeout as error:
                raise typed_error(error, self.path) from error
            yield session

    def _opened(self) -> ConnectionPool[Session]:
        if self._closed:
            raise JournalStoreError("The journal is closed; open it again.", details={"path": self.path})
        if self._process != os.getpid():
            if self._pool is not None:
                # As a closed one it stops no threads, which are the parent's, when the child ends.
                self._pool._closed = True
                _of_parents.append(self._pool)
            self._start()
        pool = self._pool
        if pool is not None:
            return pool
        with self._lock:
            if self._pool is None:
                self._pool = _pool(self._address, self._settings)
                # A handle that is dropped, and the end of the process, close it too.
                weakref.finalize(self, _end, self._pool, self._process)
            return self._pool

    def _look_after(self, error: psycopg.Error) -> None:
        """When one connection is lost, others are: those are not lent out to be found out one by one."""
        if is_lost(error) and self._pool is not None:
            self._pool.check()

    def close(self) -> None:
        """Closes the connections; again is harmless."""
        if self._closed:
            return
        if self._keys and self._process == os.getpid():
            self.try_to_write(_FORGET, (self._keys,))
        self._closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            _end(pool, self._process)


class _CommitLost(Exception):
    """The connection was lost while the answer to a commit was waited for."""

    def __init__(self, error: psycopg.Error) -> None:
        super().__init__(str(error))
        self.error = error


class _Pause:
    """Longer and longer waits, each cut by chance so that those who wait together part."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds
        self._next = 0.01

    @property
    def is_over(self) -> bool:
        return time.monotonic() + self._next > self._end

    def wait(self) -> None:
        time.sleep(self._next * random.uniform(0.5, 1))  # noqa: S311
        self._next = min(self._next * 2, 1.0)


def _pool(address: Address, settings: Settings) -> ConnectionPool[Session]:
    return ConnectionPool(
        address.conninfo(),
        kwargs=OPTIONS,
        min_size=min(settings.postgres_min_connections, settings.postgres_max_connections),
        max_size=settings.postgres_max_connections,
        configure=partial(prepare, patience=settings.postgres_timeout),
        timeout=settings.postgres_timeout,
        name="turn-journal-runs",
        open=True,
    )


def _end(pool: ConnectionPool[Session], process: int) -> None:
    if process == os.getpid():
        pool.close()
