"""The commands on two runs: where they part, and one made of another's first steps."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import RunNotFoundError
from ..run_journal.listing import last_step, summary
from .invocation import FormatOption, RootOption, answering
from .output import Block, Format, Line, Report, Rows, counted
from .place import DatabaseOption, open_journal, said_place
from .runs import RunArgument, run_named, short_json, short_run, what_waits

if TYPE_CHECKING:
    from ..run_journal import RunDifference
    from .run_documents import ComparedRuns, ForkedRun, RunRelation


@answering
def diff(
    run_a: Annotated[str, typer.Argument(help="A run's id, as `runs` shows it.", metavar="A")],
    run_b: Annotated[str, typer.Argument(help="Another run's.", metavar="B")],
    db: DatabaseOption = None,
    root: RootOption = None,
    format: FormatOption = Format.table,
) -> Report:
    """The first point at which two runs part: the step, and what differs there.

    Either they take the same step there with other content, or another step, or one of them ends. Keys, snapshots and
    times, which are each run's own, do not count. Exits with 0 in each case.
    """
    with open_journal(db, root) as journal:
        a, b = (run_named(journal, named) for named in (run_a, run_b))
        found = journal.diff(a, b)
    answer: ComparedRuns = {
        "a": a,
        "b": b,
        "relation": _relation(found),
        "difference": None if found is None else asdict(found),  # type: ignore[typeddict-item]
    }
    return Report(answer, _shown(short_run(a), short_run(b), answer["relation"], found))


def _relation(found: RunDifference | None) -> RunRelation:
    if found is None:
        return "equal"
    if found.ended is not None:
        return "a_is_beginning" if found.ended == "a" else "b_is_beginning"
    # A tool of another name is another step, too.
    return "path" if {"kind", "name"} & set(found.fields) else "content"


def _shown(a: str, b: str, relation: RunRelation, found: RunDifference | None) -> list[Block]:
    if found is None:
        return [Line(f"{a} and {b} are equal.", "green")]
    steps = [_step(kind, payload) for kind, payload in zip(found.kinds, (found.a, found.b), strict=True)]
    if found.ended is not None:
        short, long, goes_on = (a, b, steps[1]) if found.ended == "a" else (b, a, steps[0])
        return [
            Line(f"{short} is the beginning of {long}, which goes on at step {found.seq} with {goes_on}.", "yellow")
        ]
    if relation == "path":
        return [
            Line(f"They part at step {found.seq}: another step is taken.", "bold yellow"),
            Rows(("run", f"step {found.seq}"), list(zip((a, b), steps, strict=True))),
        ]
    return [
        Line(f"They part at step {found.seq}, {steps[0]}: the same step, with other content.", "bold yellow"),
        Rows(("differs", a, b), [(field, _at(found.a, field), _at(found.b, field)) for field in found.fields]),
    ]


def _step(kind: str | None, payload: dict[str, Any] | None) -> str:
    if kind is None or payload is None:
        return "nothing"
    name = payload.get("name", payload.get("question"))
    return f"{kind} {name}" if isinstance(name, str) else kind


def _at(value: Any, field: str) -> str:
    """What stands at a place as `RunDifference` names it; a key may have a dot, too."""
    if not isinstance(value, dict):
        return ""
    if field in value:
        return short_json(value[field])
    inner = (key for key in value if field.startswith(f"{key}."))
    return next((found for key in inner if (found := _at(value[key], field[len(key) + 1 :]))), "")


@answering
def fork(
    run_id: RunArgument,
    new_run_id: Annotated[str, typer.Argument(help="What the new run is called.", metavar="NEW")],
    upto: Annotated[
        int, typer.Option("--upto", help="The last step that it takes over.", metavar="STEP", min=0, show_default=False)
    ],
    db: DatabaseOption = None,
    root: RootOption = None,
    format: FormatOption = Format.table,
) -> Report:
    """Make a run that has another one's steps up to a number, and goes its own way from there.

    What those steps came to is replayed and not paid for again. The other run stays as it is.
    """
    with open_journal(db, root) as journal:
        run_id = run_named(journal, run_id)
        last = last_step(journal, run_id)
        if upto > last:
            has = f"its last one is {last}" if last >= 0 else "it has none"
            raise RunNotFoundError(
                f"Run {short_run(run_id)} has no step {upto}: {has}; `turn-journal run show` lists them. Nothing was "
                "changed.",
                details={"run_id": run_id, "seq": upto, "last": last},
            )
        journal.fork(run_id, new_run_id, upto=upto)
        events = summary(journal, new_run_id).events
        uncertain, waiting = journal.uncertain(new_run_id), journal.pending_approvals(new_run_id)
    answer: ForkedRun = {
        "ok": True,
        "run_id": new_run_id,
        "parent": {"run_id": run_id, "upto": upto},
        "events": events,
        "uncertain": [asdict(step) for step in uncertain],  # type: ignore[misc]
        "pending_approvals": [asdict(question) for question in waiting],  # type: ignore[misc]
    }
    named = short_run(run_id)
    blocks: list[Block] = [
        Line(
            f"{new_run_id} has the steps of {named} up to {upto}, {counted(events, 'event')}. {named} is as it was.",
            "green",
        ),
        Line(
            f"Drive it with your loop under its own id, DurableRun(journal, {new_run_id!r}): it replays, then goes on."
        ),
    ]
    return Report(answer, [*blocks, *what_waits(new_run_id, said_place(db, root), uncertain, waiting)])
