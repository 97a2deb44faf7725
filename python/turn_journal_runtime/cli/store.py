"""The commands on a store itself."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..bridge import default_client
from .invocation import FormatOption, answering
from .output import Format, Line, Report

if TYPE_CHECKING:
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
