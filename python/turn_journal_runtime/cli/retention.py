"""The commands that keep a store small: prune for turns, run prune for runs, run vacuum for their file."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from ..address import is_database
from ..store import prune_turn_journals
from .invocation import FormatOption, RootOption, YesOption, answering, root_of, short_name
from .listing import no_turns
from .output import Block, Format, Heading, Line, Points, Report, Rows, counted, err
from .place import DatabaseOption, open_journal
from .runs import short_run
from .verification import GoalOption  # noqa: TC001 - typer reads it

if TYPE_CHECKING:
    from ..documents import PrunedTurn
    from .documents import PruneOutcome
    from .run_documents import PrunedRuns, Vacuumed

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}
_AGES: Final = "90s, 15m, 12h, 30d, 8w"


def _seconds(age: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", age)
    if match is None:
        raise typer.BadParameter("Give a number with s, m, h, d or w: 30d.", param_hint="--older-than")
    return float(match[1]) * _UNITS[match[2]]


@answering
def prune(
    older_than: Annotated[str, typer.Option("--older-than", help=f"How long ago a turn was written last: {_AGES}.")],
    keep: Annotated[int, typer.Option("--keep", help="The latest turns of each goal stay whole.", min=0)] = 0,
    root: RootOption = None,
    goal: GoalOption = None,
    given_up: Annotated[
        bool, typer.Option("--given-up", help="Also turns that were given up: nobody can take them up again then.")
    ] = False,
    yes: YesOption = False,
    format: FormatOption = Format.table,
) -> Report:
    """Remove the bulk and the runs of old turns that are over. Their tombstones stay, and inspect as before.

    A turn that failed stays as long as it may be retried; once `turn-journal give-up` has ended it, --given-up prunes
    it. Runs of turns that were pruned before go as well. Those stay that are driven, or have an effect whose outcome is
    not known: settle it, and prune again.
    """
    age, runtime_root = _seconds(older_than), root_of(root)
    with err().status("Pruning …" if yes else "Looking …"):
        turns = prune_turn_journals(
            runtime_root, older_than=age, keep=keep, goal_id=goal, given_up=given_up, dry_run=not yes
        )
    left = [turn for turn in turns if turn["damage"]]
    pruned = [turn for turn in turns if turn["operation_id"]]
    blocks: list[Block] = [_said(counted(len(pruned), "turn"), sum(len(turn["runs"]) for turn in turns), yes)]
    nothing = None if turns else no_turns(runtime_root, goal)
    if nothing is not None:
        blocks = [Line(nothing)]
    rows = [(_named(turn), str(len(turn["runs"]) or "")) for turn in turns if turn["operation_id"] or turn["runs"]]
    if rows and not yes:
        blocks.append(Rows(("turn", "runs"), rows))
    if left:
        blocks += [
            Heading("Left alone"),
            Points([f"{_named(turn)}: {turn['damage']['message']}" for turn in left if turn["damage"]]),
        ]
    runs_left = [run_id for turn in turns for run_id in turn["runs_left"]]
    if runs_left:
        blocks += [
            Heading("Runs that stay: they are driven, or `turn-journal run show` names an outcome to be settled first"),
            Points([short_run(run_id) for run_id in runs_left]),
        ]
    document: PruneOutcome = {"ok": not left, "done": yes, "turns": turns}
    return Report(document, blocks, code=4 if left else 0)


def _named(turn: PrunedTurn) -> str:
    return short_name(turn["goal_id"], turn["turn_key"])


def _said(what: str, runs: int, yes: bool) -> Line:
    also = f", {counted(runs, 'run')}" if runs else ""
    if yes:
        return Line(f"Pruned: {what}{also}.", "bold green")
    return Line(f"To be pruned: {what}{also}. Nothing was changed; add --yes to do it.", "bold")


@answering
def prune_runs(
    older_than: Annotated[str, typer.Option("--older-than", help=f"How long ago a run ended: {_AGES}.")],
    keep: Annotated[int, typer.Option("--keep", help="The latest runs that ended stay.", min=0)] = 0,
    db: DatabaseOption = None,
    root: RootOption = None,
    yes: YesOption = False,
    format: FormatOption = Format.table,
) -> Report:
    """Remove old runs that are over, with all that is stored of them.

    A run stays that goes on, that has an effect whose outcome is not known, or that an open tool call is to go on with.
    Runs of turns stay, too: `turn-journal prune` removes them when their turns are over.
    """
    age = _seconds(older_than)
    with open_journal(db, root) as journal, err().status("Pruning …" if yes else "Looking …"):
        gone = journal.prune(age, keep=keep, dry_run=not yes)
    blocks: list[Block] = [_said(counted(len(gone), "run"), 0, yes)]
    if gone and not yes:
        blocks.append(Rows(("run",), [(run_id,) for run_id in gone]))
    document: PrunedRuns = {"ok": True, "done": yes, "runs": gone}
    return Report(document, blocks)


@answering
def vacuum(db: DatabaseOption = None, root: RootOption = None, format: FormatOption = Format.table) -> Report:
    """Write a run journal's file anew, without what was deleted: it gets smaller, and no trace is left in it.

    Whoever writes to it has to wait meanwhile. A database is asked for its own VACUUM, which makes space free for other
    rows and gives none back.
    """
    with open_journal(db, root) as journal:
        before = _size(journal.path)
        with err().status("Writing the file anew …"):
            journal.vacuum()
        after = _size(journal.path)
    document: Vacuumed = {"ok": True, "bytes_before": before, "bytes_after": after}
    if before is None or after is None:
        return Report(document, [Line("The space of what was deleted is free for other rows.", "green")])
    return Report(document, [Line(f"The file has {after:,} bytes; it had {before:,}.", "green")])


def _size(path: str) -> int | None:
    """Of the file and its log."""
    if is_database(path):
        return None
    return sum(file.stat().st_size for file in (Path(path), Path(f"{path}-wal")) if file.exists())
