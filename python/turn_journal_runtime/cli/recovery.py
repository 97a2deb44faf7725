"""`turn-journal recover`: what would happen to the turns that stopped, and driving them on."""

from __future__ import annotations

import importlib
import os
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from ..errors import TurnJournalError
from ..journal import load_turn_journal, turn_journal_path
from ..store import recoverable_turn_journals
from .explanations import explain_reason
from .invocation import FormatOption, RootOption, YesOption, address_of, answering, root_of, short_key
from .output import Block, Format, Line, Report, Rows, err

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..documents import RecoverableJournal, RecoveryDecision

#: Where a package registers the function that drives its turns.
ENTRY_POINTS: Final = "turn_journal_runtime.recover"


@dataclass(frozen=True, slots=True)
class DueTurn:
    """What an entry point is handed: a turn that may go on.

    Args:
        runtime_root: Where it is stored.
        goal_id: Its goal.
        agent_id: Its owner.
        turn_key: Its key.
        todo_id: Its work; None for a plain turn.
        turn_instance_id: Which of several turns for that work it is, when it says so.
        resume_from: The phase it goes on from.
        retry_failed: Whether it failed and is to be tried again.
    """

    runtime_root: str
    goal_id: str
    agent_id: str
    turn_key: str
    todo_id: str | None
    turn_instance_id: str | None
    resume_from: str
    retry_failed: bool


@answering
def recover(
    turn: Annotated[str | None, typer.Argument(help="One turn: GOAL/KEY or a path. Default: all.", metavar="TURN")] = (
        None
    ),
    root: RootOption = None,
    goal: Annotated[str | None, typer.Option("--goal", "-g", help="Only the turns of this goal.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Failed turns, too.")] = False,
    entry: Annotated[
        str | None,
        typer.Option(
            "--entry",
            "-e",
            help="What drives a turn: `module:function`, or the name of an entry point. Default: the only one "
            f"registered under {ENTRY_POINTS}.",
        ),
    ] = None,
    yes: YesOption = False,
    format: FormatOption = Format.table,
) -> Report:
    """Say what would happen to the turns that stopped; with --yes, drive them on.

    The entry point is called with one `DueTurn` after the other. One that fails does not stop the others; the command
    then exits with 1.
    """
    if turn is not None:
        where = address_of(turn, root)
        runtime_root, goal = where.root, where.goal_id
    else:
        where, runtime_root = None, root_of(root)
    found = [
        one
        for one in recoverable_turn_journals(runtime_root, goal_id=goal, retry_failed=retry_failed)
        if where is None or one["turn_key"] == where.turn_key
    ]
    drive = _entry(entry) if yes and any(one["damage"] is None for one in found) else None
    rows: list[tuple[str, ...]] = []
    document: list[dict[str, Any]] = []
    for one in found:
        name = f"{one['goal_id']}/{short_key(one['turn_key'])}"
        decision, damage, outcome = one["recovery_decision"], one["damage"], None
        if damage is not None or decision is None:
            rows.append((name, "damaged", damage["message"] if damage else "", ""))
        else:
            if drive is not None:
                outcome = _driven(drive, _due(runtime_root, one, decision, retry_failed))
            rows.append((name, one["status"] or "", _plan(decision), outcome or ""))
        document.append({**one, "outcome": outcome})
    if not found:
        nothing = (
            "Nothing to recover." if where is None else "That turn may not go on; `turn-journal inspect` says why."
        )
        return Report([], [Line(nothing, "green" if where is None else "yellow")], code=0 if where is None else 1)
    columns = ("turn", "status", "what would happen" if not yes else "what was to happen", "outcome")
    blocks: list[Block] = [Rows(columns if yes else columns[:3], rows if yes else [row[:3] for row in rows])]
    if not yes:
        blocks.append(Line("Nothing was changed. Add --yes and an entry point to drive them on.", "dim"))
    failed = any((one["outcome"] or "").startswith("failed") for one in document)
    return Report(document, blocks, code=1 if failed else 0)


def _plan(decision: RecoveryDecision) -> str:
    host = "; the host is started again" if decision["reinvoke_host"] else ""
    return f"goes on from {decision['resume_from']}{host}: {explain_reason(decision['reason']).why}"


def _driven(drive: Callable[[DueTurn], Any], turn: DueTurn) -> str:
    with err().status(f"Driving {turn.goal_id}/{short_key(turn.turn_key)} …"):
        try:
            result = drive(turn)
        except TurnJournalError as error:
            return f"failed: {error.kind}: {error.message}"
        except Exception as error:  # the entry point is the caller's, and the other turns are to go on
            return f"failed: {type(error).__name__}: {error}"
    return str(getattr(result, "status", "driven"))


def _due(runtime_root: str, one: RecoverableJournal, decision: RecoveryDecision, retry_failed: bool) -> DueTurn:
    journal = load_turn_journal(turn_journal_path(runtime_root, goal_id=one["goal_id"], turn_key=one["turn_key"]))
    return DueTurn(
        runtime_root=runtime_root,
        goal_id=one["goal_id"],
        agent_id=one["agent_id"] or "",
        turn_key=one["turn_key"],
        todo_id=_text_at(journal, "plan", "turn_envelope", "action", "selected_todo", "todo_id"),
        turn_instance_id=_text_at(journal, "plan", "transaction", "turn_instance_id"),
        resume_from=decision["resume_from"] or "",
        retry_failed=retry_failed and one["status"] == "failed",
    )


def _text_at(value: Any, *path: str) -> str | None:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def _entry(named: str | None) -> Callable[[DueTurn], Any]:
    """The function that was named.

    Raises:
        typer.BadParameter: There is none, or more than one that could be meant.
    """
    if named is not None and ":" in named:
        module, _, name = named.partition(":")
        sys.path.insert(0, os.getcwd())
        try:
            found = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError) as error:
            raise typer.BadParameter(f"{named} cannot be loaded: {error}", param_hint="--entry") from None
    else:
        registered = [point for point in entry_points(group=ENTRY_POINTS) if named in (None, point.name)]
        if len(registered) != 1:
            names = ", ".join(point.name for point in registered) or "none"
            raise typer.BadParameter(
                f"Say what drives the turns: --entry module:function. Registered under {ENTRY_POINTS}: {names}.",
                param_hint="--entry",
            )
        found = registered[0].load()
    if not callable(found):
        raise typer.BadParameter(f"{named} is not callable.", param_hint="--entry")
    drive: Callable[[DueTurn], Any] = found
    return drive
