"""Copies a root to another one: its turns by the core, the sessions of their hosts and their runs by this module.

Whatever is there already is compared, so that a copy which was interrupted goes on when it is started again.
"""

from __future__ import annotations

import json
import re
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from .address import absolute, is_database
from .bridge import default_client
from .errors import InvalidJournalError, JournalCorruptError, JournalStoreError, TurnBusyError, TurnJournalError
from .flow import Ask, Call, run
from .run_journal import RunJournal
from .run_journal.copying import run_ids
from .run_journal.replica import compare_run, copy_run, driven_runs
from .store_flows import Listing
from .turns.folder_root import FolderRoot, run_journal_path
from .turns.folders import make_folder

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection, Iterator

    from .bridge import RuntimeClient
    from .documents import CopiedItem, CopyCount, CopyReport, TurnDamage
    from .flow import Flow

__all__ = ["copy_flow", "copy_store"]

#: Turns that one call of the core copies at most; it answers earlier when they are large.
_TURNS_A_CALL: Final = 50

_MISSING: Final = "The target does not have it."
_BEHIND: Final = "The target has an earlier state of it."
_CONFLICT: Final = "The target's is another one, or went on by itself. It was left as it is."
_DRIVEN: Final = "It is driven: let its driver end, and copy again."
_UNREADABLE: Final = "It cannot be read."
#: What the id of a run ends in whose work was begun anew.
_ANEW: Final = re.compile(r"\.[0-9]+\Z")


def copy_store(
    source_root: str | os.PathLike[str],
    target_root: str | os.PathLike[str],
    *,
    goal_id: str | None = None,
    verify_only: bool = False,
    progress: Callable[[CopiedItem], None] | None = None,
    client: RuntimeClient | None = None,
    timeout: float | None = None,
) -> CopyReport:
    """Copies turns with their histories, sessions and runs to another root, and sees that the copy is the same.

    Every turn and every run is copied whole or not at all. What the target has already is compared: an earlier state is
    brought up to date, anything else is left as it is and told. So a copy that was interrupted goes on when it is
    started again. Turns and runs that are driven are left, too: end their drivers first.

    Args:
        source_root: A folder, or `postgresql://…`.
        target_root: A folder, or a database that `turn-journal store migrate` has prepared.
        goal_id: Only the turns, sessions and runs of this goal.
        verify_only: Only compare; nothing is changed.
        progress: Called with each turn, session and run when it is done.
        client: The runtime to ask; the default one when None.
        timeout: Seconds to wait for each call; the setting's default when None.

    Raises:
        InvalidJournalError: `invalid_request`, when both are the same root.
        JournalStoreError: A root cannot be used; what was copied stays.
        StoreUnavailableError: The database does not answer; what was copied stays.

    Specified in runtime.md, section 6.
    """
    flow = copy_flow(source_root, target_root, goal_id=goal_id, verify_only=verify_only, progress=progress)
    return run(flow, client or default_client(), timeout)


def copy_flow(
    source_root: str | os.PathLike[str],
    target_root: str | os.PathLike[str],
    *,
    goal_id: str | None,
    verify_only: bool,
    progress: Callable[[CopiedItem], None] | None,
) -> Flow[CopyReport]:
    """The conversation behind `copy_store`."""
    source, target = _end(source_root), _end(target_root)
    if source.address == target.address:
        raise InvalidJournalError("Source and target are the same root.", kind="invalid_request")
    counted = _Counted(verify_only, progress)
    keys: set[str] = set()
    yield from _copy_turns(source, target, goal_id, counted, keys)
    yield from _copy_sessions(source, target, goal_id, counted)
    yield from _copy_runs(source, target, keys if goal_id is not None else None, counted)
    return counted.report


