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
from .inspection_report import report_of
from .invocation import FormatOption, RootOption, TurnArgument, address_of, answering
from .output import Format, Report


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
    format: FormatOption = Format.table,
) -> Report:
    """May this turn be replayed, may it go on, and why. Writes nothing.

    A blocked replay is an answer: the command exits with 0.
    """
    where = address_of(turn, root)
    if agent is not None:
        inspection = inspect_turn_journal(
            where.root, goal_id=where.goal_id, agent_id=agent, turn_key=where.turn_key, retry_failed=retry_failed
        )
        return report_of(str(where), inspection)
    journal = load_turn_journal(turn_journal_path(where.root, goal_id=where.goal_id, turn_key=where.turn_key))
    inspection = interpret_turn_journal_projection(
        journal,
        goal_id=where.goal_id,
        agent_id=_owner(journal),
        turn_key=where.turn_key,
        retry_failed=retry_failed,
    )
    return report_of(str(where), inspection, owner_assumed=True)


def _owner(journal: dict[str, Any]) -> str:
    """The agent that a journal names, or nobody."""
    plan = journal.get("plan")
    envelope = plan.get("turn_envelope") if isinstance(plan, dict) else None
    owner = envelope.get("agent_id") if isinstance(envelope, dict) else journal.get("agent_id")
    return owner if isinstance(owner, str) else ""
