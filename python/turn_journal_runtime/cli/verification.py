"""The commands that check a store and put it right: verify, heads, repair."""

from __future__ import annotations

import json
from pathlib import Path  # noqa: TC003 - typer reads it
from typing import TYPE_CHECKING, Annotated, TypeAlias

import typer

from ..errors import JournalNotFoundError
from ..journal import turn_journal_path
from ..store import repair_turn_journal, turn_heads, verify_turn_journal
from .invocation import (
    FormatOption,
    RootOption,
    TurnArgument,
    YesOption,
    address_of,
    answering,
    must_be_stored,
    root_of,
    short_name,
    shown_root,
)
from .output import Block, Format, Line, Points, Report, Rows, counted
from .progress import count_turns, each, progress

if TYPE_CHECKING:
    from ..documents import TurnHead

GoalOption: TypeAlias = Annotated[str | None, typer.Option("--goal", "-g", help="Only the turns of this goal.")]


@answering
def verify(
    turn: Annotated[str | None, typer.Argument(help="One turn: GOAL/KEY or a path. Default: all.", metavar="TURN")] = (
        None
    ),
    root: RootOption = None,
    goal: GoalOption = None,
    heads: Annotated[
        Path | None,
        typer.Option("--heads", help="Compare with heads that were exported earlier: shows also a cut end."),
    ] = None,
    format: FormatOption = Format.table,
) -> Report:
    """Check that every history is as it was written, and every journal its history's last.

    A history cannot show that its own end was cut together with its journal; `--heads` can. Exits with 4 on damage.
    """
    turn_key: str | None = None
    if turn is not None:
        where = address_of(turn, root)
        runtime_root, goal, turn_key = where.root, where.goal_id, where.turn_key
        must_be_stored(where)
    else:
        runtime_root = root_of(root)
    total = 1 if turn_key is not None else count_turns(runtime_root, goal)
    expected = None if heads is None else _read_heads(heads)
    with progress("Verifying", total if expected is None else len(expected)) as bar:
        report = verify_turn_journal(
            runtime_root, goal_id=goal, turn_key=turn_key, heads=expected, progress=lambda _: bar.advance()
        )
    if report["turns"] == 0:
        raise _nothing("turns", runtime_root, goal, "so nothing was proven")
    seen = f"{counted(report['turns'], 'turn')} with {counted(report['transitions'], 'transition')}"
    if report["ok"]:
        blocks: list[Block] = [Line(f"As written: {seen}.", "bold green")]
    else:
        rows = [
            (
                short_name(one["goal_id"], one["turn_key"]),
                one["problem"]["kind"],
                str(one["problem"]["line"] or ""),
                one["problem"]["message"],
            )
            for one in report["problems"]
            if one["problem"] is not None
        ]
        blocks = [
            Line(f"Damaged: {len(rows)} of {seen}.", "bold red"),
            Rows(("turn", "problem", "line", "what"), rows),
            Line("Nothing was changed. `turn-journal repair TURN` says what could be put right.", "dim"),
        ]
    if report["unfinished"]:
        cut_off = f"Cut off: {counted(report['unfinished'], 'writer')}; the next one completes or drops what was left."
        blocks.append(Line(cut_off, "dim"))
    return Report(report, blocks, code=0 if report["ok"] else 4)


def _nothing(what: str, root: str, goal: str | None, so: str) -> JournalNotFoundError:
    of_goal = "" if goal is None else f" of goal {goal}"
    return JournalNotFoundError(f"There are no {what}{of_goal} in {shown_root(root)}, {so}.", kind="turns_not_found")


def _read_heads(path: Path) -> list[TurnHead]:
    try:
        heads = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise JournalNotFoundError(f"There is no file {path}.", kind="heads_not_found") from None
    except (OSError, ValueError) as error:
        raise typer.BadParameter(
            f"{path} is no export of `turn-journal heads`: {error}", param_hint="--heads"
        ) from None
    if not isinstance(heads, list) or not all(map(_is_head, heads)):
        raise typer.BadParameter(f"{path} is no export of `turn-journal heads -f json`.", param_hint="--heads")
    found: list[TurnHead] = heads
    return found


def _is_head(head: object) -> bool:
    from typing import get_type_hints

    from ..documents import TurnHead

    members = get_type_hints(TurnHead)
    return isinstance(head, dict) and all(isinstance(head.get(name), kind) for name, kind in members.items())


@answering
def heads(root: RootOption = None, goal: GoalOption = None, format: FormatOption = Format.json) -> Report:
    """Export the end of every history, to keep elsewhere for `verify --heads`. Damaged turns have none."""
    runtime_root = root_of(root)
    found = each("Reading", turn_heads(runtime_root, goal_id=goal), count_turns(runtime_root, goal))
    if not found:
        raise _nothing("whole turns", runtime_root, goal, "so there is nothing to export")
    rows = [(short_name(head["goal_id"], head["turn_key"]), str(head["count"]), head["digest"]) for head in found]
    return Report(found, [Rows(("turn", "transitions", "digest"), rows)])


@answering
def repair(
    turn: TurnArgument, root: RootOption = None, yes: YesOption = False, format: FormatOption = Format.table
) -> Report:
    """Say what would be cut to make a damaged turn usable; with --yes, cut it. What is cut is kept beside it."""
    where = address_of(turn, root)
    must_be_stored(where)
    path = turn_journal_path(where.root, goal_id=where.goal_id, turn_key=where.turn_key)
    answer = repair_turn_journal(path)
    if yes and answer["plan"] is not None:
        answer = repair_turn_journal(path, plan=answer["plan"])
    blocks: list[Block] = [Line(answer["message"], "bold")]
    if answer["cut_bytes"]:
        stay, go = counted(answer["kept"], "transition"), counted(answer["cut_bytes"], "byte")
        blocks.append(Points([f"whole: {stay}; cut, and kept beside the history: {go}"]))
    if answer["done"]:
        blocks.append(Line("Done: the turn is whole again.", "bold green"))
    if answer["plan"] is not None and not answer["done"]:
        blocks.append(Line("Nothing was changed. Add --yes to do it.", "dim"))
    return Report(answer, blocks)
