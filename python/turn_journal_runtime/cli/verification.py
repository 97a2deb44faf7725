"""The commands that check a store and put it right: verify, heads, repair, prune."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager
from pathlib import Path  # noqa: TC003 - typer reads the annotation
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

import typer

from ..bridge import default_client
from ..errors import JournalNotFoundError
from ..journal import turn_journal_path
from .invocation import FormatOption, RootOption, TurnArgument, YesOption, address_of, answering, root_of, short_key
from .output import Block, Format, Heading, Line, Points, Report, Rows, err
from .store import absolute, count_turns, items, pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GoalOption: TypeAlias = Annotated[str | None, typer.Option("--goal", "-g", help="Only the turns of this goal.")]

_HEADS_A_CALL: Final = 1000
_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 7 * 86400}


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
    if turn is not None:
        where = address_of(turn, root)
        params: dict[str, Any] = {
            "runtime_root": absolute(where.root),
            "goal_id": where.goal_id,
            "turn_key": where.turn_key,
        }
        total: int | None = 1
    else:
        params = {"runtime_root": absolute(root_of(root)), "goal_id": goal}
        total = count_turns(params["runtime_root"], goal)
    verified = transitions = 0
    damaged: list[dict[str, Any]] = []
    unsigned = unfinished = 0
    with _progress("Verifying", total if heads is None else None) as advance:
        for page in _verified(params, heads):
            for one in page["turns"]:
                verified += 1
                transitions += one["transitions"]
                unsigned += not one["signed"]
                unfinished += one["unfinished"]
                if not one["ok"]:
                    damaged.append(one)
            advance(len(page["turns"]))
    document = {
        "ok": not damaged,
        "turns": verified,
        "transitions": transitions,
        "unsigned": unsigned,
        "unfinished": unfinished,
        "damaged": damaged,
    }
    counted = f"{verified} turns with {transitions} transitions"
    if not damaged:
        blocks: list[Block] = [Line(f"As written: {counted}.", "bold green")]
    else:
        rows = [
            (
                f"{one['goal_id']}/{short_key(one['turn_key'])}",
                one["problem"]["kind"],
                one["problem"]["file"] + (f", line {one['problem']['line']}" if one["problem"]["line"] else ""),
                one["problem"]["message"],
            )
            for one in damaged
        ]
        blocks = [
            Line(f"Damaged: {len(damaged)} of {counted}.", "bold red"),
            Rows(("turn", "problem", "where", "what"), rows),
            Line("Nothing was changed. `turn-journal repair TURN` says what could be put right.", "dim"),
        ]
    if unfinished:
        blocks.append(Line(f"{unfinished} writers were cut off; the next writer completes or drops that.", "dim"))
    return Report(document, blocks, code=4 if damaged else 0)


def _verified(params: dict[str, Any], heads: Path | None) -> Iterator[dict[str, Any]]:
    if heads is None:
        yield from pages("turn_journal.verify", **params)
        return
    expected = _read_heads(heads)
    for start in range(0, len(expected), _HEADS_A_CALL):
        yield from pages("turn_journal.verify", **params, heads=expected[start : start + _HEADS_A_CALL])


def _read_heads(path: Path) -> list[dict[str, Any]]:
    try:
        heads = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise JournalNotFoundError(f"There is no file {path}.", kind="heads_not_found") from None
    except (OSError, ValueError) as error:
        raise typer.BadParameter(
            f"{path} is no export of `turn-journal heads`: {error}", param_hint="--heads"
        ) from None
    if not isinstance(heads, list):
        raise typer.BadParameter(f"{path} is no export of `turn-journal heads -f json`.", param_hint="--heads")
    return heads


@answering
def heads(root: RootOption = None, goal: GoalOption = None, format: FormatOption = Format.json) -> Report:
    """Export the end of every history, to keep elsewhere for `verify --heads`. Exits with 4 when some are damaged."""
    params = {"runtime_root": absolute(root_of(root)), "goal_id": goal}
    found: list[dict[str, Any]] = []
    damaged: list[dict[str, Any]] = []
    for page in pages("turn_journal.heads", **params):
        found += page["heads"]
        damaged += page["damaged"]
    for one in damaged:
        err().print(f"{one['goal_id']}/{one['turn_key']}: {one['damage']['message']}", markup=False)
    rows = [(f"{head['goal_id']}/{short_key(head['turn_key'])}", str(head["count"]), head["digest"]) for head in found]
    return Report(found, [Rows(("turn", "transitions", "digest"), rows)], code=4 if damaged else 0)


@answering
def repair(
    turn: TurnArgument, root: RootOption = None, yes: YesOption = False, format: FormatOption = Format.table
) -> Report:
    """Say what would be cut to make a damaged turn usable; with --yes, cut it. What is cut is kept beside it."""
    where = address_of(turn, root)
    path = str(turn_journal_path(where.root, goal_id=where.goal_id, turn_key=where.turn_key))
    answer = default_client().call("turn_journal.repair", {"path": path, "plan": None})
    if yes and answer["plan"] is not None:
        answer = default_client().call("turn_journal.repair", {"path": path, "plan": answer["plan"]})
    problem = answer["problem"]
    blocks: list[Block] = [Line(answer["message"], "bold")]
    if problem is not None:
        blocks.append(Points([f"{problem['kind']}: {problem['message']}"]))
    if answer["plan"] is not None and not answer["done"]:
        blocks.append(Line("Nothing was changed. Add --yes to do it.", "dim"))
    return Report(answer, blocks)


@answering
def prune(
    older_than: Annotated[
        str, typer.Option("--older-than", help="How long ago a turn was written last: 90s, 15m, 12h, 30d, 8w.")
    ],
    keep: Annotated[int, typer.Option("--keep", help="The latest turns of each goal stay whole.", min=0)] = 0,
    root: RootOption = None,
    goal: GoalOption = None,
    yes: YesOption = False,
    format: FormatOption = Format.table,
) -> Report:
    """Remove the bulk of old turns that are over. Their tombstones stay, and inspect as before."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", older_than)
    if match is None:
        raise typer.BadParameter("Give a number with s, m, h, d or w: 30d.", param_hint="--older-than")
    params = {
        "runtime_root": absolute(root_of(root)),
        "goal_id": goal,
        "older_than": float(match[1]) * _UNITS[match[2]],
        "keep": keep,
        "dry_run": not yes,
    }
    turns = list(items("turn_journal.prune", "turns", **params))
    left = [turn for turn in turns if turn["damage"]]
    pruned = len(turns) - len(left)
    blocks: list[Block] = [
        Line(f"{pruned} turns were pruned.", "bold green")
        if yes
        else Line(f"{pruned} turns would be pruned. Nothing was changed; add --yes to do it.", "bold")
    ]
    if left:
        blocks += [
            Heading("Left alone"),
            Points([f"{turn['goal_id']}/{turn['turn_key']}: {turn['damage']['message']}" for turn in left]),
        ]
    return Report({"ok": not left, "done": yes, "turns": turns}, blocks, code=4 if left else 0)


@contextmanager
def _progress(what: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """A bar on standard error, when that is a terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    console = err()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=total)
        yield lambda done: bar.advance(task, done)
