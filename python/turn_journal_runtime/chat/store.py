"""What a chat has accepted and answered, durable: session-recovery.md, section 6.

One SQLite file, several processes. A message is accepted when `accept` returns: it is on the disk, in its place in the
queue, whatever happens next.
"""

from __future__ import annotations

import json
import os
import sqlite3
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, cast

from ..errors import InvalidJournalError, JournalConflictError, JournalCorruptError, JournalNotFoundError
from ..forks import stands_still
from ..wal import BUSY_SECONDS, switch_to_wal

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SCHEMA_VERSION: Final = 1
#: FULL, or 2: an accepted message survives a power cut, too.
_SETTINGS: Final = {"synchronous": 2, "foreign_keys": 1, "secure_delete": 1}
_SCHEMA: Final = (
    "CREATE TABLE sessions (session_id TEXT PRIMARY KEY, status TEXT NOT NULL, work_dir TEXT NOT NULL, "
    "objective TEXT NOT NULL, created_at REAL NOT NULL) STRICT",
    "CREATE TABLE turns (session_id TEXT NOT NULL REFERENCES sessions, seq INTEGER NOT NULL, "
    "client_turn_id TEXT NOT NULL, message TEXT NOT NULL, status TEXT NOT NULL, result TEXT, reason TEXT, "
    "accepted_at REAL NOT NULL, ended_at REAL, "
    "PRIMARY KEY (session_id, seq), UNIQUE (session_id, client_turn_id)) STRICT",
)
_TURN: Final = "session_id, seq, client_turn_id, message, status, result, reason, accepted_at, ended_at"

#: Files are opened one at a time: closing the file that one store makes would drop the locks of another one on it.
_opening: Final = threading.Lock()

ChatTurnStatus: TypeAlias = Literal["queued", "running", "answered", "failed", "cancelled"]


class SessionNotFoundError(JournalNotFoundError, KeyError):
    """No such chat session or turn, or the session is closed."""

    default_kind = "session_not_found"

    def __str__(self) -> str:
        return self.message  # a KeyError would show the message quoted


@dataclass(frozen=True)
class ChatSession:
    """A conversation: where it works and what for."""

    session_id: str
    status: Literal["open", "closed"]
    work_dir: str
    objective: str


