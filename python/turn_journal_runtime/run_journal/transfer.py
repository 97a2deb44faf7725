"""One run as lines of JSON, out of one journal and into another.

The first line is the run, then come its events and attempts in their order, and the last line counts and digests the
ones before it, so that a cut or altered file is refused whole. A run need not fit into memory either way. Specified in
run-journal.md, section 5.
"""

from __future__ import annotations

import hashlib
import marshal
import tempfile
from collections import deque
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any, Final, get_args

from ..errors import InvalidJournalError, JournalConflictError, JournalStoreError
from .batch import MAX_SEQ
from .events import KINDS, RUNNING, TERMINAL_STATUSES
from .faults import check_run_id, decode_row, unknown_run
from .payload import MAX_DEPTH, DamagedPayload, decode, encode
from .record import rows_in_parts
from .retention import delete_rows
from .runs import read_metadata, said_of
from .steps import State, is_taken, kept_failure

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from .database import Database, Row
    from .ownership import Ownership

__all__ = ["LEVELS", "Received", "export_run", "put", "received", "sealed"]

_FORMAT: Final = "turn-journal-run"
_VERSION: Final = 1
#: A line nests what it carries.
LEVELS: Final = MAX_DEPTH + 2
#: How much of a run that is on its way is kept in memory; all of it waits in a file when it is more.
_IN_MEMORY: Final = 2**23

_TEXT: Final = (str,)
_TEXT_OR_NONE: Final = (str, type(None))
_NUMBER: Final = (int,)
_NUMBER_OR_NONE: Final = (int, type(None))
_TIME: Final = (float, int)
_RUN: Final = {
    "run_id": _TEXT,
    "agent": _TEXT,
    "task": _TEXT,
    "status": _TEXT,
    "outcome": _TEXT_OR_NONE,
    "checkpoint_id": _TEXT_OR_NONE,
    "created_at": _TIME,
    "updated_at": _TIME,
}
_EVENT: Final = {"seq": _NUMBER, "kind": _TEXT, "payload": (dict,), "created_at": _TIME}
_ATTEMPT: Final = {
    "seq": _NUMBER,
    "attempt": _NUMBER,
    "kind": _TEXT,
    "state": _TEXT,
    "error_type": _TEXT_OR_NONE,
    "message": _TEXT_OR_NONE,
    "next_seq": _NUMBER_OR_NONE,
    "created_at": _TIME,
}
_HEAD: Final = {
    "run": (dict,),
    "fence": _NUMBER,
    "resumes": _NUMBER,
    "parent": (dict, type(None)),
}
_PARENT: Final = {"run_id": _TEXT, "upto": _NUMBER}
_STATES: Final = frozenset(get_args(State))


class _Waiting(tempfile.SpooledTemporaryFile[bytes]):
    """What is on its way."""

    def __init__(self) -> None:
        super().__init__(_IN_MEMORY)

    def __del__(self) -> None:
        self.close()  # lines that nobody reads to their end are no mistake


def _no_room(run_id: str, error: OSError) -> JournalStoreError:
    folder = tempfile.gettempdir()
    return JournalStoreError(
        f"Run {run_id!r} cannot wait in the folder for temporary files, {folder}: {error.strerror}. Nothing was "
        "changed; make room there, or name another folder with TMPDIR.",
        details={"path": folder, "run_id": run_id},
    )


# Out of a journal


def export_run(database: Database, run_id: str) -> Iterator[str]:
    """The lines of one run, read at one moment."""
    with ExitStack() as stack:
        lines = stack.enter_context(_Waiting())
        try:
            with database.snapshot() as cursor:
                for line in sealed(_lines(cursor, run_id)):
                    lines.write(f"{line}\n".encode())
            lines.seek(0)
        except OSError as error:
            raise _no_room(run_id, error) from error
        stack.pop_all()
    return _read(lines)


def _read(lines: IO[bytes]) -> Iterator[str]:
    with lines:
        for line in lines:
            yield line[:-1].decode()


