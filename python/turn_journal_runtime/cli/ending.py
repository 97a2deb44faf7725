"""The commands that end a run from outside of its loop: close it, or delete it."""

from __future__ import annotations

from dataclasses import asdict
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import JournalCorruptError
from ..run_journal.events import RUNNING
from ..run_journal.listing import refuse_driven, summary
from ..run_journal.runs import close_running, refuse_ended
from .invocation import FormatOption, RootOption, YesOption, answering
from .output import Block, Format, Line, Points, Report, counted
from .place import DatabaseOption, open_journal
from .runs import KEY, RunArgument, damage_of, run_named, short_run

if TYPE_CHECKING:
    from ..run_journal import RunJournal, UncertainStep
    from .run_documents import ClosedRun, DeletedRun, RunDamage


class Outcome(StrEnum):
    """How a run ends that is closed by hand."""

    cancelled = "cancelled"
    failed = "failed"
    done = "done"


def _uncertain(journal: RunJournal, run_id: str) -> tuple[list[UncertainStep], RunDamage | None]:
    """The calls whose outcome is not known; also a damaged run can be ended, of which that cannot be told."""
    try:
        return journal.uncertain(run_id), None
    except JournalCorruptError as error:
        return [], damage_of(error)


def _damaged(damage: RunDamage | None) -> list[str]:
    return [] if damage is None else [f"what else is not known cannot be told: {damage['message']}"]


@answering
def close(
    run_id: RunArgument,
    outcome: Annotated[Outcome, typer.Option("--outcome", help="How it ended.", show_default=False)],
    yes: YesOption = False,
    db: DatabaseOption = None,
    root: RootOption = None,
    format: FormatOption = Format.table,
) -> Report:
    """Give up a run that nobody will drive on: it has ended, and is not listed as interrupted any more.

    What it recorded stays; a drive only replays it. A run that somebody drives is left alone, and one that has ended
    keeps its outcome.
    """
    with open_journal(db, root) as journal:
        run_id = run_named(journal, run_id)
        found = summary(journal, run_id)
        uncertain, damage = _uncertain(journal, run_id)
        if yes:
            close_running(journal, run_id, outcome.value)
        else:
            refuse_driven(journal, run_id)
            refuse_ended(run_id, found.status)
    answer: ClosedRun = {
        "ok": True,
        "done": yes,
        "run_id": run_id,
        "outcome": outcome.value,
        "events": found.events,
        "uncertain": [asdict(step) for step in uncertain],  # type: ignore[misc]
        "damage": damage,
    }
    named = short_run(run_id)
    blocks: list[Block] = [
        Line(f"{named} is closed: {outcome.value}.", "green")
        if yes
        else Line(f"{named} would be closed: {outcome.value}. --yes does it.", "yellow")
    ]
    points = [f"step {step.seq}, {step.tool}: whether it happened stays unknown" for step in uncertain]
    points += _damaged(damage)
    if KEY.match(run_id):
        points.append("it is the run of a turn: `turn-journal give-up` gives up the turn with it")
    return Report(answer, [*blocks, *([Points(points)] if points else [])])


@answering
def delete(
    run_id: RunArgument,
    yes: YesOption = False,
    db: DatabaseOption = None,
    root: RootOption = None,
    format: FormatOption = Format.table,
) -> Report:
    """Remove a run and all that is stored of it. A run that somebody drives is left alone.

    Runs that were forked from it have steps of their own, and stay.
    """
    with open_journal(db, root) as journal:
        run_id = run_named(journal, run_id)
        found = summary(journal, run_id)
        uncertain, damage = _uncertain(journal, run_id)
        if yes:
            journal.delete_run(run_id)
        else:
            refuse_driven(journal, run_id)
    answer: DeletedRun = {
        "ok": True,
        "done": yes,
        "run_id": run_id,
        "status": found.status,
        "events": found.events,
        "uncertain": [asdict(step) for step in uncertain],  # type: ignore[misc]
        "damage": damage,
    }
    named, size = short_run(run_id), counted(found.events, "event")
    blocks: list[Block] = [
        Line(f"{named} is deleted, with its {size}.", "green")
        if yes
        else Line(f"{named} ({found.status}) would be deleted, with its {size}. --yes does it.", "yellow")
    ]
    points = []
    if found.status == RUNNING:
        points.append("it had not ended: driven again under its id, it begins from the top, and does again what it did")
    points += [f"step {step.seq}, {step.tool}: whether it happened is not known" for step in uncertain]
    points += _damaged(damage)
    if KEY.match(run_id):
        points.append("it is the run of a turn, which does its work again if it goes on")
    return Report(answer, [*blocks, *([Points(points)] if points else [])])
