"""`turn-journal recover`: what would happen to the turns that stopped, and driving them on."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from datetime import datetime
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Annotated, Any, Final, NamedTuple

import typer

from ..bridge import default_client
from ..errors import TurnJournalError, TurnSuspended
from ..flow import answered
from ..journal import inspect_turn_journal, load_turn_journal, turn_journal_path
from ..journal_flows import BINDING_CHECK_UNAVAILABLE
from ..store import list_turn_journals, recoverable_turn_journals
from ..turns.due import DueTurn
from ..turns.lease import is_driven
from ..turns.outcome import TurnResult, retry_due
from ..turns.transitions import giving_up
from .explanations import explain_reason
from .history import was_pruned
from .invocation import (
    FormatOption,
    ResolverOption,
    RootOption,
    YesOption,
    address_of,
    answering,
    callable_named,
    must_be_stored,
    owner_of,
    root_of,
    short_name,
)
from .listing import no_turns, trouble_of
from .output import Block, Format, Line, Report, Rows, err
from .progress import each
from .runs import moment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

    from ..documents import ListedTurn, RecoverableJournal, RecoveryDecision
    from ..session_recovery import SessionBindingResolver
    from .documents import RecoveredTurn

#: Where a package registers the function that drives its turns.
ENTRY_POINTS: Final = "turn_journal_runtime.recover"


#: A service manager's request to end, and the end of a terminal.
_POLITE: Final = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class _Stopped(NamedTuple):
    """A turn that stopped; `waits` says why it is left alone for now."""

    turn: RecoverableJournal
    waits: str | None


@answering
def recover(
    turn: Annotated[str | None, typer.Argument(help="One turn: GOAL/KEY or a path. Default: all.", metavar="TURN")] = (
        None
    ),
    root: RootOption = None,
    goal: Annotated[str | None, typer.Option("--goal", "-g", help="Only the turns of this goal.")] = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Failed turns, too.")] = False,
    entry: Annotated[
        str | None,
        typer.Option(
            "--entry",
            "-e",
            help="What drives a turn: `module:function`, sync or async, or the name of an entry point. "
            f"Default: the only one registered under {ENTRY_POINTS}.",
        ),
    ] = None,
    resolver: ResolverOption = None,
    yes: YesOption = False,
    format: FormatOption = Format.table,
) -> Report:
    """Say what would happen to the turns that stopped; with --yes, drive them on.

    The entry point is called with one `DueTurn` after the other. A turn that a living process drives is left alone, and
    so is one whose back-off has not passed or that was given up, unless it is named. One that fails does not stop the
    others; the command then exits with 1.
    """
    if turn is not None:
        where = address_of(turn, root)
        runtime_root, goal = where.root, where.goal_id
    else:
        where, runtime_root = None, root_of(root)
    resolve = None if resolver is None else callable_named(resolver, "--resolver")
    named = None if where is None else where.turn_key
    found = each("Looking", _stopped(runtime_root, goal, retry_failed, resolve, named))
    if not found:
        if where is not None:
            must_be_stored(where)
        nothing = (
            no_turns(runtime_root, goal) or "Nothing to recover."
            if where is None
            else "That turn may not go on, or is over; `turn-journal inspect` says which, and why."
            + ("" if retry_failed else " A failed one goes on with --retry-failed.")
        )
        return Report([], [Line(nothing, "green" if where is None else "yellow")], code=0 if where is None else 1)
    drive = _entry(entry) if yes and any(one.waits is None and one.turn["damage"] is None for one in found) else None
    rows: list[tuple[str, ...]] = []
    document: list[RecoveredTurn] = []
    for one, waits in found:
        name = short_name(one["goal_id"], one["turn_key"])
        decision, damage, outcome = one["recovery_decision"], one["damage"], None
        if damage is not None or decision is None:
            rows.append((name, trouble_of(damage) if damage else "damaged", damage["message"] if damage else "", ""))
        else:
            if drive is not None and waits is None:
                outcome = _driven(drive, _due(runtime_root, one, decision, resolve))
            rows.append((name, one["status"] or "", _plan(decision) if waits is None else waits, outcome or ""))
        document.append({"turn": one, "waits": waits, "outcome": outcome})
    columns = ("turn", "status", "what would happen" if not yes else "what was to happen", "outcome")
    blocks: list[Block] = [Rows(columns if yes else columns[:3], rows if yes else [row[:3] for row in rows])]
    if not yes:
        blocks.append(Line("Nothing was changed. Add --yes and an entry point to drive them on.", "dim"))
        blocks.append(Line("`turn-journal give-up` ends one that shall not go on.", "dim"))
    failed = any((one["outcome"] or "").startswith("failed") for one in document)
    return Report(document, blocks, code=1 if failed else 0)


def _stopped(
    runtime_root: str, goal: str | None, retry_failed: bool, resolver: SessionBindingResolver | None, named: str | None
) -> Iterator[_Stopped]:
    """The turns that stopped and may go on, and those that cannot be read; all, or the one that was named."""
    for turn in recoverable_turn_journals(runtime_root, goal_id=goal):
        if named in (None, turn["turn_key"]):
            yield _Stopped(turn, None if turn["damage"] is not None else _driver(runtime_root, turn))
    for listed in list_turn_journals(runtime_root, goal_id=goal, status="failed") if retry_failed else ():
        # Damaged ones were among those before.
        if listed["damage"] is None and named in (None, listed["turn_key"]):
            failed = _failed(runtime_root, listed, resolver, is_named=named is not None)
            if failed is not None:
                yield failed


def _failed(
    runtime_root: str, listed: ListedTurn, resolver: SessionBindingResolver | None, *, is_named: bool
) -> _Stopped | None:
    """A failed turn that may be tried again; one that was given up only when it is named, and one in its back-off, too.
    Where nobody resolved its session its driver may still know it."""
    goal_id, turn_key = listed["goal_id"], listed["turn_key"]
    turn: RecoverableJournal = {
        "goal_id": goal_id,
        "turn_key": turn_key,
        "damage": None,
        "agent_id": None,
        "status": listed["status"],
        "completed_phases": listed["completed_phases"],
        "recovery_decision": None,
    }
    try:
        path = turn_journal_path(runtime_root, goal_id=goal_id, turn_key=turn_key)
        journal = load_turn_journal(path)
        agent = owner_of(journal)
        if not agent or (giving_up(journal) is not None and (not is_named or was_pruned(path))):
            return None
        decision = inspect_turn_journal(
            runtime_root,
            goal_id=goal_id,
            agent_id=agent,
            turn_key=turn_key,
            retry_failed=True,
            session_binding_resolver=resolver,
        )["recovery_decision"]
    except TurnJournalError as error:
        return _Stopped({**turn, "damage": {"kind": error.kind, "message": error.message}}, None)
    if not decision["can_continue"] and decision["reason"] != BINDING_CHECK_UNAVAILABLE:
        return None
    due = retry_due(journal, datetime.fromisoformat(listed["updated_at"] or "").timestamp())
    waits = None if is_named or due is None or due <= time.time() else f"left alone: its back-off ends at {moment(due)}"
    turn = {**turn, "agent_id": agent, "recovery_decision": decision}
    return _Stopped(turn, _driver(runtime_root, turn) or waits)


def _driver(runtime_root: str, turn: RecoverableJournal) -> str | None:
    driver = driver_of(runtime_root, turn["goal_id"], turn["turn_key"])
    return None if driver is None else f"left alone: {driver}"


def driver_of(runtime_root: str, goal_id: str, turn_key: str) -> str | None:
    """That somebody drives a turn, in words."""
    path = turn_journal_path(runtime_root, goal_id=goal_id, turn_key=turn_key)
    if isinstance(path, str):
        held = default_client().call("turn_lease.holder", {"path": path})["remaining_ms"] > 0
        return "the lease of its driver still holds" if held else None
    return "a living process drives it" if is_driven(path) else None


def _plan(decision: RecoveryDecision) -> str:
    if not decision["can_continue"]:
        return f"goes on from {decision['resume_from']} if its driver finds the session that outlived its host"
    host = "; the host is started again" if decision["reinvoke_host"] else ""
    return f"goes on from {decision['resume_from']}{host}: {explain_reason(decision['reason']).why}"


def _driven(drive: Callable[[DueTurn], Any], turn: DueTurn) -> str:
    with err().status(f"Driving {short_name(turn.goal_id, turn.turn_key)} …"), _let_go_when_told_to_end():
        try:
            result = answered(drive(turn))
        except TurnSuspended as error:
            return f"waits: {error.message}"
        except TurnJournalError as error:
            return f"failed: {error.kind}: {error.message}"
        # The entry point is the caller's, and the other turns are to go on, also after one that exits.
        except (Exception, SystemExit) as error:
            return f"failed: {type(error).__name__}: {error}"
    if isinstance(result, TurnResult) and result.status == "failed":
        cause = result.cause
        raised = cause is not None and not isinstance(cause, TurnJournalError)
        return f"failed: {type(cause).__name__}: {cause}" if raised else f"failed: {result.reason}"
    return str(getattr(result, "status", "driven"))


@contextlib.contextmanager
def _let_go_when_told_to_end() -> Iterator[None]:
    """What ends a process politely interrupts the turn at hand as Ctrl-C does, which frees it, and then ends it."""
    told: list[int] = []

    def interrupt(which: int, frame: FrameType | None) -> None:
        told.append(which)
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # ignored, as a shell has it for what it starts in the background
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)

    here = threading.current_thread() is threading.main_thread()
    taken = [one for one in _POLITE if here and signal.getsignal(one) is signal.SIG_DFL]
    for one in taken:
        signal.signal(one, interrupt)
    try:
        yield
    finally:
        for one in taken:
            signal.signal(one, signal.SIG_DFL)
        if told:
            signal.raise_signal(told[0])


def _due(
    runtime_root: str,
    one: RecoverableJournal,
    decision: RecoveryDecision,
    resolver: SessionBindingResolver | None,
) -> DueTurn:
    journal = load_turn_journal(turn_journal_path(runtime_root, goal_id=one["goal_id"], turn_key=one["turn_key"]))
    return DueTurn(
        runtime_root=runtime_root,
        goal_id=one["goal_id"],
        agent_id=one["agent_id"] or "",
        turn_key=one["turn_key"],
        todo_id=_text_at(journal, "plan", "turn_envelope", "action", "selected_todo", "todo_id"),
        turn_instance_id=_text_at(journal, "plan", "transaction", "turn_instance_id"),
        resume_from=decision["resume_from"] or "",
        retry_failed=one["status"] == "failed",
        session_binding_resolver=resolver,
    )


def _text_at(value: Any, *path: str) -> str | None:
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, str) else None


def _entry(named: str | None) -> Callable[[DueTurn], Any]:
    """The function that was named.

    Raises:
        typer.BadParameter: There is none, or more than one that could be meant.
    """
    if named is not None and ":" in named:
        return callable_named(named, "--entry")
    registered = [point for point in entry_points(group=ENTRY_POINTS) if named in (None, point.name)]
    if len(registered) != 1:
        names = ", ".join(point.name for point in registered) or "none"
        raise typer.BadParameter(
            f"Say what drives the turns: --entry module:function. Registered under {ENTRY_POINTS}: {names}.",
            param_hint="--entry",
        )
    return callable_named(f"{registered[0].module}:{registered[0].attr}", "--entry")