def _lines(cursor: sqlite3.Cursor, run_id: str) -> Iterator[bytes]:
    run = cursor.execute(
        f"SELECT {', '.join(_RUN)}, CAST(metadata AS BLOB) FROM runs WHERE run_id = ?",  # noqa: S608
        (run_id,),
    ).fetchone()
    if run is None:
        raise unknown_run(run_id)
    drive = cursor.execute("SELECT fence, resumes FROM run_drives WHERE run_id = ?", (run_id,)).fetchone()
    line = cursor.execute("SELECT parent_run_id, upto FROM run_lineage WHERE run_id = ?", (run_id,)).fetchone()
    fence, resumes = drive or (0, 0)
    head = {
        "format": _FORMAT,
        "version": _VERSION,
        "run": dict(zip(_RUN, run[:-1], strict=True)) | {"metadata": read_metadata(run_id, run[-1])},
        "fence": fence,
        "resumes": resumes,
        "parent": None if line is None else {"run_id": line[0], "upto": line[1]},
    }
    yield encode(head, LEVELS)
    for seq, kind, stored, created_at in rows_in_parts(cursor, run_id):
        payload = decode_row(run_id, seq, kind, stored)
        yield encode({"event": {"seq": seq, "kind": kind, "payload": payload, "created_at": created_at}}, LEVELS)
    attempts = cursor.execute(
        f"SELECT {', '.join(_ATTEMPT)} FROM step_attempts WHERE run_id = ? ORDER BY seq, attempt",  # noqa: S608
        (run_id,),
    )
    for attempt in attempts.fetchall():
        yield encode({"attempt": dict(zip(_ATTEMPT, attempt, strict=True))})


def sealed(lines: Iterator[bytes]) -> Iterator[str]:
    """The lines of one export, and the last one, which vouches for them."""
    count, digest = 0, hashlib.sha256()
    for line in lines:
        count += 1
        digest.update(line + b"\n")
        yield line.decode()
    yield encode({"lines": count, "sha256": digest.hexdigest()}).decode()


# Into a journal


class _Rows:
    """Rows that wait to be stored; they can be read more than once."""

    def __init__(self) -> None:
        self._file = _Waiting()

    def add(self, row: Row) -> None:
        marshal.dump(row, self._file)

    def __iter__(self) -> Iterator[Row]:
        end = self._file.seek(0, 2)
        self._file.seek(0)
        while self._file.tell() < end:
            yield marshal.load(self._file)  # noqa: S302 - what `add` wrote

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class Received:
    """A run that has arrived whole.

    Args:
        run_id: The run.
        run: Its own row.
        drive: The row of its drives; None when it was never driven.
        parent: The row of what it was forked from; None when it was not.
        events: The rows of its events.
        attempts: The rows of its attempts.
    """

    run_id: str
    run: Row
    drive: Row | None
    parent: Row | None
    events: _Rows
    attempts: _Rows


