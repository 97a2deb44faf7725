"""The commands on runs: what agent loops have recorded, and what waits for a person."""

from __future__ import annotations

import re
import shlex
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import typer

from ..address import is_database
from ..errors import JournalNotFoundError, RunNotFoundError
from ..run_journal import KIND_TOOL_RESULT, RunJournal
from ..run_journal.filesystem import default_path
from ..run_journal.listing import failed_attempts, list_runs
from ..run_journal.sleeps import until_of
from ..turns.folder_root import run_journal_path
from .invocation import FormatOption, RootOption, answering, given_json, root_of, short_key, this_user
from .output import STATUS_STYLES, Block, Format, Heading, Line, Points, Report, Rows

if TYPE_CHECKING:
    from ..run_journal import JournalEvent, PendingApproval, RunMeta, UncertainStep
    from ..run_journal.listing import RunSummary
    from .documents import Decided, Settled

DatabaseOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--db",
        envvar="TURN_JOURNAL_RUNS",
        help="The run journal: a file, or postgresql://…. "
        "Default: that of the turns; where there are none, runs/journal.db in TURN_JOURNAL_HOME or the folder for "
        "user data.",
        metavar="FILE|URL",
    ),
]
RunArgument: TypeAlias = Annotated[str, typer.Argument(help="The run's id, as `runs` shows it.", metavar="RUN")]
StepArgument: TypeAlias = Annotated[int, typer.Argument(help="The step's number.", metavar="STEP", min=0)]

_SHOWN_CHARACTERS = 80
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
    """The recorded runs of agent loops: which nobody drives any more, and which wait for somebody's word."""
    with open_journal(db, root) as journal:
        asked = {question.run_id for question in journal.pending_approvals()}
        # Of several sleeps of a run the first one to end.
        due = {sleep.run_id: sleep.until for sleep in sorted(journal.pending_sleeps(), key=lambda one: -one.until)}
        found = [
            _listed(run, journal, asked, due.get(run.run_id))
            for run in list_runs(journal)
            if run.interrupted or not (interrupted or waiting)
        ]
    if waiting:
        found = [run for run in found if run["waits_for"]]
    rows = [
        (
            short_run(run["run_id"]),
            "interrupted" if run["interrupted"] else run["status"],
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
    return Report(found, blocks)


def _listed(run: RunSummary, journal: RunJournal, asked: set[str], due_at: float | None) -> dict[str, Any]:
    """A `ListedRun`; one that somebody drives asks nobody yet."""
    waits_for: list[Literal["decision", "outcome"]] = []
    if run.interrupted and run.run_id in asked:
        waits_for.append("decision")
    if run.interrupted and journal.uncertain(run.run_id):
        waits_for.append("outcome")
    return {**asdict(run), "waits_for": waits_for, "due_at": due_at}


@answering
def show(
    run_id: RunArgument, db: DatabaseOption = None, root: RootOption = None, format: FormatOption = Format.table
) -> Report:
    """One run: its steps, the effects whose outcome is not known, and the questions that wait."""
    with open_journal(db, root) as journal:
        meta = run_named(journal, run_id)
        run_id = meta.run_id
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
    # What a person has to type, as it can be typed; an address of a database may hold a password.
    named, where = short_run(run_id), said_place(db, root)
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
    blocks += what_waits(named, where, uncertain, waiting)
    steps = [(event.seq, event.created_at, event.kind, *_step(event)) for event in events]
    # A failed call is a step that went on; what it failed of belongs beside it.
    steps += [
        (one.seq, one.created_at, "failed", "", _shortened(": ".join(filter(None, (one.error_type, one.message)))))
        for one in failures
    ]
    rows = [(str(seq), what, name, content, moment(at)) for seq, at, what, name, content in sorted(steps)]
    blocks.append(Rows(("step", "what", "name", "content", "at"), rows) if rows else Line("Nothing is recorded yet."))
    return Report(document, blocks)


def what_waits(named: str, where: str, uncertain: list[UncertainStep], waiting: list[PendingApproval]) -> list[Block]:
    """What a person has to say before a run can go on, and how."""
    blocks: list[Block] = []
    if uncertain:
        blocks += [
            Heading("Outcome not known: say what became of it", "bold red"),
            Points(
                [
                    f"step {step.seq}, {step.tool}, key {step.idempotency_key}: turn-journal settle {named} {step.seq}"
                    f"{where} --result JSON, or --absent when it did not happen"
                    for step in uncertain
                ]
            ),
        ]
    if waiting:
        blocks += [
            Heading("To be decided", "bold yellow"),
            Points(
                [
                    f"step {question.seq}: {question.question}; turn-journal approve {named} {question.seq}{where}, "
                    "or with --deny"
                    for question in waiting
                ]
            ),
        ]
    return blocks


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
        run_id = run_named(journal, run_id).run_id
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
        run_id = run_named(journal, run_id).run_id
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


def run_named(journal: RunJournal, named: str) -> RunMeta:
    """The run that an id, whole or short, stands for."""
    meta = journal.run_meta(named)
    if meta is None:
        found = [run.run_id for run in list_runs(journal) if short_run(run.run_id) == named]
        if len(found) > 1:
            raise typer.BadParameter(f"{named} could be {len(found)} runs: give the whole id.", param_hint="RUN")
        meta = journal.run_meta(found[0]) if found else None
    if meta is None:
        raise RunNotFoundError(
            f"There is no run {named!r} in {journal.path}; `turn-journal runs` lists them.", details={"run_id": named}
        )
    return meta


def moment(seconds: float) -> str:
    """A time as a person reads it, in UTC."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def said_place(db: str | None, root: str | None) -> str:
    """Where the runs are, as it was said, to be said again in the next command."""
    return _typed("--db", db) or _typed("--root", root)


def _typed(option: str, value: str | None) -> str:
    """An option as it was given, to be given again; an address of a database may hold a password."""
    return f" {option} {shlex.quote(value)}" if value is not None and "://" not in value else ""


def place_of(db: str | None, root: str | None) -> str:
    """Where the runs are that are meant: the journal that is named, or that of the turns that are, or the user's."""
    if db is not None:
        return db
    if root is None and not (Path("goals").is_dir() and run_journal_path(".").exists()):
        return str(default_path())
    found = root_of(root)
    return found if is_database(found) else str(run_journal_path(found))


def open_journal(db: str | None, root: str | None) -> RunJournal:
    """The journal, which must be there: no command makes one."""
    where = place_of(db, root)
    if "://" not in where and not Path(where).exists():
        raise JournalNotFoundError(
            f"There is no run journal at {where}; name it with --db or TURN_JOURNAL_RUNS, or its turns with --root.",
            kind="run_journal_not_found",
            details={"path": where},
        )
    return RunJournal(where)


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


def _shortened(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