class _Counted:
    """What was done so far."""

    def __init__(self, verify_only: bool, progress: Callable[[CopiedItem], None] | None) -> None:
        self.verify_only = verify_only
        self._progress = progress
        self.report: CopyReport = {
            "ok": True,
            "verify_only": verify_only,
            "turns": _nothing(),
            "sessions": _nothing(),
            "runs": _nothing(),
            "problems": [],
        }

    def note(self, item: CopiedItem) -> None:
        """Counts one item, keeps it when it is a problem, and tells of it."""
        counts = {"turn": self.report["turns"], "session": self.report["sessions"], "run": self.report["runs"]}
        count, outcome = counts[item["kind"]], item["outcome"]
        if item["problem"] is not None:
            count["left"] += 1
            self.report["ok"] = False
            self.report["problems"].append(item)
        elif outcome == "copied" or outcome == "extended" or outcome == "same":
            count[outcome] += 1
        if self._progress is not None:
            self._progress(item)


def _nothing() -> CopyCount:
    return {"copied": 0, "extended": 0, "same": 0, "left": 0}


class _End(Protocol):
    """A root as one end of a copy."""

    address: str

    def lines(self, goal_id: str | None) -> Flow[list[tuple[str, str]]]:
        """The lines of work that have a session: goal and name."""
        ...

    def read(self, goal_id: str, line: str) -> Flow[dict[str, Any] | None]:
        """The session of a line."""
        ...

    def write(self, goal_id: str, line: str, binding: dict[str, Any]) -> Flow[None]:
        """Stores the session of a line."""
        ...

    def runs(self, *, make: bool) -> RunJournal | None:
        """Opens the journal of runs; None where there is none and none is to be made."""
        ...


def _end(root: str | os.PathLike[str]) -> _End:
    return _Database(str(root)) if is_database(root) else _Folder(absolute(root))


class _Folder:
    def __init__(self, folder: str) -> None:
        self.address = folder
        self._bindings = FolderRoot(folder).bindings

    def lines(self, goal_id: str | None) -> Flow[list[tuple[str, str]]]:
        found: list[tuple[str, str]] = yield Ask(self._list, (goal_id,))
        return found

    def _list(self, goal_id: str | None) -> list[tuple[str, str]]:
        goals = Path(self.address, "goals")
        folders = sorted(goals.glob("*/turn-sessions")) if goal_id is None else [goals / goal_id / "turn-sessions"]
        return [(folder.parent.name, file.stem) for folder in folders for file in sorted(folder.glob("*.json"))]

    def read(self, goal_id: str, line: str) -> Flow[dict[str, Any] | None]:
        return self._bindings.read(goal_id, line)

    def write(self, goal_id: str, line: str, binding: dict[str, Any]) -> Flow[None]:
        yield Ask(self._bindings.write, (goal_id, line, binding))

    def runs(self, *, make: bool) -> RunJournal | None:
        file = run_journal_path(self.address)
        if make:
            make_folder(Path(self.address), file.parent)
        elif not file.exists():
            return None
        return RunJournal(file)


class _Database:
    def __init__(self, url: str) -> None:
        self.address = url

    def lines(self, goal_id: str | None) -> Flow[list[tuple[str, str]]]:
        listing = Listing("turn_session.list", "sessions", {"runtime_root": self.address, "goal_id": goal_id})
        found: list[tuple[str, str]] = []
        after = None
        while True:
            page = yield listing.page(after)
            found += [(one["goal_id"], one["line"]) for one in page["sessions"]]
            after = page["next"]
            if after is None:
                return found

    def read(self, goal_id: str, line: str) -> Flow[dict[str, Any] | None]:
        found = yield Call("turn_session.read", self._where(goal_id, line))
        binding: dict[str, Any] | None = found["binding"]
        return binding

    def write(self, goal_id: str, line: str, binding: dict[str, Any]) -> Flow[None]:
        yield Call("turn_session.write", {**self._where(goal_id, line), "binding": binding})

    def _where(self, goal_id: str, line: str) -> dict[str, Any]:
        return {"runtime_root": self.address, "goal_id": goal_id, "line": line}

    def runs(self, *, make: bool) -> RunJournal | None:
        try:
            return RunJournal(self.address)
        except JournalStoreError as error:
            if error.kind == "store_schema_missing" and not make:
                return None
            raise


