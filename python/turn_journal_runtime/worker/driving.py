"""One due turn in the hands of a worker: looked at, driven by the program's entry, and what became of it."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import ctypes
import inspect
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from ..bridge import default_async_client
from ..errors import (
    JournalConflictError,
    JournalNotFoundError,
    TurnBusyError,
    TurnJournalError,
    TurnSuspended,
    UncertainEffectError,
)
from ..flow import is_async, run_async
from ..turns.due import DueTurn
from ..turns.giving_up import given_up_by
from ..turns.heartbeat import end_host_of
from ..turns.outcome import TurnRecoveryBlockedError, TurnResult
from ..turns.plan import PHASES
from ..turns.recovery import look_at, recoverable_flow
from ..turns.root import open_root

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Container

    from ..session_recovery import SessionBindingResolver
    from ..turns.recovery import AtRest, RecoverableTurn
    from .queue import Job

__all__ = ["Entry", "Event", "Outcome", "due_turn", "in_thread", "outcome_of", "stopped_turns"]

#: What drives a turn: a function of the program, sync or async.
Entry: TypeAlias = "Callable[[DueTurn], Any]"

#: What happens to a turn in a worker.
Event: TypeAlias = Literal["done", "failed", "blocked", "waits", "sleeps", "lost", "dropped", "released", "left"]

#: Seconds after which a turn that did not get on is looked at again; each time in a row it is twice as long.
FIRST_WAIT: Final = 10.0
LONGEST_WAIT: Final = 600.0
#: What a sync entry that was interrupted may take to its end, in seconds.
_END_SECONDS: Final = 3.0


class Outcome(NamedTuple):
    """What became of a turn, and when it is to be looked at again, in seconds since the epoch; None: not by itself."""

    event: Event
    text: str
    again_at: float | None = None


async def due_turn(root: str, job: Job, resolver: SessionBindingResolver | None) -> DueTurn | Outcome | float | None:
    """The turn as it stands, or when it is due; an outcome when somebody gave it up, and None when it is over, may not
    go on, or is driven.

    What the queue believes of it counts for nothing.
    """
    client = default_async_client()
    turns = open_root(root, client.for_threads)
    resume_from, is_failed = PHASES[0], False
    try:
        flow = look_at(turns, job.goal_id, job.turn_key, job.retry_failed)
        found = await run_async(flow, client)
    except JournalNotFoundError:
        pass  # a new one
    else:
        if found is None:
            given_up = await run_async(given_up_by(turns, job.goal_id, job.turn_key), client)
            return None if given_up is None else Outcome("dropped", f"it was given up by {given_up}")
        if found.due_at is not None and found.due_at > time.time():
            return found.due_at
        resume_from, is_failed = found.resume_from or PHASES[0], found.status == "failed"
    return DueTurn(
        runtime_root=root,
        goal_id=job.goal_id,
        agent_id=job.agent_id,
        turn_key=job.turn_key,
        todo_id=job.todo_id,
        turn_instance_id=job.turn_instance_id,
        resume_from=resume_from,
        retry_failed=is_failed,
        session_binding_resolver=resolver,
    )


async def stopped_turns(
    root: str, *, goal_id: str | None, retry_failed: bool, but: Container[tuple[str, str]], at_rest: AtRest
) -> list[RecoverableTurn]:
    """The turns that stopped and may go on now, but for some, by goal and key, and for those at rest: to look into one
    takes three calls."""
    client = default_async_client()
    turns = open_root(root, client.for_threads)
    flow = recoverable_flow(turns, goal_id=goal_id, retry_failed=retry_failed, now=None, but=but, at_rest=at_rest)
    return await run_async(flow, client)


async def outcome_of(entry: Entry, due: DueTurn, job: Job) -> Outcome:
    """Drives a turn by the entry, and says what came of it. Whatever the entry raises stops no other turn."""
    try:
        result = await _driven(entry, due)
    except Exception as error:  # the entry is the program's
        return _outcome_of_error(error, _later(job))
    if isinstance(result, Outcome):
        return result
    if not isinstance(result, TurnResult):
        return Outcome("done", "driven")
    if result.failure_kind == "given_up":
        return Outcome("dropped", f"it was given up: {result.reason}")
    if result.status == "failed":
        why = f"{result.failure_kind or result.failed_phase}: {result.reason}"
        # Where its failure has no back-off, it waits as one that did not get on.
        return Outcome("failed", why, (result.retry_due or _later(job)) if job.retry_failed else None)
    if result.status == "scheduler_action_required":
        return Outcome("waits", "for its scheduler to acknowledge it", _later(job))
    return Outcome("done", f"{result.status}, as it stood" if result.replayed else result.status)


def _outcome_of_error(error: Exception, later: float) -> Outcome:
    match error:
        case TurnBusyError():
            return Outcome("waits", error.message, error.details.get("until") or later)
        case TurnRecoveryBlockedError():
            return Outcome("blocked", error.message, later)
        case TurnSuspended(details={"due_at": float() | int() as due_at}):
            return Outcome("sleeps", error.message, due_at)
        case TurnSuspended() | UncertainEffectError():
            return Outcome("waits", f"{error.kind}: {error.message}", later)
        case JournalConflictError(kind="turn_lease_lost"):
            return Outcome("lost", error.message, later)
        case TurnJournalError():
            return Outcome("failed", f"{error.kind}: {error.message}", later)
        case _:
            return Outcome("failed", f"{type(error).__name__}: {error}", later)


def _later(job: Job) -> float:
    """When a turn that did not get on just now is looked at again."""
    return time.time() + min(FIRST_WAIT * 2.0 ** min(job.again, 10), LONGEST_WAIT)


async def _driven(entry: Entry, due: DueTurn) -> Any:
    answer = entry(due) if is_async(entry) else await _in_thread_to_its_end(partial(entry, due), due.goal_id)
    return await _guarded(answer) if inspect.isawaitable(answer) else answer


async def _in_thread_to_its_end(call: Callable[[], Any], name: str) -> Any:
    """What a sync entry answers. When the drive is cancelled, it is interrupted as by Ctrl-C, and waited for; the
    outcome is that the turn is left, when it does not end by that."""
    thread: list[int] = []

    def entry() -> Any:
        thread.append(threading.get_ident())
        return call()

    answered = in_thread(entry, name)
    try:
        return await asyncio.shield(answered)
    except asyncio.CancelledError:
        for ident in thread:
            # Raised when the thread next does a step of Python; what it waits for beneath is ended where that can be.
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(KeyboardInterrupt))
            end_host_of(ident)
        await asyncio.wait({answered}, timeout=_END_SECONDS)
        if not answered.done():
            return Outcome("left", "it did not end in time, and is free when its lease ends")
        if answered.exception() is None:
            return answered.result()  # just in time
        raise


async def _guarded(answer: Awaitable[Any]) -> Any:
    """Only the worker cancels a drive: a cancellation or an exit of the entry's own is its failure."""
    try:
        return await answer
    except (asyncio.CancelledError, SystemExit) as raised:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise _ended(raised) from None


def _ended(raised: BaseException) -> Exception:
    return raised if isinstance(raised, Exception) else RuntimeError(f"{type(raised).__name__}: {raised}")


def in_thread(call: Callable[[], Any], name: str) -> asyncio.Future[Any]:
    """What a call answers, such as a sync entry. Its thread keeps no process from ending: a turn may be cut off
    anywhere."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(value: Any, error: BaseException | None) -> None:
        if answered.cancelled():
            return
        if error is None:
            answered.set_result(value)
        else:
            answered.set_exception(error)

    def work() -> None:
        value, error = None, None
        try:
            value = context.run(call)
        except BaseException as raised:
            # A generator's end cannot be set on a future, and a program's exit ends no worker.
            error = _ended(raised)
        with contextlib.suppress(RuntimeError):  # the worker has ended
            loop.call_soon_threadsafe(settle, value, error)

    threading.Thread(target=work, name=f"turn-journal-worker {name}", daemon=True).start()
    return answered
