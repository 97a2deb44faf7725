"""Whole runs as documents, out of one journal and into another, whatever holds them.

Specified in run-journal.md, section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from .payload import decode, encode
from .transfer import LEVELS, received, sealed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from contextlib import AbstractContextManager

    from .journal import RunJournal
    from .transfer import Received

__all__ = ["RunDocument", "arrived", "put_arrived", "put_run", "read_run", "run_ids"]

#: `{format, version, run, fence, resumes, parent, events, attempts}`: the same for one run in a file and in a database.
RunDocument: TypeAlias = dict[str, Any]


def run_ids(journal: RunJournal, *, after: str | None = None) -> Iterator[str]:
    """The runs that were opened, by id, so that a copy which was interrupted goes on after its last one.

    Args:
        journal: The journal.
        after: Only ids that come later, by their bytes.
    """
    # Sorted here: databases differ in how they compare text.
    found = sorted(run_id.encode() for (run_id,) in journal._database.read("SELECT run_id FROM runs"))
    return (run_id.decode() for run_id in found if after is None or run_id > after.encode())


def read_run(journal: RunJournal, run_id: str) -> RunDocument:
    """One run as it stands at this moment.

    Raises:
        RunNotFoundError: No such run.
        JournalCorruptError: A payload is damaged; the row is named.
    """
    head, *rows, _ = (decode(line.encode()) for line in journal.export(run_id))
    events = [row["event"] for row in rows if "event" in row]
    attempts = [row["attempt"] for row in rows if "attempt" in row]
    return {**head, "events": events, "attempts": attempts}


def put_run(
    journal: RunJournal, document: RunDocument, *, overwrite: bool = False, instead_of: RunDocument | None = None
) -> str:
    """Stores a run that `read_run` gave, all or nothing; its id is returned.

    Args:
        journal: The journal.
        document: The run.
        overwrite: Whether a run of that id may be replaced.
        instead_of: The only run that may be: what it is now is another one when somebody has written to it since.

    Raises:
        InvalidJournalError: It is no such document.
        JournalConflictError: A run of that id is there and may not be replaced.
        TurnBusyError: A living process drives it.
    """
    if instead_of is None:
        return journal.import_run(_lines(document), overwrite=overwrite)
    (*_, last) = _lines(instead_of)
    with received(_lines(document), journal._redacted) as run:
        journal._put(run, True, instead_of=last)
    return run.run_id


def _lines(document: RunDocument) -> Iterator[str]:
    head = {name: value for name, value in document.items() if name not in ("events", "attempts")}
    rows = [{"event": event} for event in document.get("events", ())]
    rows += [{"attempt": attempt} for attempt in document.get("attempts", ())]
    return sealed(encode(line, LEVELS) for line in (head, *rows))


def arrived(lines: Iterable[str]) -> AbstractContextManager[Received]:
    """A run whose lines are known to be whole before any journal is opened, and so perhaps made, for it.

    Raises:
        InvalidJournalError: They are no whole export.
    """
    return received(lines, lambda payload: payload)


def put_arrived(journal: RunJournal, run: Received, *, overwrite: bool) -> bool:
    """Stores a run that has arrived, as `RunJournal.import_run` does; whether it replaced one, be it a damaged one."""
    return journal._put(run, overwrite)
