"""`turn-journal history`: how a turn came to where it is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..errors import JournalNotFoundError
from ..journal import load_turn_journal, turn_journal_path
from ..store import turn_history
from .invocation import FormatOption, RootOption, TurnArgument, address_of, answering
from .output import STATUS_STYLES, Block, Format, Heading, Json, Line, Points, Report, Rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from ..documents import TurnTransition
    from .documents import Change, TransitionChanges

_ABSENT: Final = object()
_PRUNED: Final = ["not known: what was before was pruned"]
_SHOWN_CHARACTERS: Final = 120


@answering
def history(
    turn: TurnArgument,
    root: RootOption = None,
    at: Annotated[int | None, typer.Option("--at", help="Show the journal as it was after this transition.")] = None,
    diff: Annotated[bool, typer.Option("--diff", "-d", help="Show what each transition changed.")] = False,
    format: FormatOption = Format.table,
) -> Report:
    """The transitions of a turn as a timeline; the journal as it was; what changed."""
    where = address_of(turn, root)
    path = turn_journal_path(where.root, goal_id=where.goal_id, turn_key=where.turn_key)
    if at is not None and not diff:
        journal = load_turn_journal(path, at=at)
        return Report(journal, [Json(journal)])
    transitions = turn_history(path)
    if not transitions:
        # Of a turn that another program wrote there is a journal, and no history yet.
        load_turn_journal(path)
        return Report([], [Line("This turn has no history: another program wrote it. It begins with the next write.")])
    if diff:
        shown = [one for one in transitions if at is None or one["seq"] == at]
        if not shown and at is not None:
            # A journal that was never there has not changed: the store says so.
            load_turn_journal(path, at=at)
        return _differences(path, shown, str(where))
    rows = [
        (
            str(one["seq"]),
            one["at"][:19].replace("T", " "),
            one["status"],
            ", ".join(one["completed_phases"]) or "none",
            one["operation_id"].removeprefix("sha256:")[:12],
            ", ".join(mark for mark in ("signed", "adopted", "pruned") if one.get(mark)),
        )
        for one in transitions
    ]
    columns = ("seq", "at", "status", "completed", "operation", "marks")
    return Report(transitions, [Rows(columns, rows, STATUS_STYLES)])


def was_pruned(path: Path | str) -> bool:
    """Whether a turn was pruned, so that nobody can take it up again."""
    transitions = turn_history(path)
    return bool(transitions) and transitions[-1]["pruned"]


def _differences(path: Path | str, transitions: Sequence[TurnTransition], turn: str) -> Report:
    document: list[TransitionChanges] = []
    blocks: list[Block] = []
    before = _journal_before(path, transitions[0]["seq"])
    for one in transitions:
        after = load_turn_journal(path, at=one["seq"])
        changes = None if before is None else list(changes_between(before, after))
        document.append({"seq": one["seq"], "at": one["at"], "changes": changes})
        shown = _PRUNED if changes is None else [_shown(change) for change in changes] or ["nothing"]
        blocks += [
            Heading(f"{turn} · {one['seq']} · {one['at'][:19].replace('T', ' ')} · {one['status']}"),
            Points(shown),
        ]
        before = after
    return Report(document, blocks)


def _journal_before(path: Path | str, seq: int) -> dict[str, Any] | None:
    """The journal that a transition changed; None when it was pruned."""
    try:
        return load_turn_journal(path, at=seq - 1) if seq > 1 else {}
    except JournalNotFoundError:
        return None


def changes_between(before: Any, after: Any, path: str = "") -> list[Change]:
    """What differs between two JSON values: `path`, and `before` and `after` where there is one."""
    if isinstance(before, dict) and isinstance(after, dict):
        return [
            change
            for key in dict.fromkeys([*before, *after])
            for change in changes_between(
                before.get(key, _ABSENT), after.get(key, _ABSENT), f"{path}.{key}" if path else str(key)
            )
        ]
    if isinstance(before, list) and isinstance(after, list):
        longer = max(len(before), len(after))
        return [
            change
            for index in range(longer)
            for change in changes_between(
                before[index] if index < len(before) else _ABSENT,
                after[index] if index < len(after) else _ABSENT,
                f"{path}[{index}]",
            )
        ]
    if type(before) is type(after) and before == after:
        return []
    change: Change = {"path": path}
    if before is not _ABSENT:
        change["before"] = before
    if after is not _ABSENT:
        change["after"] = after
    return [change]


def _shown(change: Change) -> str:
    if "before" not in change:
        return f"+ {change['path']}: {_short(change['after'])}"
    if "after" not in change:
        return f"- {change['path']}: {_short(change['before'])}"
    return f"~ {change['path']}: {_short(change['before'])} → {_short(change['after'])}"


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
