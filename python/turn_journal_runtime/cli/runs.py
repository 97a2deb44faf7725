"""The commands on runs: what agent loops have recorded, and what waits for a person."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from ..errors import JournalCorruptError, RunNotFoundError
from ..run_journal import KIND_TOOL_RESULT
from ..run_journal.copying import run_ids
from ..run_journal.faults import unknown_run
from ..run_journal.listing import failed_attempts, list_runs
from ..run_journal.sleeps import until_of
from ..typed_command import typed_command
from .invocation import FormatOption, RootOption, answering, given_json, short_key, this_user
from .output import STATUS_STYLES, Block, Format, Heading, Line, Points, Report, Rows, harmless
from .place import DatabaseOption, open_journal, said_place

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeVar

    from ..run_journal import JournalEvent, PendingApproval, RunJournal, UncertainStep
    from ..run_journal.listing import RunSummary
    from .run_documents import Decided, RunDamage, Settled

    T = TypeVar("T")

RunArgument: TypeAlias = Annotated[str, typer.Argument(help="The run's id, as `runs` shows it.", metavar="RUN")]
StepArgument: TypeAlias = Annotated[int, typer.Argument(help="The step's number.", metavar="STEP", min=0)]

_SHOWN_CHARACTERS = 80
_SAID_CHARACTERS = 400
KEY = re.compile(r"sha256:[0-9a-f]{64}")


@answering
def runs(
    db: DatabaseOption = None,
    root: RootOption = None,
    interrupted: Annotated[bool, typer.Option("--interrupted", help="Only those to resume.")] = False,
    waiting: Annotated[
        bool, typer.Option("--waiting", help="Only those that wait for a decision or for an outcome.")
    ] = False,
    format: FormatOption = Format.table,
) -> Report:
    """The recorded runs of agent loops: which nobody drives any more, and which wait for somebody's word.

    Damaged ones are listed as damaged and stop nothing.
    """
    with open_journal(db, root) as journal:
        shown = [run for run in list_runs(journal) if run.interrupted or not (interrupted or waiting)]
        damaged: dict[str, JournalCorruptError] = {}
        asked = {question.run_id for question in _of_each(journal.pending_approvals, shown, damaged)}
        asleep = _of_each(journal.pending_sleeps, shown, damaged)
        # Of several sleeps of a run the first one to end.
        due = {sleep.run_id: sleep.until for sleep in sorted(asleep, key=lambda one: -one.until)}
        found = [_listed(run, journal, asked, due.get(run.run_id), damaged.get(run.run_id)) for run in shown]
    if waiting:
        # What a damaged one waits for nobody can tell.
        found = [run for run in found if run["waits_for"] or run["damage"]]
    rows = [
        (
            short_run(run["run_id"]),
            "damaged" if run["damage"] else "interrupted" if run["interrupted"] else run["status"],
            ", ".join([*run["waits_for"], *([] if run["due_at"] is None else [moment(run["due_at"])])]),
            str(run["events"]),
            moment(run["updated_at"]),
            run["agent"],
            run["task"],
        )
        for run in found
    ]
    columns = ("run", "status", "waits for", "events", "updated", "agent", "task")
    such = "such " if interrupted or waiting else ""
    blocks: list[Block] = [Rows(columns, rows, STATUS_STYLES)] if rows else [Line(f"No {such}runs are recorded here.")]
    damage = [run["damage"]["message"] for run in found if run["damage"]]
    return Report(found, [*blocks, Heading("Damaged"), Points(damage)] if damage else blocks)


def _of_each(
    pending: Callable[[str | None], list[T]], runs: Sequence[RunSummary], damaged: dict[str, JournalCorruptError]
) -> list[T]:
    """What all runs wait for; a damaged one is noted, and asked for by itself, which keeps no other from being told."""
    try:
        return pending(None)
    except JournalCorruptError:
        found: list[T] = []
        for run in runs:
            try:
                found += pending(run.run_id)
            except JournalCorruptError as error:
                damaged[run.run_id] = error
        return found


def damage_of(error: JournalCorruptError) -> RunDamage:
    """What an answer says of a damaged run."""
    return {"kind": error.kind, "message": error.message}


def _listed(
    run: RunSummary, journal: RunJournal, asked: set[str], due_at: float | None, damage: JournalCorruptError | None
) -> dict[str, Any]:
    """A `ListedRun`; one that somebody drives asks nobody yet."""
    waits_for: list[Literal["decision", "outcome"]] = []
    if run.interrupted and run.run_id in asked:
        waits_for.append("decision")
    try:
        if run.interrupted and journal.uncertain(run.run_id):
            waits_for.append("outcome")
    except JournalCorruptError as error:
        damage = error
    return {
        **asdict(run),
        "waits_for": waits_for,
        "due_at": due_at,
        "damage": None if damage is None else damage_of(damage),
    }


@answering
def show(
    run_id: RunArgument, db: DatabaseOption = None, root: RootOption = None, format: FormatOption = Format.table
) -> Report:
    """One run: its steps, the effects whose outcome is not known, and the questions that wait."""
    with open_journal(db, root) as journal:
        run_id = run_named(journal, run_id)
        meta = journal.run_meta(run_id)
        if meta is None:
            raise unknown_run(run_id)  # deleted since it was looked for
        events = journal.events(run_id)
        failures = failed_attempts(journal, run_id)
        uncertain = journal.uncertain(run_id)
        waiting = journal.pending_approvals(run_id)
        asleep = journal.pending_sleeps(run_id)
        interrupted = run_id in journal.interrupted_runs()
        parent = journal.parent(run_id)
    document = {
        **asdict(meta),
        "interrupted": interrupted,
        "parent": None if parent is None else {"run_id": parent[0], "upto": parent[1]},
        "events": [
            {"seq": event.seq, "kind": event.kind, "payload": event.payload, "created_at": event.created_at}
            for event in events
        ],
        "failures": [asdict(attempt) for attempt in failures],
        "uncertain": [asdict(step) for step in uncertain],
        "pending_approvals": [asdict(question) for question in waiting],
        "pending_sleeps": [asdict(sleep) for sleep in asleep],
    }
    status = meta.status
    if interrupted:
        # Driving it again helps when nobody has to say something first.
        status = "interrupted: drive it again to go on"
        if uncertain:
            status = "interrupted: an outcome is not known"
        elif waiting:
            status = "waits for a decision"
        elif asleep:
            status = f"sleeps until {moment(min(sleep.until for sleep in asleep))}"
    blocks: list[Block] = [
        Heading(f"{meta.run_id} · {status}" + (f" · {meta.outcome}" if meta.outcome not in (None, "", status) else "")),
        Line(f"agent {meta.agent or '–'} · task {meta.task or '–'} · updated {moment(meta.updated_at)}", "dim"),
    ]
    if parent is not None:
        blocks.append(Line(f"forked from {short_run(parent[0])}, with its steps up to {parent[1]}", "dim"))
    blocks += what_waits(run_id, said_place(db, root), uncertain, waiting)
    steps = [(event.seq, event.created_at, event.kind, *_step(event)) for event in events]
    # A failed call is a step that went on; what it failed of belongs beside it.
    steps += [
        (one.seq, one.created_at, "failed", "", _shortened(": ".join(filter(None, (one.error_type, one.message)))))
        for one in failures
    ]
    rows = [(str(seq), what, name, content, moment(at)) for seq, at, what, name, content in sorted(steps)]
    blocks.append(Rows(("step", "what", "name", "content", "at"), rows) if rows else Line("Nothing is recorded yet."))
    return Report(document, blocks)


def what_waits(run_id: str, where: str, uncertain: list[UncertainStep], waiting: list[PendingApproval]) -> list[Block]:
    """What a person has to say before a run can go on, and how."""
    blocks: list[Block] = []
    if uncertain:
        blocks += [
            Heading("Outcome not known: say what became of it", "bold red"),
            Points(
                [
                    f"step {step.seq}, {step.tool}, key {step.idempotency_key}: "
                    + typed_command("settle", [short_run(run_id), str(step.seq)], f"{where} --result JSON")
                    + ", or --absent when it did not happen"
                    + _last_said(step)
                    for step in uncertain
                ]
            ),
        ]
    if waiting:
        blocks += [
            Heading("To be decided", "bold yellow"),
            Points(
                [
                    f"step {question.seq}: {question.question}; "
                    + typed_command("approve", [short_run(run_id), str(question.seq)], where)
                    + ", or with --deny"
                    for question in waiting
                ]
            ),
        ]
    return blocks


def _last_said(step: UncertainStep) -> str:
    """What the last attempt at a step failed of: it may say that the tool has run."""
    if step.error_type is None:
        return ""
    said = ": ".join(filter(None, (step.error_type, step.message)))
    return f". Its last attempt failed: {_shortened(said, _SAID_CHARACTERS)}"


@answering
def settle(
    run_id: RunArgument,
    step: StepArgument,
    result: Annotated[
        str | None, typer.Option("--result", help="What the tool returned, as JSON; the run goes on with it.")
    ] = None,
    absent: Annotated[bool, typer.Option("--absent", help="It did not happen; the run may do it.")] = False,
    db: DatabaseOption = None,
    root: RootOption = None,
    format: FormatOption = Format.table,
) -> Report:
    """Say what became of a tool call whose outcome is not known. `run show` lists them."""
    if (result is None) is not absent:
        raise typer.BadParameter("Give one of --result JSON and --absent.", param_hint="--result")
    with open_journal(db, root) as journal:
        run_id = run_named(journal, run_id)
        if result is None:
            journal.settle(run_id, step, absent=True)
            said = "it did not happen and may run"
        else:
            journal.settle(run_id, step, result=given_json(result, "--result"))
            said = "it happened, and this is its result"
    document: Settled = {"ok": True, "run_id": run_id, "seq": step, "absent": absent}
    return Report(
        document,
        [Line(f"Step {step} of {run_id} is settled: {said}. Drive the run again to go on.", "green")],
    )


@answering
def approve(
    run_id: RunArgument,
    step: StepArgument,
    decision: Annotated[
        str | None, typer.Option("--decision", help="The decision as JSON. Default: true.", metavar="JSON")
    ] = None,
    deny: Annotated[bool, typer.Option("--deny", help="The same as --decision false.")] = False,
    by: Annotated[str | None, typer.Option("--by", help="Who decides. Default: this user.")] = None,
    db: DatabaseOption = None,
    root: RootOption = None,
    format: FormatOption = Format.table,
) -> Report:
    """Decide on a question that a run has asked. `run show` lists them."""
    if deny and decision is not None:
        raise typer.BadParameter("Give one of --decision and --deny.", param_hint="--deny")
    decided = not deny if decision is None else given_json(decision, "--decision")
    who = by if by is not None else this_user("who decides")
    with open_journal(db, root) as journal:
        run_id = run_named(journal, run_id)
        journal.approve(run_id, step, decided, by=who)
    document: Decided = {"ok": True, "run_id": run_id, "seq": step, "decision": decided, "by": who}
    return Report(
        document,
        [Line(f"Step {step} of {run_id} is decided by {who}. Drive the run again to go on.", "green")],
    )


def short_run(run_id: str) -> str:
    """A run's id as tables show it, and as commands take it: a run inside a turn is called by the turn's key."""
    key = re.match(KEY, run_id)
    return run_id if key is None else short_key(key[0]) + run_id[key.end() :]


def run_named(journal: RunJournal, named: str) -> str:
    """The run that an id stands for: whole, short, or as tables show one that could steer a terminal."""
    with suppress(JournalCorruptError):  # a damaged one is found among all
        if journal.run_meta(named) is not None:
            return named
    found = [run_id for run_id in run_ids(journal) if named in (short_run(run_id), harmless(run_id))]
    if len(found) > 1:
        raise typer.BadParameter(f"{named} could be {len(found)} runs: give the whole id.", param_hint="RUN")
    if not found:
        raise RunNotFoundError(
            f"There is no run {named!r} in {journal.path}; `turn-journal runs` lists them.", details={"run_id": named}
        )
    return found[0]


def moment(seconds: float) -> str:
    """A time as a person reads it, in UTC; one that no calendar has, as it is."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, OSError, ValueError):
        return f"{seconds:g} s"


def _step(event: JournalEvent) -> tuple[str, str]:
    """What an event is called, and its content, short."""
    payload: dict[str, Any] = event.payload
    name = str(payload.get("name", payload.get("question", payload.get("index", ""))))
    until = until_of(payload) if event.kind == KIND_TOOL_RESULT else None
    if until is not None:
        return name, f"until {moment(until)}"
    content = next((payload[key] for key in ("args", "result", "response", "decision") if key in payload), "")
    text = "" if content == "" else short_json(content)
    return name, text


def short_json(value: Any) -> str:
    """A JSON value as a table shows it."""
    import json

    return _shortened(json.dumps(value, ensure_ascii=False, default=str))


def _shortened(text: str, characters: int = _SHOWN_CHARACTERS) -> str:
    return text if len(text) <= characters else text[: characters - 1] + "…"
