"""What all commands share: their common options, how a turn is named, and what an error exits with."""

from __future__ import annotations

import functools
import getpass
import importlib
import os
import re
import shlex
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, ParamSpec, TypeAlias

import typer

from ..address import absolute, is_database
from ..errors import (
    InvalidJournalError,
    JournalCorruptError,
    JournalNotFoundError,
    StoreUnavailableError,
    TurnJournalError,
)
from ..typed_command import typed_command
from .output import Format, Report, show, show_error

if TYPE_CHECKING:
    from collections.abc import Callable

P = ParamSpec("P")

ROOT_VARIABLE = "TURN_JOURNAL_ROOT"

#: A turn's files, any of which names it: a shell completes them.
_FILE = re.compile(r"(.+)\.(?:json|history\.jsonl|lock|lease)")
_HASHED = "sha256:"
_PART_OF_A_HASH = re.compile("[0-9a-f]{4,64}")
_WHOLE_KEY = len(_HASHED) + 64
_SHORT_KEY = len(_HASHED) + 12

FormatOption: TypeAlias = Annotated[
    Format, typer.Option("--format", "-f", help="How the answer is written.", rich_help_panel="Output")
]
RootOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--root",
        "-r",
        envvar=ROOT_VARIABLE,
        help="Where the turns are: the folder that has `goals/`, or postgresql://…. Default: this folder, if it does.",
        metavar="DIR|URL",
    ),
]
TurnArgument: TypeAlias = Annotated[
    str, typer.Argument(help="GOAL/KEY as `list` shows it, or the path of one of its files.", metavar="TURN")
]
ResolverOption: TypeAlias = Annotated[
    str | None,
    typer.Option(
        "--resolver",
        help="What finds a session that outlived its host: `module:function`, called with the turn's envelope.",
        metavar="MODULE:FUNCTION",
    ),
]
YesOption: TypeAlias = Annotated[bool, typer.Option("--yes", "-y", help="Do it; without, only say what would be done.")]


class TurnAddress(NamedTuple):
    """Where a turn is."""

    root: str
    goal_id: str
    turn_key: str

    def __str__(self) -> str:
        return f"{self.goal_id}/{self.turn_key}"

    @property
    def short(self) -> str:
        """As tables show it."""
        return short_name(self.goal_id, self.turn_key)


def answering(command: Callable[P, Report | None]) -> Callable[P, None]:
    """Makes a command of a function that returns a report: shows it, and turns errors into messages and exit codes."""

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        format = kwargs.get("format")
        wanted = format if isinstance(format, Format) else Format.table
        try:
            report = command(*args, **kwargs)
        except TurnJournalError as error:
            hint = _hint(error, kwargs.get("turn"), kwargs.get("root"))
            show_error(error.message, kind=error.kind, details=error.details, format=wanted, hint=hint)
            raise typer.Exit(exit_code(error)) from None
        except typer.BadParameter as error:
            if wanted is not Format.json:
                raise  # typer shows it, with the command's usage
            show_error(error.format_message(), kind="invalid_request", details={}, format=wanted)
            raise typer.Exit(2) from None
        except OSError as error:
            where = "" if error.filename is None else f"{error.filename}: "
            show_error(f"{where}{error.strerror or error}", kind="io_failed", details={}, format=wanted)
            raise typer.Exit(1) from None
        if report is not None:
            _show(report, wanted)
            if report.code:
                raise typer.Exit(report.code)

    return run


def _show(report: Report, format: Format) -> None:
    try:
        show(report, format)
        sys.stdout.flush()
    except BrokenPipeError:
        raise  # who reads has seen enough: typer ends the command without a word
    except OSError as error:
        # What could not be written is not tried again when the interpreter ends.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        message = f"The answer could not be written: {error.strerror or error}. What the command did is done."
        show_error(message, kind="io_failed", details={}, format=format)
        raise typer.Exit(1) from None


