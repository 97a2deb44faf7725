"""One run as lines of JSON, out of one journal and into another.

The first line is the run, then come its events and attempts in their order, and the last line counts and digests the
ones before it, so that a cut or altered file is refused whole. Specified in run-journal.md, section 5.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidJournalError, JournalConflictError
from .events import RUNNING, TERMINAL_STATUSES
from .faults import check_run_id, decode_row, unknown_run
from .payload import MAX_DEPTH, DamagedPayload, decode, encode
from .schema import RUN_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from .database import Database
    from .ownership import Ownership

__all__ = ["LEVELS", "export_run", "import_run", "sealed"]

_FORMAT: Final = "turn-journal-run"
_VERSION: Final = 1
#: A line nests what it carries.
LEVELS: Final = MAX_DEPTH + 2
_RUN: Final = ("run_id", "agent", "task", "status", "outcome", "checkpoint_id", "created_at", "updated_at")
_ATTEMPT: Final = ("seq", "attempt", "kind", "state", "error_type", "message", "next_seq", "created_at")


def export_run(database: Database, run_id: str) -> Iterator[str]:
    """The lines of one run, read at one moment."""
    with database.snapshot() as cursor:
        run = cursor.execute(
            f"SELECT {', '.join(_RUN)}, CAST(metadata AS BLOB) FROM runs WHERE run_id = ?",  # noqa: S608
            (run_id,),
        ).fetchone()
        if run is None:
            raise unknown_run(run_id)
        drive = cursor.execute("SELECT fence, resumes FROM run_drives WHERE run_id = ?", (run_id,)).fetchone()
        line = cursor.execute("SELECT parent_run_id, upto FROM run_lineage WHERE run_id = ?", (run_id,)).fetchone()
        events = cursor.execute(
            "SELECT seq, kind, CAST(payload AS BLOB), created_at FROM journal WHERE run_id = ? ORDER BY seq, rowid",
            (run_id,),
        ).fetchall()
        attempts = cursor.execute(
            f"SELECT {', '.join(_ATTEMPT)} FROM step_attempts WHERE run_id = ? ORDER BY seq, attempt",  # noqa: S608
            (run_id,),
        ).fetchall()
    fence, resumes = drive or (0, 0)
    head = {
        "format": _FORMAT,
        "version": _VERSION,
        "run": dict(zip(_RUN, run[:-1], strict=True)) | {"metadata": decode(run[-1] or b"{}")},
        "fence": fence,
        "resumes": resumes,
        "parent": None if line is None else {"run_id": line[0], "upto": line[1]},
    }
    return sealed(_lines(run_id, head, events, attempts))


def _lines(run_id: str, head: dict[str, Any], events: list[Any], attempts: list[Any]) -> Iterator[bytes]:
    yield encode(head, LEVELS)
    for seq, kind, stored, created_at in events:
        payload = decode_row(run_id, seq, kind, stored)
        yield encode({"event": {"seq": seq, "kind": kind, "payload": payload, "created_at": created_at}}, LEVELS)
    for attempt in attempts:
        yield encode({"attempt": dict(zip(_ATTEMPT, attempt, strict=True))})


def sealed(lines: Iterator[bytes]) -> Iterator[str]:
    """The lines of one export, and the last one, which vouches for them."""
    count, digest = 0, hashlib.sha256()
    for line in lines:
        count += 1
        digest.update(line + b"\n")
        yield line.decode()
    yield encode({"lines": count, "sha256": digest.hexdigest()}).decode()


def _whole(lines: Iterable[str]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The first line and those between it and the last one, which vouches for them."""
    texts = [text for line in lines if (text := line.strip("\r\n"))]
    try:
        found = [decode(text.encode()) for text in texts]
    except (DamagedPayload, UnicodeError) as error:
        raise _refused(f"a line is not JSON ({error})") from None
    if len(found) < 2 or not all(isinstance(line, dict) for line in found):
        raise _refused("it is cut short")
    head, *rows, last = found
    digest = hashlib.sha256("".join(f"{text}\n" for text in texts[:-1]).encode()).hexdigest()
    if last != {"lines": len(texts) - 1, "sha256": digest}:
        raise _refused("it is cut short or was altered: its last line does not vouch for the others")
    if head.get("format") != _FORMAT or head.get("version") != _VERSION:
        raise _refused(f"it is {head.get('format')!r}, version {head.get('version')!r}, not version {_VERSION}")
    return head, rows


def _refused(fault: str) -> InvalidJournalError:
    return InvalidJournalError(
        f"These lines are no whole export of a run: {fault}. Nothing was imported.", kind="invalid_request"
    )


def import_run(database: Database, lines: Iterable[str], overwrite: bool, ownership: Ownership) -> str:
    """Stores the run of one export; every line is checked before the first one is stored."""
    head, rows = _whole(lines)
    try:
        run = head["run"]
        run_id = run["run_id"]
        check_run_id(run_id)
        if run["status"] != RUNNING and run["status"] not in TERMINAL_STATUSES:
            raise _refused(f"the status {run['status']!r} is unknown")
        parent = head["parent"]
        run_row = [run[name] for name in _RUN]
        metadata = encode(run["metadata"]).decode()
        events = [
            (run_id, event["seq"], event["kind"], encode(event["payload"]).decode(), event["created_at"])
            for event in (row["event"] for row in rows if "event" in row)
        ]
        attempts = [
            (run_id, *(attempt[name] for name in _ATTEMPT))
            for attempt in (row["attempt"] for row in rows if "attempt" in row)
        ]
        drive = (run_id, head["fence"], head["resumes"])
        lineage = None if parent is None else (run_id, parent["run_id"], parent["upto"])
    except (KeyError, TypeError) as error:
        raise _refused(f"a field is missing or of another type ({error})") from None
    with database.transaction() as cursor:
        known = "SELECT 1 FROM runs WHERE run_id = ?1 UNION ALL SELECT 1 FROM journal WHERE run_id = ?1 LIMIT 1"
        if cursor.execute(known, (run_id,)).fetchone() is not None:
            if not overwrite:
                raise JournalConflictError(
                    f"Run {run_id!r} is here already; nothing was imported. Pass overwrite=True to replace it.",
                    details={"run_id": run_id},
                )
            ownership.refuse_driven(cursor, run_id)
            for table in RUN_TABLES:
                cursor.execute(f"DELETE FROM {table} WHERE run_id = ?", (run_id,))  # noqa: S608
        columns = ", ".join(_RUN)
        cursor.execute(
            f"INSERT INTO runs ({columns}, metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            (*run_row, metadata),
        )
        cursor.executemany(
            "INSERT INTO journal (run_id, seq, kind, payload, created_at) VALUES (?, ?, ?, ?, ?)", events
        )
        cursor.executemany(
            f"INSERT INTO step_attempts (run_id, {', '.join(_ATTEMPT)}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",  # noqa: S608
            attempts,
        )
        if head["fence"]:
            cursor.execute(
                "INSERT INTO run_drives (run_id, owner, holder, fence, resumes, suspended) "
                "VALUES (?, NULL, NULL, ?, ?, 0)",
                drive,
            )
        if lineage is not None:
            cursor.execute("INSERT INTO run_lineage (run_id, parent_run_id, upto) VALUES (?, ?, ?)", lineage)
    return str(run_id)
