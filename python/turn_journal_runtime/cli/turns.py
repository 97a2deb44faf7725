"""The commands on turns."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from ..journal import (
    inspect_turn_journal,
    interpret_turn_journal_projection,
    load_turn_journal,
    turn_journal_path,
)
from ..turns.transitions import giving_up
from .history import was_pruned
from .inspection_report import failure_of, report_of
from .invocation import (
    FormatOption,
    ResolverOption,
    RootOption,
    TurnArgument,
    address_of,
    answering,
    callable_named,
    owner_of,
)
from .output import Format, Json, Report


@answering
def show(turn: TurnArgument, root: RootOption = None, format: FormatOption = Format.table) -> Report:
    """The journal of a turn as it is now: its plan, its result, how far it got. `history --at` shows it as it was."""
    where = address_of(turn, root)
    journal = load_turn_journal(turn_journal_path(where.root, goal_id=where.goal_id, turn_key=where.turn_key))
    return Report(journal, [Json(journal)])


@answering
def inspect(
    turn: TurnArgument,
    root: RootOption = None,
    agent: Annotated[
        str | None, typer.Option("--agent", "-a", help="Who should own it. Default: whom the journal names, unchecked.")
    ] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Ask for another attempt at a failed turn.")] = (
        False
    ),
    resolver: ResolverOption = None,
    format: FormatOption = Format.table,
) -> Report:
    """May this turn be replayed, may it go on, and why. Writes nothing.

    A blocked replay is an answer: the command exits with 0.
    """
    where = address_of(turn, root)
    resolve = None if resolver is None else callable_named(resolver, "--resolver")
    path = turn_journal_path(where.root, goal_id=where.goal_id, turn_key=where.turn_key)
    journal = load_turn_journal(path)
    owner = owner_of(journal) if agent is None else agent
    names: dict[str, Any] = {"goal_id": where.goal_id, "agent_id": owner, "turn_key": where.turn_key}
    if resolve is not None:
        inspection = inspect_turn_journal(
            where.root, **names, retry_failed=retry_failed, session_binding_resolver=resolve
        )
    else:
        # What was read is what is judged: nothing can be written in between.
        inspection = interpret_turn_journal_projection(journal, **names, retry_failed=retry_failed)
    given_up = giving_up(journal)
    failure = failure_of(journal) if given_up is None else None
    return report_of(
        str(where),
        inspection,
        given_up=given_up,
        pruned=given_up is not None and was_pruned(path),
        owner_assumed=agent is None,
        failure=failure,
    )