def _hint(error: TurnJournalError, turn: Any, root: Any) -> str:
    """What a person can do about an error, of the turn that was named for instance, where the error does not say it."""
    if isinstance(error, StoreUnavailableError) and "reached" not in error.message:
        return "See that the server runs, and that it can be reached from here."
    if turn is None or "turn-journal" in error.message or "repaired" in error.message:
        return ""
    if isinstance(error, JournalCorruptError):
        # An address of a database may hold a password.
        typed = typed_command("repair", ["TURN" if is_database(turn) else turn], said_root(root))
        return f"`{typed}` says what could be put right; it changes nothing without --yes."
    if isinstance(error, JournalNotFoundError) and error.kind != "root_not_found":
        return "`turn-journal list` shows the turns that are there, `turn-journal history` their transitions."
    return ""


def exit_code(error: TurnJournalError) -> int:
    """What an error exits with; see `explanations.EXIT_CODES`."""
    if isinstance(error, JournalNotFoundError):
        return 3
    if isinstance(error, JournalCorruptError):
        return 4
    if isinstance(error, InvalidJournalError) and error.kind == "invalid_request":
        return 2
    return 1


def root_of(root: str | None) -> str:
    """The runtime root that was asked for, or the one of the working folder.

    Raises:
        typer.BadParameter: None was given and the working folder is none, or an empty one was.
        JournalNotFoundError: The one that was given is not there.
    """
    must_be_said(root, "--root")
    if root is None:
        if not Path("goals").is_dir():
            raise typer.BadParameter(
                f"Say where the turns are: --root DIR or {ROOT_VARIABLE}. This folder has no goals/.",
                param_hint="--root",
            )
        return os.getcwd()
    if not is_database(root) and not Path(absolute(root)).is_dir():
        raise JournalNotFoundError(
            f"There is no folder {root}. Name the one that has goals/.", kind="root_not_found", details={"root": root}
        )
    return root


def must_be_said(place: str | None, option: str) -> None:
    """Refuses an empty place: a variable of a script that is not set would stand for the working folder.

    Raises:
        typer.BadParameter: It is empty.
    """
    if place == "":
        raise typer.BadParameter("It is empty: say which place, or leave it out.", param_hint=option)


def is_typed(value: str | None, variable: str) -> bool:
    """Whether an option was given on the command line, and not by its variable."""
    return value is not None and value != os.environ.get(variable)


def said_again(option: str, value: str | None, variable: str) -> str:
    """An option as it has to be said again in the next command."""
    if value is None or not is_typed(value, variable):
        return ""
    # An address may hold a password.
    return f" {option} {'URL' if is_database(value) else shlex.quote(value)}"


def said_root(root: str | None) -> str:
    """Where the turns are, as it was said, to be said again in the next command."""
    return said_again("--root", root, ROOT_VARIABLE)


def shown_root(root: str) -> str:
    """What a root is called in a message: an address of a database may hold a password."""
    return "the database" if is_database(root) else root


def address_of(turn: str, root: str | None) -> TurnAddress:
    """Where the turn is that was named: `GOAL/KEY`, or a file of it: `…/goals/GOAL/turns/NAME.json`.

    Raises:
        typer.BadParameter: It is neither.
    """
    path = Path(turn)
    if is_database(turn):
        turn_root, _, turn = turn.partition("#goals/")
        goal_id, turns, name = turn.partition("/turns/")
        if not turns or not name.endswith(".json"):
            raise typer.BadParameter("A turn in a database is <URL>#goals/<goal>/turns/<name>.json.", param_hint="TURN")
        return TurnAddress(turn_root, goal_id, _key_of(name.removesuffix(".json")))
    file = _FILE.fullmatch(path.name)
    if file is not None and (path.exists() or turn.count("/") > 1):
        where = Path(os.path.abspath(turn)).parts
        if len(where) < 5 or where[-2] != "turns" or where[-4] != "goals":
            raise typer.BadParameter(
                f"{turn} is not where a turn lives: <root>/goals/<goal>/turns/<name>.json.", param_hint="TURN"
            )
        return TurnAddress(str(Path(*where[:-4])), where[-3], _key_of(file[1]))
    goal_id, slash, turn_key = turn.partition("/")
    if not slash or not goal_id or not turn_key:
        raise typer.BadParameter("Name a turn as GOAL/KEY, or by the path of one of its files.", param_hint="TURN")
    found = root_of(root)
    return TurnAddress(found, goal_id, _whole_key(found, goal_id, turn_key))


