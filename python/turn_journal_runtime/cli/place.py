"""Where the runs are that a command is about."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from ..address import absolute, is_database
from ..errors import JournalNotFoundError
from ..run_journal import RunJournal
from ..run_journal.filesystem import default_path
from ..turns.folder_root import run_journal_path
from .invocation import ROOT_VARIABLE, is_typed, must_be_said, root_of, said_again, said_root

_VARIABLE = "TURN_JOURNAL_RUNS"

DatabaseOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--db",
        envvar=_VARIABLE,
        help="The run journal: a file, or postgresql://…. "
        "Default: that of the turns; where there are none, runs/journal.db in TURN_JOURNAL_HOME or the folder for "
        "user data.",
        metavar="FILE|URL",
    ),
]


def open_journal(db: str | None, root: str | None) -> RunJournal:
    """The journal, which must be there: no command makes one."""
    where = _place_of(db, root)
    if not is_database(where) and not Path(absolute(where)).exists():
        raise JournalNotFoundError(
            f"There is no run journal at {where}; name it with --db or {_VARIABLE}, or its turns with --root.",
            kind="run_journal_not_found",
            details={"path": where},
        )
    return RunJournal(where)


def open_or_make_journal(db: str | None, root: str | None) -> RunJournal:
    """The journal, which is made when it is not there."""
    return RunJournal(_place_of(db, root))


def _place_of(db: str | None, root: str | None) -> str:
    """The journal that is named, or that of the turns that are, or the user's."""
    must_be_said(db, "--db")
    db = _meant(db, root)
    if db is not None:
        return db
    if root is None and not (Path("goals").is_dir() and run_journal_path(".").exists()):
        return str(default_path())
    found = root_of(root)
    return found if is_database(found) else str(run_journal_path(found))


def _meant(db: str | None, root: str | None) -> str | None:
    """The journal, unless it is named by a variable alone, and turns are named where the command was typed.

    Raises:
        typer.BadParameter: Both were typed.
    """
    if not is_typed(root, ROOT_VARIABLE):
        return db
    if is_typed(db, _VARIABLE):
        raise typer.BadParameter(
            "Give one of --db and --root: the runs of --root are those of its turns.", param_hint="--db"
        )
    return None


def said_place(db: str | None, root: str | None) -> str:
    """Where the runs are, as it was said, to be said again in the next command."""
    db = _meant(db, root)
    return said_root(root) if db is None else said_again("--db", db, _VARIABLE)
