"""The commands that take runs out of a journal and put them into one: export, import, backup."""

from __future__ import annotations

import shlex
import sys
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidJournalError, JournalConflictError, JournalCorruptError, JournalNotFoundError
from ..run_journal.copying import arrived, put_arrived
from ..run_journal.filesystem import new_file
from ..run_journal.listing import summary
from ..typed_command import typed_command
from .invocation import FormatOption, RootOption, answering
from .output import Format, Line, Lines, Report, counted
from .place import DatabaseOption, open_journal, open_or_make_journal, said_place
from .runs import RunArgument, run_named, short_run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .run_documents import BackedUp, ExportedRun, ImportedRun

#: Standard input of an import, standard output of an export.
_STANDARD = "-"


@answering
def export(
    run_id: RunArgument,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", help="A new file, or - for standard output, the default.", metavar="FILE", show_default=False
        ),
    ] = None,
    db: DatabaseOption = None,
    root: RootOption = None,
    format: FormatOption = Format.table,
) -> Report:
    """Write one run as lines of JSON, for `run import` and for keeping beside the code as a test.

    What was recorded is in it, as it was recorded. On standard output the lines are the whole answer, whatever
    --format says; a file is written whole or not at all, for its owner alone, and replaces none.
    """
    with open_journal(db, root) as journal:
        run_id = run_named(journal, run_id)
        lines = journal.export(run_id)
    if to is None or str(to) == _STANDARD:
        return Report(Lines(lines), [])
    path, count = to.absolute(), 0
    with new_file(path) as file, file.open("wb") as stream:
        for line in lines:
            stream.write(f"{line}\n".encode())
            count += 1
    answer: ExportedRun = {"ok": True, "run_id": run_id, "path": str(path), "lines": count}
    said = f"{short_run(run_id)} is in {path}, {counted(count, 'line')}; `turn-journal run import` takes it."
    return Report(answer, [Line(said, "green")])


@answering
def import_run(
    file: Annotated[str, typer.Argument(help="What `run export` wrote, or - for standard input.", metavar="FILE")],
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace the run of that id, if there is one.")
    ] = False,
    db: DatabaseOption = None,
    root: RootOption = None,
    format: FormatOption = Format.table,
) -> Report:
    """Store a run that was exported, whole or not at all. The journal is made when it is not there.

    A run that somebody drives is not replaced.
    """
    with ExitStack() as stack:
        with _said_of(file):
            run = stack.enter_context(arrived(_lines(file)))
        # What is wrong with the journal is not said of the file.
        journal = stack.enter_context(open_or_make_journal(db, root))
        with _said_of(file):
            is_replaced = put_arrived(journal, run, overwrite=overwrite)
        found = summary(journal, run.run_id)
    run_id = found.run_id
    answer: ImportedRun = {
        "ok": True,
        "run_id": run_id,
        "replaced": is_replaced,
        "status": found.status,
        "events": found.events,
        "interrupted": found.interrupted,
    }
    how = "replaces the one that was here" if is_replaced else "is imported"
    lines = [Line(f"{short_run(run_id)} {how}, with {counted(found.events, 'event')}.", "green")]
    if found.interrupted:
        look = typed_command("run show", [short_run(run_id)], said_place(db, root))
        lines.append(Line(f"It has not ended. `{look}` says how it stands; drive it in one journal only."))
    return Report(answer, lines)


@contextmanager
def _said_of(file: str) -> Iterator[None]:
    """What is wrong with a run that a file brings, as the file's fault."""
    try:
        yield
    except InvalidJournalError as error:
        named = "Standard input" if file == _STANDARD else file
        raise JournalCorruptError(f"{named}: {error.message}", details=error.details) from error
    except JournalConflictError as error:
        raise JournalConflictError(
            f"Run {error.details['run_id']!r} is here already; nothing was imported. --overwrite replaces it.",
            details=error.details,
        ) from None


def _lines(file: str) -> Iterator[str]:
    is_file = file != _STANDARD
    if is_file and not Path(file).exists():
        raise JournalNotFoundError(
            f"There is no file {file}; `turn-journal run export` makes one.",
            kind="export_not_found",
            details={"path": file},
        )
    with Path(file).open("rb") if is_file else nullcontext(sys.stdin.buffer) as lines:
        for line in lines:
            # What is no text is told as what it is: no line of an export.
            yield line.decode(errors="surrogateescape")


@answering
def backup(
    to: Annotated[Path, typer.Option("--to", help="A new file.", metavar="FILE", show_default=False)],
    db: DatabaseOption = None,
    root: RootOption = None,
    format: FormatOption = Format.table,
) -> Report:
    """Copy a whole run journal while it is in use. Never copy its file by hand: what is in its log would be missing.

    The copy is a journal, of a database's runs, too. It appears whole or not at all, and replaces nothing.
    """
    path = to.absolute()
    with open_journal(db, root) as journal:
        journal.backup(path)
    answer: BackedUp = {"ok": True, "path": str(path)}
    look = f"turn-journal runs --db {shlex.quote(str(to))}"
    return Report(answer, [Line(f"All runs are in {path}, a journal by itself: `{look}`.", "green")])
