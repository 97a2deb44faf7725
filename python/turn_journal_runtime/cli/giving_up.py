"""`turn-journal give-up`: the end of a turn that shall not go on."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..bridge import default_client
from ..flow import run
from ..journal import load_turn_journal, turn_journal_path
from ..turns import give_up_turn
from ..turns.giving_up import foresee_flow
from ..turns.root import open_root
from ..typed_command import typed_command
from .invocation import (
    FormatOption,
    RootOption,
    TurnArgument,
    YesOption,
    address_of,
    answering,
    owner_of,
    said_root,
    this_user,
)
from .output import Block, Format, Line, Points, Report
from .recovery import driver_of

if TYPE_CHECKING:
    from ..turns import GivenUpTurn
    from .documents import GiveUpOutcome
    from .invocation import TurnAddress


@answering
def give_up(
    turn: TurnArgument,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; kept in the journal.", metavar="TEXT")] = None,
    by: Annotated[str | None, typer.Option("--by", help="Who says so. Default: this user.")] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="Who should own it. Default: whom the journal names, unchecked.")
    ] = None,
    take_over: Annotated[
        bool,
        typer.Option("--take-over", help="Also from a driver that is alive: it stops before its next step or effect."),
    ] = False,
    root: RootOption = None,
    yes: YesOption = False,
    format: FormatOption = Format.table,
) -> Report:
    """Say how a turn would end that shall not go on; with --yes and a --reason, end it.

    It fails at the phase where it stands, its run is closed as cancelled, and neither `recover` nor a worker tries it
    again by itself; `recover TURN --retry-failed` does. What may have happened outside stays as unknown as it is. A
    turn that somebody drives is refused, and its driver named.
    """
    where, who = address_of(turn, root), by if by is not None else this_user("who gives it up")
    path = turn_journal_path(where.root, goal_id=where.goal_id, turn_key=where.turn_key)
    owner = owner_of(load_turn_journal(path)) if agent is None else agent
    names: dict[str, Any] = {"goal_id": where.goal_id, "agent_id": owner, "turn_key": where.turn_key}
    if not yes:
        found = run(foresee_flow(open_root(where.root, default_client()), **names, by=who), default_client())
        driver = driver_of(*where) if found.changed and not take_over else None
        return _report(where, found, driver, root, done=False)
    if reason is None:
        raise typer.BadParameter("Say why: it is kept in the journal.", param_hint="--reason")
    given = give_up_turn(where.root, **names, reason=reason, by=who, take_over=take_over)
    return _report(where, given, None, root, done=True)


def _report(where: TurnAddress, turn: GivenUpTurn, driver: str | None, root: str | None, *, done: bool) -> Report:
    name = where.short
    document: GiveUpOutcome = {"done": done and turn.changed, "driven": driver is not None, **asdict(turn)}  # type: ignore[typeddict-item]
    blocks: list[Block] = []
    if turn.by is None:
        blocks.append(Line(f"{name} is {turn.status}: there is nothing to give up, and nothing was changed.", "green"))
        return Report(document, blocks)
    if not turn.changed:
        blocks.append(Line(f"{name} was given up by {turn.by} at {turn.at}: {turn.reason}", "green"))
    elif done:
        blocks.append(Line(f"{name} is given up: it failed at {turn.failed_phase}.", "bold green"))
    else:
        blocks.append(Line(f"{name} would fail at {turn.failed_phase}, and nothing would try it again.", "bold"))
    if turn.in_doubt:
        said = "Whether these happened is not known, and nothing will ask any more; look at their targets:"
        blocks += [Line(said, "yellow"), Points(turn.in_doubt)]
    if turn.owed:
        blocks += [
            Line("Due by what was done, and not begun:", "yellow"),
            Points([one.effect_ref for one in turn.owed]),
        ]
    if turn.run_id is not None:
        blocks.append(Line("Its run is closed as cancelled."))
    if driver is not None:
        blocks.append(Line(f"It would be refused just now: {driver}.", "yellow"))
    if done:
        blocks.append(
            Line(f"`{typed_command('recover', [name], f'{said_root(root)} --retry-failed')}` takes it up again.", "dim")
        )
    elif turn.changed:
        blocks.append(Line("Nothing was changed. Add --yes and a --reason to give it up.", "dim"))
    return Report(document, blocks)
