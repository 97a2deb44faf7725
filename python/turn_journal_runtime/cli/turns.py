"""The commands on turns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..journal import (
    inspect_turn_journal,
    interpret_turn_journal_projection,
    load_turn_journal,
    turn_journal_path,
)
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

if TYPE_CHECKING:
    from ..documents import Journal


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
    journal: Journal = {}
    if agent is None:
        journal = load_turn_journal(turn_journal_path(where.root, goal_id=where.goal_id, turn_key=where.turn_key))
    if agent is not None or resolve is not None:
        inspection = inspect_turn_journal(
            where.root,
            goal_id=where.goal_id,
            agent_id=owner_of(journal) if agent is None else agent,
            turn_key=where.turn_key,
            retry_failed=retry_failed,
            session_binding_resolver=resolve,
        )
    else:
        # What was read is what is judged: nothing can be written in between.
        inspection = interpret_turn_journal_projection(
            journal,
            goal_id=where.goal_id,
            agent_id=owner_of(journal),
            turn_key=where.turn_key,
            retry_failed=retry_failed,
        )
    if inspection["journal_status"] == "failed" and not journal:
        journal = load_turn_journal(turn_journal_path(where.root, goal_id=where.goal_id, turn_key=where.turn_key))
    return report_of(str(where), inspection, owner_assumed=agent is None, failure=failure_of(journal))