@dataclass(frozen=True)
class ChatTurn:
    """One message of a conversation and what became of it.

    `seq` is its place in the conversation, from 1. `result` is the host's result once it is `answered`; `reason` says
    why it is `failed`.
    """

    session_id: str
    seq: int
    client_turn_id: str
    message: str
    status: ChatTurnStatus
    result: dict[str, Any] | None
    reason: str | None
    accepted_at: float
    ended_at: float | None

    @property
    def is_over(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.status in ("answered", "failed", "cancelled")


class SessionStore:
    """The sessions and messages of a chat.

    Args:
        path: The SQLite file; made, with its folder, when it is not there.

    Raises:
        JournalCorruptError: The file is no session store, or of a newer version; it is left as it is.

    Specified in session-recovery.md, section 6.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path: Final = Path(os.path.abspath(path))
        self._lock = threading.RLock()
        self._connection: sqlite3.Connection | None = None
        stands_still(self)
        with self._transaction() as cursor:
            self._prepare(cursor)

    def open_session(self, session_id: str, *, work_dir: str, objective: str) -> ChatSession:
        """Opens a session; one that is open already under that id is returned with these values.

        Raises:
            SessionNotFoundError: It was closed.
        """
        with self._transaction() as cursor:
            cursor.execute(
                "INSERT INTO sessions VALUES (?, 'open', ?, ?, ?) ON CONFLICT (session_id) DO NOTHING",
                (session_id, work_dir, objective, time.time()),
            )
            return self._place(cursor, session_id, work_dir, objective)

    def place_session(self, session_id: str, *, work_dir: str, objective: str) -> ChatSession:
        """Gives an open session another folder and objective.

        Raises:
            SessionNotFoundError: It is unknown or closed.
        """
        with self._transaction() as cursor:
            return self._place(cursor, session_id, work_dir, objective)

    def session(self, session_id: str) -> ChatSession:
        """An open session.

        Raises:
            SessionNotFoundError: It is unknown or closed.
        """
        with self._transaction() as cursor:
            return self._session(cursor, session_id)

    def close_session(self, session_id: str) -> None:
        """Closes a session; messages that wait are cancelled. One that is closed already stays so."""
        with self._transaction() as cursor:
            self._session(cursor, session_id, may_be_closed=True)
            cursor.execute("UPDATE sessions SET status = 'closed' WHERE session_id = ?", (session_id,))
            cursor.execute(
                "UPDATE turns SET status = 'cancelled', ended_at = ? WHERE session_id = ? AND status = 'queued'",
                (time.time(), session_id),
            )

    def delete_session(self, session_id: str) -> None:
        """Removes what was said in a closed session, and what it was for; again is harmless.

        Its id stays taken: a conversation under it would get the answers of the turns that the old one has left. Those
        go with `prune_turn_journals`.

        Raises:
            SessionNotFoundError: It is unknown.
            JournalConflictError: It is open; nothing was changed.
        """
        with self._transaction() as cursor:
            if self._session(cursor, session_id, may_be_closed=True).status == "open":
                raise JournalConflictError(
                    "The session is open: close it first.", kind="session_open", details={"session_id": session_id}
                )
            cursor.execute("DELETE FROM turns WHERE session_id = ?", (session_id,))
            cursor.execute("UPDATE sessions SET work_dir = '', objective = '' WHERE session_id = ?", (session_id,))
        # What was deleted is overwritten, and in the log no more; it is deleted, whatever becomes of this.
        with self._lock, suppress(sqlite3.Error):
            self._open().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def cancel_rest(self, session_id: str) -> None:
        """Cancels what is not over, once nothing works on it any more."""
        with self._transaction() as cursor:
            cursor.execute(
                "UPDATE turns SET status = 'cancelled', ended_at = ? "
                "WHERE session_id = ? AND status IN ('queued', 'running')",
                (time.time(), session_id),
            )

    def accept(self, session_id: str, message: str, client_turn_id: str) -> ChatTurn:
        """Puts a message at the end of the session's queue, once: the same client turn id again is the same turn.

        Raises:
            SessionNotFoundError: The session is unknown or closed.
            JournalConflictError: The client turn id stands for another message.
        """
        for field, text in (("message", message), ("client_turn_id", client_turn_id)):
            if not isinstance(text, str) or (field == "client_turn_id" and not text.strip()):
                raise InvalidJournalError(f"The {field} is a text.", kind="invalid_request", details={"field": field})
            try:
                text.encode()
            except UnicodeEncodeError:
                raise InvalidJournalError(
                    f"The {field} is valid Unicode.", kind="invalid_request", details={"field": field}
                ) from None
        with self._transaction() as cursor:
            self._session(cursor, session_id)
            cursor.execute(
                "INSERT INTO turns (session_id, seq, client_turn_id, message, status, accepted_at) "
                "SELECT ?1, COALESCE(MAX(seq), 0) + 1, ?2, ?3, 'queued', ?4 FROM turns WHERE session_id = ?1 "
                "ON CONFLICT (session_id, client_turn_id) DO NOTHING",
                (session_id, client_turn_id, message, time.time()),
            )
            turn = self._turn(cursor, "client_turn_id = ?", session_id, client_turn_id)
        if turn.message != message:
            raise JournalConflictError(
                "That client_turn_id stands for another message: give each message its own.",
                kind="journal_effect_conflict",
                details={"session_id": session_id, "client_turn_id": client_turn_id},
            )
        return turn

    def turn(self, session_id: str, client_turn_id: str) -> ChatTurn:
        """A message and what became of it.

        Raises:
            SessionNotFoundError: There is no such message.
        """
        with self._transaction() as cursor:
            return self._turn(cursor, "client_turn_id = ?", session_id, client_turn_id)

    def turns(self, session_id: str) -> list[ChatTurn]:
        """All messages of a session, in order."""
        with self._transaction() as cursor:
            rows = cursor.execute(f"SELECT {_TURN} FROM turns WHERE session_id = ? ORDER BY seq", (session_id,))  # noqa: S608
            return [_turn_of(row) for row in rows.fetchall()]

    def begin_next(self, session_id: str) -> ChatTurn | None:
        """The first message that is not over, now `running`; None when there is none."""
        with self._transaction() as cursor:
            row = cursor.execute(
                "SELECT MIN(seq) FROM turns WHERE session_id = ? AND status IN ('queued', 'running')", (session_id,)
            ).fetchone()
            if row[0] is None:
                return None
            cursor.execute("UPDATE turns SET status = 'running' WHERE session_id = ? AND seq = ?", (session_id, row[0]))
            return self._turn(cursor, "seq = ?", session_id, row[0])

    def end(
        self,
        session_id: str,
        seq: int,
        *,
        status: Literal["answered", "failed"],
        result: Mapping[str, Any] | None,
        reason: str | None,
    ) -> ChatTurn:
        """Records what became of a running message; what is recorded already stays."""
        stored = None if result is None else json.dumps(dict(result), ensure_ascii=False)
        with self._transaction() as cursor:
            cursor.execute(
                "UPDATE turns SET status = ?, result = ?, reason = ?, ended_at = ? "
                "WHERE session_id = ? AND seq = ? AND status IN ('queued', 'running')",
                (status, stored, reason, time.time(), session_id, seq),
            )
            return self._turn(cursor, "seq = ?", session_id, seq)

    def unfinished_sessions(self) -> list[str]:
        """Open sessions with messages that are not over, oldest first."""
        with self._transaction() as cursor:
            rows = cursor.execute(
                "SELECT session_id FROM sessions WHERE status = 'open' AND EXISTS (SELECT 1 FROM turns WHERE "
                "turns.session_id = sessions.session_id AND turns.status IN ('queued', 'running')) ORDER BY created_at"
            )
            return [row[0] for row in rows.fetchall()]

    def close(self) -> None:
        """Closes the file; another call opens it again."""
        with self._lock:
            if self._connection is not None:
                self._connection.close()
            self._connection = None

    def _pause(self) -> None:
        self._lock.acquire()
        self.close()

    def _go_on(self) -> None:
        self._lock.release()

    def _place(self, cursor: sqlite3.Cursor, session_id: str, work_dir: str, objective: str) -> ChatSession:
        self._session(cursor, session_id)
        cursor.execute(
            "UPDATE sessions SET work_dir = ?, objective = ? WHERE session_id = ?", (work_dir, objective, session_id)
        )
        return self._session(cursor, session_id)

    def _session(self, cursor: sqlite3.Cursor, session_id: str, *, may_be_closed: bool = False) -> ChatSession:
        row = cursor.execute(
            "SELECT session_id, status, work_dir, objective FROM sessions WHERE session_id = ?", (session_id,)
        ).fetchone()
        if row is None or (row[1] != "open" and not may_be_closed):
            state = "unknown" if row is None else "closed"
            raise SessionNotFoundError(
                f"The session is {state}: open another one.", details={"session_id": session_id, "state": state}
            )
        return ChatSession(*row)

    def _turn(self, cursor: sqlite3.Cursor, condition: str, session_id: str, key: str | int) -> ChatTurn:
        row = cursor.execute(
            f"SELECT {_TURN} FROM turns WHERE session_id = ? AND {condition}",  # noqa: S608 - both are constants
            (session_id, key),
        ).fetchone()
        if row is None:
            raise SessionNotFoundError("There is no such message.", details={"session_id": session_id})
        return _turn_of(row)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Cursor]:
        with self._lock:
            connection = self._open()
            # Immediate: a transaction that reads first and writes then cannot be made to fail in between.
            connection.execute("BEGIN IMMEDIATE")
            cursor = connection.cursor()
            try:
                yield cursor
            except BaseException:
                connection.execute("ROLLBACK")
                raise
            finally:
                cursor.close()
            connection.execute("COMMIT")

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            with _opening:
                self._connection = self._connected()
        return self._connection

    def _connected(self) -> sqlite3.Connection:
        self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):
            os.close(os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
        connection = sqlite3.connect(self.path, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False)
        try:
            switch_to_wal(connection)
            for name, value in _SETTINGS.items():
                connection.execute(f"PRAGMA {name} = {value}")
            for name, wanted in {"journal_mode": "wal", **_SETTINGS}.items():
                (found,) = connection.execute(f"PRAGMA {name}").fetchone()
                if found != wanted:
                    raise JournalCorruptError(
                        f"The session store cannot be used with {name} {wanted}: keep it on a local disk.",
                        details={"setting": name, "found": found},
                    )
        except sqlite3.DatabaseError as error:
            connection.close()
            if isinstance(error, sqlite3.OperationalError):
                raise
            raise JournalCorruptError("The file is no session store; it was left as it is.") from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, cursor: sqlite3.Cursor) -> None:
        (version,) = cursor.execute("PRAGMA user_version").fetchone()
        if version > _SCHEMA_VERSION:
            raise JournalCorruptError(
                f"The session store is of version {version}, and this is {_SCHEMA_VERSION}: upgrade this package.",
                details={"version": version, "supported": _SCHEMA_VERSION},
            )
        if version == 0:
            if cursor.execute("SELECT COUNT(*) FROM sqlite_master").fetchone() != (0,):
                raise JournalCorruptError("The file is another program's database; it was left as it is.")
            for statement in _SCHEMA:
                cursor.execute(statement)
            cursor.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")


def _turn_of(row: tuple[Any, ...]) -> ChatTurn:
    session_id, seq, client_turn_id, message, status, result, reason, accepted_at, ended_at = row
    return ChatTurn(
        session_id,
        seq,
        client_turn_id,
        message,
        cast("ChatTurnStatus", status),
        None if result is None else json.loads(result),
        reason,
        accepted_at,
        ended_at,
    )