def _copy_turns(source: _End, target: _End, goal_id: str | None, counted: _Counted, keys: set[str]) -> Flow[None]:
    params = {
        "runtime_root": source.address,
        "target_root": target.address,
        "goal_id": goal_id,
        "verify_only": counted.verify_only,
        "limit": _TURNS_A_CALL,
    }
    listing = Listing("store.copy", "turns", params)
    after = None
    while True:
        page = yield listing.page(after)
        for turn in page["turns"]:
            if goal_id is not None:
                keys.add(turn["turn_key"])
            counted.note(_item("turn", turn["goal_id"], turn["turn_key"], turn["outcome"], turn["problem"]))
        after = page["next"]
        if after is None:
            return


def _copy_sessions(source: _End, target: _End, goal_id: str | None, counted: _Counted) -> Flow[None]:
    for goal, line in (yield from source.lines(goal_id)):
        binding = yield from source.read(goal, line)
        if binding is None:
            counted.note(_item("session", goal, line, "damaged", _problem("journal_corrupt", _UNREADABLE)))
            continue
        found = yield from target.read(goal, line)
        if found is not None:
            same = json.dumps(found, sort_keys=True) == json.dumps(binding, sort_keys=True)
            outcome = "same" if same else "conflict"
        elif counted.verify_only:
            outcome = "missing"
        else:
            yield from target.write(goal, line, binding)
            outcome = "copied" if (yield from target.read(goal, line)) == binding else "conflict"
        counted.note(_item("session", goal, line, outcome, _PROBLEMS.get(outcome)))


def _copy_runs(source: _End, target: _End, keys: Collection[str] | None, counted: _Counted) -> Flow[None]:
    with ExitStack() as stack:
        here: RunJournal | None = yield Ask(partial(source.runs, make=False))
        if here is None:
            return
        stack.enter_context(here)
        names: Iterator[str] = yield Ask(run_ids, (here,))
        driven: frozenset[str] = yield Ask(driven_runs, (here,))
        there: RunJournal | None = None
        is_open = False
        for run_id in names:
            if keys is not None and not _is_of(run_id, keys):
                continue
            if not is_open:
                there = yield Ask(partial(target.runs, make=not counted.verify_only))
                is_open = True
                if there is not None:
                    stack.enter_context(there)
            if run_id in driven and not counted.verify_only:
                counted.note(_item("run", None, run_id, "driven", _PROBLEMS["driven"]))
            else:
                counted.note((yield Ask(_copy_run, (here, there, run_id, counted.verify_only))))


def _copy_run(source: RunJournal, target: RunJournal | None, run_id: str, verify_only: bool) -> CopiedItem:
    try:
        if verify_only or target is None:
            outcome: str = compare_run(source, target, run_id)
        else:
            outcome = copy_run(source, target, run_id)
    except (JournalCorruptError, InvalidJournalError) as error:
        return _item("run", None, run_id, "damaged", _problem_of(error))
    except TurnBusyError as error:
        return _item("run", None, run_id, "driven", _problem_of(error))
    return _item("run", None, run_id, outcome, _PROBLEMS.get(outcome))


def _is_of(run_id: str, keys: Collection[str]) -> bool:
    """Whether a run is that of a turn, one that its work was begun anew with, or one inside of a tool of those."""
    ends = [at for at, character in enumerate(run_id) if character == ":"]
    return any(stem in keys or _ANEW.sub("", stem) in keys for stem in (run_id, *(run_id[:end] for end in ends)))


def _item(kind: Any, goal_id: str | None, name: str, outcome: Any, problem: TurnDamage | None) -> CopiedItem:
    return {"kind": kind, "goal_id": goal_id, "name": name, "outcome": outcome, "problem": problem}


def _problem(kind: str, message: str) -> TurnDamage:
    return {"kind": kind, "message": message}


def _problem_of(error: TurnJournalError) -> TurnDamage:
    return _problem(error.kind, error.message)


_PROBLEMS: Final = {
    "missing": _problem("journal_not_found", _MISSING),
    "behind": _problem("journal_previous_conflict", _BEHIND),
    "conflict": _problem("journal_transition_conflict", _CONFLICT),
    "driven": _problem("turn_busy", _DRIVEN),
}
