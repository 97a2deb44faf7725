"""`turn-journal list`: the turns of a store, once or live."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..store import list_turn_journals
from .invocation import FormatOption, RootOption, answering, root_of, short_name, shown_root
from .output import STATUS_STYLES, Block, Format, Line, Report, Rows, counted, out, renderable_of
from .progress import count_turns, each

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..documents import ListedTurn, TurnDamage

#: Of a screen that is watched: the head of the table, the line of what is left out, the cursor's.
_AROUND_THE_ROWS = 3


@answering
def list_turns(
    root: RootOption = None,
    goal: Annotated[str | None, typer.Option("--goal", "-g", help="Only the turns of this goal.")] = None,
    status: Annotated[str | None, typer.Option("--status", "-s", help="Only turns with this status.")] = None,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Stay and show changes until Ctrl-C.")] = False,
    interval: Annotated[float, typer.Option("--interval", help="Seconds between two looks.", min=0.1)] = 1.0,
    format: FormatOption = Format.table,
) -> Report | None:
    """The turns, and how far each got. Damaged ones are listed as damaged and stop nothing.

    `recover` drives on those that stopped, `give-up` ends one that shall not go on.
    """
    where = root_of(root)
    if watch:
        if format is not Format.table or not out().is_terminal:
            raise typer.BadParameter("It needs a terminal and the table format.", param_hint="--watch")
        _watch(where, goal, status, interval)
        return None
    turns = each("Reading", list_turn_journals(where, goal_id=goal, status=status), count_turns(where, goal))
    return Report(turns, _blocks(turns, where, goal, status))


def _blocks(turns: Sequence[ListedTurn], root: str, goal: str | None, status: str | None) -> list[Block]:
    if not turns:
        narrowed = goal is not None or status is not None
        nothing = f"There are no {'such ' if narrowed else ''}turns in {shown_root(root)}."
        return [Line(no_turns(root, goal) or nothing)]
    rows = [
        (
            short_name(turn["goal_id"], turn["turn_key"]),
            trouble_of(turn["damage"]) if turn["damage"] else str(turn["status"]),
            turn["damage"]["kind"] if turn["damage"] else _progress(turn["completed_phases"]),
            (turn["updated_at"] or "")[:16].replace("T", " "),
        )
        for turn in turns
    ]
    return [Rows(("turn", "status", "completed", "updated"), rows, STATUS_STYLES)]


def no_turns(root: str, goal: str | None) -> str | None:
    """That a folder has no turns, or none of a goal: what finds none would look as if all of them were well.

    None when it has some, and of a database, which would have to look at each.
    """
    if count_turns(root, goal) != 0:
        return None
    of_goal = "" if goal is None else f" of goal {goal}"
    return f"There are no turns{of_goal} in {root}{'' if Path(root, 'goals').is_dir() else ', which has no goals/'}."


def trouble_of(damage: TurnDamage) -> str:
    """What to call a turn that cannot be read: one that this user may not read is as whole as it was."""
    return "unreadable" if damage["kind"] == "store_io_failed" else "damaged"


def _progress(phases: Sequence[str] | None) -> str:
    return f"{len(phases)}, last {phases[-1]}" if phases else "none"


def _watch(root: str, goal: str | None, status: str | None, interval: float) -> None:
    from rich.console import Group
    from rich.live import Live

    console = out()
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                # What changes is what is watched: it stands first, and a screen holds no more than a screen.
                turns = sorted(
                    list_turn_journals(root, goal_id=goal, status=status),
                    key=lambda turn: turn["updated_at"] or "",
                    reverse=True,
                )
                fitting = max(console.height - _AROUND_THE_ROWS, 1)
                blocks = _blocks(turns[:fitting], root, goal, status)
                if len(turns) > fitting:
                    blocks.append(Line(f"… and {counted(len(turns) - fitting, 'turn')} written before these", "dim"))
                live.update(Group(*(renderable_of(block, console.width) for block in blocks)), refresh=True)
                time.sleep(interval)
        except KeyboardInterrupt:
            return