@contextmanager
def received(lines: Iterable[str], redacted: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> Iterator[Received]:
    """The run of one export, without what may not be kept, for as long as it takes to store it.

    Raises:
        InvalidJournalError: The lines are no whole export.
        JournalStoreError: They are one of a newer version, or there is no room for it.
    """
    events, attempts = _Rows(), _Rows()
    with ExitStack() as stack:
        stack.callback(events.close)
        stack.callback(attempts.close)
        yield _checked(lines, redacted, events, attempts)


def _checked(
    lines: Iterable[str],
    redacted: Callable[[Mapping[str, Any]], Mapping[str, Any]],
    events: _Rows,
    attempts: _Rows,
) -> Received:
    whole = _whole(lines)
    head = next(whole)
    _check_version(head, whole)
    run, fence, resumes, parent = _taken(head, _HEAD)
    run_id, agent, task, status, *rest = _taken(run, _RUN)
    (metadata,) = _taken(run, {"metadata": (dict,)})
    check_run_id(run_id)
    if status != RUNNING and status not in TERMINAL_STATUSES:
        raise _refused(f"the status {status!r} is unknown")
    agent, task, stored = said_of(redacted({"agent": agent, "task": task, "metadata": metadata}))
    for row in whole:
        try:
            if row.keys() == {"event"}:
                seq, kind, payload, at = _taken(row["event"], _EVENT)
                if kind not in KINDS:
                    raise _refused(f"the event kind {kind!r:.80} at step {seq} is unknown")
                events.add((run_id, seq, kind, encode(redacted(payload)).decode(), at))
            elif row.keys() == {"attempt"}:
                attempts.add((run_id, *_attempt(_taken(row["attempt"], _ATTEMPT), redacted)))
            else:
                raise _refused("a line is neither an event nor an attempt")
        except OSError as error:
            raise _no_room(run_id, error) from error
    return Received(
        run_id,
        (run_id, agent, task, status, *rest, stored.decode()),
        (run_id, fence, resumes) if fence else None,
        None if parent is None else (run_id, *_taken(parent, _PARENT)),
        events,
        attempts,
    )


def _attempt(row: list[Any], redacted: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> list[Any]:
    """An attempt; what its failure says is what a payload may say."""
    *before, error_type, message, next_seq, at = row
    seq, _, kind, state = before
    if kind not in KINDS or state not in _STATES:
        raise _refused(f"the attempt {state!r:.80} at {kind!r:.80} at step {seq} is unknown")
    if error_type is not None:
        shown = redacted({"error_type": error_type, "message": message})
        error_type, message = kept_failure(shown)
    return [*before, error_type, message, next_seq, at]


def _whole(lines: Iterable[str]) -> Iterator[dict[str, Any]]:
    """The lines but for the last one. That one vouches for the others, so that they count when all of them are read."""
    count, digest = 0, hashlib.sha256()
    last: dict[str, Any] | None = None
    before = b""
    for line in lines:
        text = line.strip("\r\n")
        if not text:
            continue
        try:
            stored = text.encode()
            found = decode(stored)
        except (DamagedPayload, UnicodeError) as error:
            raise _refused(f"a line is not JSON ({error})") from None
        if not isinstance(found, dict):
            raise _refused("a line is no object")
        if last is not None:
            yield last
            count += 1
            digest.update(before + b"\n")
        last, before = found, stored
    if last is None or not count:
        raise _refused("it is cut short")
    if last != {"lines": count, "sha256": digest.hexdigest()}:
        raise _refused("it is cut short or was altered: its last line does not vouch for the others")


def _check_version(head: dict[str, Any], rest: Iterator[dict[str, Any]]) -> None:
    version = head.get("version")
    if head.get("format") != _FORMAT or type(version) is not int or version < _VERSION:
        raise _refused(f"it is {head.get('format')!r}, version {version!r}, not {_FORMAT!r}, version {_VERSION}")
    if version > _VERSION:
        for _ in rest:
            pass  # one that was altered is no newer one
        raise JournalStoreError(
            f"This export is of version {version}; this package reads up to {_VERSION}. Nothing was imported: upgrade "
            "turn-journal-runtime.",
            kind="store_unsupported",
            details={"version": version, "supported": _VERSION},
        )


def _taken(document: Any, types: Mapping[str, tuple[type, ...]]) -> list[Any]:
    """The fields of a line, each of a type that it may have."""
    if not isinstance(document, dict):
        raise _refused("a line holds no object")
    for name, allowed in types.items():
        if name not in document or type(document[name]) not in allowed:
            raise _refused(f"the field {name} is missing or of another type")
        value = document[name]
        # What counts, counts from 0; a time may lie before its epoch.
        if type(value) is int and not (-MAX_SEQ if allowed is _TIME else 0) <= value <= MAX_SEQ:
            raise _refused(f"the field {name} is {value!r:.80}, and no such number")
    return [document[name] for name in types]


def _refused(fault: str) -> InvalidJournalError:
    return InvalidJournalError(
        f"These lines are no whole export of a run: {fault}. Nothing was imported; export the run again.",
        kind="invalid_request",
    )


def put(
    database: Database, run: Received, overwrite: bool, ownership: Ownership, *, instead_of: str | None = None
) -> bool:
    """Stores a run that has arrived, all or nothing; whether it replaced what was there.

    Where `instead_of` is the last line of an export, it replaces what was exported then, and nothing else.
    """
    run_id = run.run_id
    with database.transaction() as cursor:
        is_there = is_taken(cursor, run_id)
        if is_there:
            if not overwrite:
                raise JournalConflictError(
                    f"Run {run_id!r} is here already; nothing was imported. Pass overwrite=True to replace it.",
                    details={"run_id": run_id},
                )
            if instead_of is not None and deque(sealed(_lines(cursor, run_id)), 1).pop() != instead_of:
                raise JournalConflictError(
                    f"Run {run_id!r} has changed since it was compared; nothing was imported. Compare it again.",
                    details={"run_id": run_id},
                )
            ownership.refuse_driven(cursor, run_id)
            delete_rows(cursor, run_id)
        columns = ", ".join(_RUN)
        cursor.execute(
            f"INSERT INTO runs ({columns}, metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            run.run,
        )
        cursor.executemany(
            "INSERT INTO journal (run_id, seq, kind, payload, created_at) VALUES (?, ?, ?, ?, ?)", run.events
        )
        cursor.executemany(
            f"INSERT INTO step_attempts (run_id, {', '.join(_ATTEMPT)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            run.attempts,
        )
        if run.drive is not None:
            cursor.execute(
                "INSERT INTO run_drives (run_id, owner, holder, fence, resumes, suspended) "
                "VALUES (?, NULL, NULL, ?, ?, 0)",
                run.drive,
            )
        if run.parent is not None:
            cursor.execute("INSERT INTO run_lineage (run_id, parent_run_id, upto) VALUES (?, ?, ?)", run.parent)
    return is_there
