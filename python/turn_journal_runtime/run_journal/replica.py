"""One run in two journals: whether the second has it, an earlier state of it, or another one.

Specified in run-journal.md, section 5.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from ..errors import JournalConflictError, RunNotFoundError
from .copying import put_run, read_run
from .events import KIND_APPROVAL
from .payload import encode
from .transfer import LEVELS

if TYPE_CHECKING:
    from .copying import RunDocument
    from .journal import RunJournal

__all__ = ["RunRelation", "compare_run", "copy_run", "driven_runs"]

#: How a run of the target stands to that of the source.
RunRelation: TypeAlias = Literal["same", "missing", "behind", "conflict"]

#: How often a run is compared that others write to at the same time.
_TRIES: Final = 5
#: What does not change in the life of a run.
_FIXED = ("run_id", "agent", "task", "created_at")


def driven_runs(journal: RunJournal) -> frozenset[str]:
    """The runs that a living process drives."""
    return frozenset(journal.interrupted_runs(include_owned=True)) - frozenset(journal.interrupted_runs())


def compare_run(source: RunJournal, target: RunJournal | None, run_id: str) -> RunRelation:
    """How the target's run stands to the source's; nothing is changed.

    Raises:
        JournalCorruptError: A payload is damaged, here or there.
    """
    return _relation(read_run(source, run_id), _found(target, run_id))


def copy_run(source: RunJournal, target: RunJournal, run_id: str) -> Literal["copied", "extended", "same", "conflict"]:
    """Brings the target's run up to the source's, all or nothing, and reads it again.

    A run that is not there is copied, an earlier state of it is replaced, anything else is left as it is.

    Raises:
        JournalCorruptError: A payload is damaged, here or there.
        TurnBusyError: A living process drives the run in the target.
    """
    for _ in range(_TRIES):
        document = read_run(source, run_id)
        found = _found(target, run_id)
        relation = _relation(document, found)
        if relation in ("same", "conflict"):
            return relation
        try:
            put_run(target, document, instead_of=found)
        except JournalConflictError:
            continue  # another copy, or a driver, has written to it since it was compared
        now = read_run(target, run_id)
        if not _equal(now, document) and not _is_earlier(document, now):
            return "conflict"
        return "copied" if relation == "missing" else "extended"
    return "conflict"


def _found(target: RunJournal | None, run_id: str) -> RunDocument | None:
    try:
        return None if target is None else read_run(target, run_id)
    except RunNotFoundError:
        return None


def _relation(document: RunDocument, found: RunDocument | None) -> RunRelation:
    if found is None:
        return "missing"
    if _equal(found, document):
        return "same"
    return "behind" if _is_earlier(found, document) else "conflict"


def _equal(one: Any, other: Any) -> bool:
    return encode(one, LEVELS) == encode(other, LEVELS)


def _is_earlier(before: RunDocument, after: RunDocument) -> bool:
    """Whether all that the one has recorded is in the other, too."""
    return (
        all(before["run"][name] == after["run"][name] for name in _FIXED)
        and before["parent"] == after["parent"]
        and before["run"]["updated_at"] <= after["run"]["updated_at"]
        and before["fence"] <= after["fence"]
        and _holds(before["events"], after["events"], ("seq", "kind"))
        and _holds(before["attempts"], after["attempts"], ("seq", "attempt"))
    )


def _holds(before: list[dict[str, Any]], after: list[dict[str, Any]], key: tuple[str, str]) -> bool:
    later = {(row[key[0]], row[key[1]]): row for row in after}
    return all(_became(row, later.get((row[key[0]], row[key[1]]))) for row in before)


def _became(row: dict[str, Any], later: dict[str, Any] | None) -> bool:
    if later is None:
        return False
    if row.get("kind") == KIND_APPROVAL and "payload" in row and "decision" not in row["payload"]:
        # A question is decided in its place.
        asked = {name: later["payload"].get(name) for name in row["payload"]}
        return _equal(row["payload"], asked)
    if row.get("state") == "failed":
        # So is whether the loop went on after a failure.
        later = later | {"next_seq": row["next_seq"]}
    return _equal(row, later)
