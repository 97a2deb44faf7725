"""The commands on a store itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..bridge import default_client
from ..errors import JournalStoreError
from .invocation import FormatOption, answering
from .output import Format, Line, Report

if TYPE_CHECKING:
    from ..documents import MigrateResult


@answering
def migrate(
    url: Annotated[str, typer.Argument(help="The database: postgresql://…", metavar="URL", show_default=False)],
    format: FormatOption = Format.table,
) -> Report:
    """Make the tables of a database, or bring them up to what this version needs.

    Those for turns and those for runs are made where the URL's user looks first: in its `public` schema, or in the one
    that `?options=-csearch_path%3DNAME` names. Nothing else ever makes or changes them.
    """
    answer: Any = default_client().call("store.migrate", {"runtime_root": url})
    done: MigrateResult = answer
    last = Line(f"The tables are of version {done['version']}.")
    try:
        from ..run_journal.postgres import migrate as migrate_runs
    except JournalStoreError as error:
        last = Line(f"The tables for runs were left out. {error.message}", "yellow")
    else:
        done["applied"] += migrate_runs(url)
    return Report(done, [*(Line(f"Ran {name}.", "green") for name in done["applied"]), last])
