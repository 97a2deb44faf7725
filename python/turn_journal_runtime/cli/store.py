"""The commands on a store itself."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..bridge import default_client
from ..errors import JournalNotFoundError
from .invocation import FormatOption, answering, must_be_said, root_of, short_name, shown_root
from .output import Block, Format, Heading, Line, Report, Rows
from .progress import count_turns, progress

if TYPE_CHECKING:
    from ..documents import CopiedItem, CopyCount
    from .documents import Migrated


@answering
def migrate(
    url: Annotated[str, typer.Argument(help="The database: postgresql://…", metavar="URL", show_default=False)],
    format: FormatOption = Format.table,
) -> Report:
    """Make the tables of a database, or bring them up to what this version needs: of turns, runs and the queue.

    The queue is that of `turn-journal worker`, and is made where the extra `worker` is installed.
    They are made where the URL's user looks first: in the schema `public`, or in the one that
    `?options=-csearch_path%3DNAME` names. Nothing else ever makes or changes them.
    """
    answer: Any = default_client().call("store.migrate", {"runtime_root": url})
    done: Migrated = {"turns": answer, "runs": _migrate_runs(url), "queue": _migrate_queue(url)}
    applied = [*done["turns"]["applied"], *(done["runs"] or []), *(done["queue"] or [])]
    lines = [Line(f"Ran {name}.", "green") for name in applied]
    if done["runs"] is None:
        lines.append(Line("Of run journals none: they need `pip install 'turn-journal-runtime[postgres]'`.", "yellow"))
    if done["queue"] is None:
        lines.append(Line("Of the queue none: workers need `pip install 'turn-journal-runtime[worker]'`.", "yellow"))
    return Report(done, [*lines, Line("The tables are up to date.")])


@answering
def copy(
    source: Annotated[
        str, typer.Argument(help="Where the turns are: a folder, or postgresql://….", metavar="SRC", show_default=False)
    ],
    target: Annotated[
        str, typer.Argument(help="Where they are copied to; a folder is made.", metavar="DST", show_default=False)
    ],
    goal: Annotated[
        str | None, typer.Option("--goal", "-g", help="Only the turns, sessions and runs of this goal.")
    ] = None,
    verify_only: Annotated[bool, typer.Option("--verify-only", help="Only compare; nothing is changed.")] = False,
    format: FormatOption = Format.table,
) -> Report:
    """Copy turns with their histories, sessions and runs to another root, and see that the copy is the same.

    Start it again when it was interrupted: it goes on. An earlier state of a turn or run is brought up to date.
    Anything else that is there, and what is driven, is left as it is and told: exits with 1, or with 4 on damage.
    """
    from ..store_copy import copy_store

    must_be_said(source, "SRC")
    must_be_said(target, "DST")
    root_of(source)
    doing = "Comparing" if verify_only else "Copying"
    with progress(f"{doing} turns", count_turns(source, goal)) as bar:
        before = "turn"

        def show(item: CopiedItem) -> None:
            nonlocal before
            if item["kind"] != before:
                before = item["kind"]
                bar.begin(f"{doing} {before}s")
            bar.advance()

        report = copy_store(source, target, goal_id=goal, verify_only=verify_only, progress=show)
    counts: dict[str, CopyCount] = {
        "turns": report["turns"],
        "sessions": report["sessions"],
        "runs": report["runs"],
    }
    if not any(number for count in counts.values() for number in count.values()):
        of_goal = "" if goal is None else f" of goal {goal}"
        raise JournalNotFoundError(
            f"There is nothing{of_goal} in {shown_root(source)}, so nothing was copied.", kind="turns_not_found"
        )
    rows = [
        (name, *(str(number) for number in (count["copied"], count["extended"], count["same"], count["left"])))
        for name, count in counts.items()
    ]
    verdict = Line("Everything is at the target, and the same.", "bold green")
    blocks: list[Block] = [verdict, Rows(("", "copied", "extended", "the same before", "left"), rows)]
    if not report["ok"]:
        left = [
            (
                one["kind"],
                one["name"] if one["goal_id"] is None else short_name(one["goal_id"], one["name"]),
                one["outcome"],
                one["problem"]["message"] if one["problem"] else "",
            )
            for one in report["problems"]
        ]
        blocks[0] = Line(f"Not all is the same: {len(left)} were left.", "bold red")
        blocks += [Heading("Left"), Rows(("", "name", "outcome", "why"), left)]
    damaged = any(one["outcome"] == "damaged" for one in report["problems"])
    return Report(report, blocks, code=0 if report["ok"] else 4 if damaged else 1)


def _migrate_runs(url: str) -> list[str] | None:
    """The migrations of the run journal's tables; None where there is nothing that could run them."""
    if find_spec("psycopg") is None:
        return None
    from ..run_journal.postgres.migration import migrate

    return migrate(url)


def _migrate_queue(url: str) -> list[str] | None:
    """The migrations of the queue's tables; None where there is nothing that could run them."""
    if find_spec("psycopg") is None or find_spec("procrastinate") is None:
        return None
    from ..worker.schema import migrate

    return migrate(url)