def _key_of(name: str) -> str:
    """The key that a journal's name stands for."""
    is_hash = len(name) == 64 and all(character in "0123456789abcdef" for character in name)
    return f"{_HASHED}{name}" if is_hash else name


def short_name(goal_id: str, turn_key: str) -> str:
    """A turn as tables show it."""
    return f"{goal_id}/{short_key(turn_key)}"


def short_key(turn_key: str) -> str:
    """A turn's key as tables show it, and as `address_of` takes it."""
    return turn_key[:_SHORT_KEY] if turn_key.startswith(_HASHED) else turn_key


def _whole_key(root: str, goal_id: str, turn_key: str) -> str:
    """The key that a short one stands for, as git does with its hashes: with or without what says that it is one."""
    hashed = turn_key.startswith(_HASHED)
    if len(turn_key) == _WHOLE_KEY or not (hashed or _PART_OF_A_HASH.fullmatch(turn_key)):
        return turn_key
    from ..store import list_turn_journals

    keys = [turn["turn_key"] for turn in list_turn_journals(root, goal_id=goal_id)]
    found = [key for key in keys if key.startswith(turn_key if hashed else _HASHED + turn_key)]
    if not hashed and (turn_key in keys or not found):
        return turn_key
    if not found:
        raise JournalNotFoundError(
            f"Goal {goal_id} has no turn {turn_key}…; `turn-journal list` shows those it has.",
            details={"goal_id": goal_id, "turn_key": turn_key},
        )
    if len(found) > 1:
        raise typer.BadParameter(f"{turn_key} could be {len(found)} turns: give more of it.", param_hint="TURN")
    return found[0]


def must_be_stored(where: TurnAddress) -> None:
    """Refuses a turn that is not there: it would look like one that is whole and has nothing to do.

    Raises:
        JournalNotFoundError: There is none.
    """
    from ..journal import load_turn_journal, turn_journal_path

    # What is damaged is there.
    with suppress(JournalCorruptError):
        load_turn_journal(turn_journal_path(where.root, goal_id=where.goal_id, turn_key=where.turn_key))


def owner_of(journal: dict[str, Any]) -> str:
    """The agent that a journal names, or nobody."""
    plan = journal.get("plan")
    envelope = plan.get("turn_envelope") if isinstance(plan, dict) else None
    owner = envelope.get("agent_id") if isinstance(envelope, dict) else journal.get("agent_id")
    return owner if isinstance(owner, str) else ""


def this_user(says: str) -> str:
    """The name of who calls.

    Raises:
        typer.BadParameter: There is none, as in a container; `says` is what it would say.
    """
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        raise typer.BadParameter(f"This user has no name: say {says}.", param_hint="--by") from None


def callable_named(named: str, hint: str) -> Callable[..., Any]:
    """The function that `module:function` names; the working folder's modules are found, too.

    Raises:
        typer.BadParameter: There is no such function, or its module fails when it is loaded.
    """
    module, _, name = named.partition(":")
    if not module or not name:
        raise typer.BadParameter(f"Name it as module:function, not {named}.", param_hint=hint)
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = functools.reduce(getattr, name.split("."), importlib.import_module(module))
    except Exception as error:  # whatever the caller's module raises while it is loaded
        raise typer.BadParameter(
            f"{named} cannot be loaded: {type(error).__name__}: {error}", param_hint=hint
        ) from None
    if not callable(found):
        raise typer.BadParameter(f"{named} is not callable.", param_hint=hint)
    named_callable: Callable[..., Any] = found
    return named_callable


def given_json(text: str, hint: str) -> Any:
    """A JSON value from the command line; a bare word is taken as text."""
    import json

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        return json.loads(text, parse_constant=refuse)
    except ValueError:
        if text[:1] in '{["':
            raise typer.BadParameter("It begins like JSON and is none.", param_hint=hint) from None
        return text
