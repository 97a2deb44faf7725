"""`turn-journal run check`: whether stored runs still replay with the code as it is now."""

from __future__ import annotations

import sys
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import JournalCorruptError, TurnJournalError
from ..replay_check import check_replay
from ..run_journal.listing import list_runs
from .invocation import FormatOption, RootOption, answering, callable_named
from .output import Block, Format, Line, Report, Rows
from .place import DatabaseOption, open_journal
from .progress import each
from .runs import run_named, short_run

if TYPE_CHECKING:
    from ..replay_check import Loop
    from ..run_journal import RunJournal
    from .run_documents import CheckedRun, ReplayProblem

_STYLES = {"replays": "green", "parts": "red"}


@answering
def check(
    entry: Annotated[
        str,
        typer.Option(
            "--entry",
            help="The loop: `module:function`, sync or async, called with a RunJournal and a run's id.",
            metavar="NAME",
        ),
    ],
    run_ids: Annotated[
        list[str] | None, typer.Argument(help="The runs, by their ids; all when none is named.", metavar="RUN")
    ] = None,
    db: DatabaseOption = None,
    root: RootOption = None,
    format: FormatOption = Format.table,
) -> Report:
    """Replay stored runs against a loop as it is now: before an upgrade, which of them it would part from, and where.

    No model is asked, no tool is called and nothing is recorded: each run is replayed from a copy in memory, and the
    first step that is not on record ends it.
    """
    loop: Loop = callable_named(entry, "--entry")
    with open_journal(db, root) as journal:
        named = [run_named(journal, run_id) for run_id in run_ids or ()]
        chosen = named or [run.run_id for run in list_runs(journal)]
        found = each("Replaying", (_checked(journal, run_id, loop) for run_id in chosen), len(chosen))
    parted = sum(not run["replays"] for run in found)
    rows = [
        (
            short_run(run["run_id"]),
            "replays" if run["replays"] else "parts",
            f"{run['replayed']} of {run['steps']}",
            "" if run["problem"] is None else run["problem"]["why"],
        )
        for run in found
    ]
    blocks: list[Block] = [Line("No runs are recorded here.")]
    if rows:
        said = "All of them replay." if not parted else f"{parted} of {len(rows)} do not replay with this loop."
        blocks = [Rows(("run", "verdict", "steps", "why"), rows, _STYLES), Line(said, "red" if parted else "green")]
    return Report(found, blocks, code=1 if parted else 0)


def _checked(journal: RunJournal, run_id: str, loop: Loop) -> CheckedRun:
    # What the loop prints is not this command's answer.
    with redirect_stdout(sys.stderr):
        try:
            _, steps, replayed, problem = check_replay(journal, run_id, loop)
        except JournalCorruptError as error:  # the others are replayed all the same
            steps, replayed, problem = 0, 0, error
    return {
        "run_id": run_id,
        "steps": steps,
        "replayed": replayed,
        "replays": problem is None,
        "problem": None if problem is None else _said(problem),
    }


def _said(problem: Exception) -> ReplayProblem:
    if not isinstance(problem, TurnJournalError):
        kind = type(problem).__name__
        return {"kind": kind, "why": f"the loop raises {kind}", "message": f"{kind}: {problem}"}
    return {"kind": problem.kind, "why": _why(problem), "message": problem.message}


def _why(problem: TurnJournalError) -> str:
    recorded = problem.details.get("recorded")
    if not recorded:
        return problem.message
    step = " ".join(str(recorded[name]) for name in ("kind", "name") if name in recorded)
    return f"step {problem.details['seq']}, {step}, differs in {', '.join(problem.details['fields'])}"
