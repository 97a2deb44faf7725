"""`DurableRun`: what an agent's loop is written against."""

from __future__ import annotations

import inspect
import threading
from concurrent.futures import CancelledError
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import InvalidJournalError
from .recording import Call, Step, Write
from .sleeps import Sleeping
from .stepping import _MISS, Arguments, OnChange, T
from .submitted import Submitted

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Executor, Future
    from datetime import datetime, timedelta
    from types import TracebackType

    from .drive import Drive

__all__ = ["DurableRun"]

_PLAIN = frozenset((str, int, float, bool, type(None), dict, list, tuple))


class DurableRun(Sleeping):
    """One drive of one run: recorded steps return what is on record, and real work starts where the record ends.

    A context manager. Left without an error the run is closed (`done`, unless `finish` said otherwise); left with one
    it stays `running` and can be driven again.

    Args:
        journal: Where the run is recorded.
        run_id: The run; a new id begins a run, a known one resumes it, an ended one is replayed without side effects.
        agent: Whose run it is.
        task: What it is for.
        metadata: A JSON object of the caller's.
        max_resumes: How often the run may be resumed; each resume is counted before it starts.
        take_over: Take the run also from a driver that is alive; what that one records afterwards is refused.
        checkpoints: Snapshots of the workspace: taken with every tool's result, restored before a resume replays.

    Raises, from its first step or on entering:
        TurnBusyError: A living driver has the run.
        ResumeBudgetExhaustedError: It was resumed too often.

    Every step may raise:
        ReplayDivergenceError: It is not the recorded step.
        RunEndedError: The run has ended, and the step is not on record.

    After `UncertainEffectError`, `ReplayDivergenceError` or `TurnSuspended` the drive takes no further step; nor after
    one that was cut short (cancelled, interrupted, or its record could not be written), whose outcome is not on record.
    A run that is driven inside of a step and stops in one of the first three ways stops the outer one, too.

    Specified in run-journal.md, section 4.
    """

    def start(self) -> None:
        """Claims the run; steps do it by themselves when it was not done before."""
        self._begin()

    def model(self, fn: Callable[..., T], *args: Any, request: Any = None, on_change: OnChange = "diverge") -> T:
        """A model's decision: asked once, then replayed.

        Args:
            fn: Called with `args`; what it returns is recorded as JSON and returned as such.
            args: Its arguments.
            request: What decides the answer (prompt, model, tools, settings); each field's digest is recorded, and a
                replay with another one is refused. Without it an answer is replayed whatever was asked.
            on_change: `"diverge"`: another request than the recorded one is refused. `"ask_again"`: the model is asked
                again, and the former answer is kept beside the new one.

        Raises:
            RecordedToolError: It failed, and the loop went on after that.
        """
        seq, drive = self._issue()
        answer: T = self._run(self._model(seq, drive, fn, args, request, on_change))
        return answer

    def tool(
        self,
        name: str,
        args: Arguments,
        fn: Callable[..., T],
        *,
        restart_safe: bool = False,
        readback: Callable[[str], Any] | None = None,
        label: str | None = None,
    ) -> T:
        """A tool's call: recorded, run, its result recorded; then replayed and never run again.

        Args:
            name: The tool's name.
            args: What it is called with, JSON; a mapping becomes keyword arguments.
            fn: The tool. `current_idempotency_key()` tells it its key.
            restart_safe: Whether it may be run again when nobody knows whether it ran.
            readback: Called with the key when nobody knows; answers `Committed(result)`, `Absent()` or `Unknown()`.
            label: The model provider's id of the call; kept, never compared.

        Raises:
            UncertainEffectError: It may have run, and its declaration does not say what to do.
            RecordedToolError: It failed, and the loop went on after that.
            InvalidJournalError: The arguments cannot be recorded (nothing was run), or the result cannot (it has run).
        """
        seq, drive = self._issue()
        result: T = self._memo(seq, drive, name, args)
        if result is _MISS:
            result = self._run(self._tool(seq, drive, name, args, fn, restart_safe, readback, label))
        return result

    def submit(
        self,
        executor: Executor,
        name: str,
        args: Arguments,
        fn: Callable[..., T],
        *,
        restart_safe: bool = False,
        readback: Callable[[str], Any] | None = None,
        label: str | None = None,
    ) -> Future[T]:
        """`tool` in another thread: numbered here and now, so that it replays whatever order such calls end in."""
        seq, drive = self._issue()
        step = self._tool(seq, drive, name, args, fn, restart_safe, readback, label)
        future: Submitted[T] = Submitted(partial(self._failure_is_known, seq, drive))
        with self._returned:
            self._submitted.add(future)
            self._beside.add(seq)
        future.add_done_callback(partial(self._has_come_back, seq, drive))
        future.begin(executor, partial(self._run, step))
        return future

    def _failure_is_known(self, seq: int, drive: Drive) -> None:
        with self._lock:
            is_news = seq in self._unknown_failures
            self._unknown_failures.discard(seq)
            next_seq = self._following(drive)
        if not is_news or self._halted is not None or self._has_ended:
            return
        try:
            drive.went_on(seq, next_seq)
        except BaseException as error:
            self._cut_short(error)
            raise

    def _has_come_back(self, seq: int, drive: Drive, future: Future[Any]) -> None:
        if future.cancelled():
            self._given_up(seq, drive, CancelledError())
        with self._returned:
            self._submitted.discard(future)
            self._returned.notify_all()

    def _rest(self) -> None:
        """Waits for the steps in other threads; not with `concurrent.futures.wait`, which never learns of those that
        `shutdown(cancel_futures=True)` has cancelled."""
        here = {threading.get_ident()}
        with self._returned:
            while self._submitted or self._stepping - here:
                self._returned.wait()

    def approval(self, question: str, binds: Any = None) -> Any:
        """The decision on a question that was shown with these arguments.

        Args:
            question: What is asked.
            binds: What the decision is bound to; other arguments need a new one.

        Raises:
            TurnSuspended: There is no decision yet; the question is recorded.
        """
        seq, drive = self._issue()
        return self._run(self._approval(seq, drive, question, binds))

    def iteration(self, index: int) -> int:
        """Where the loop is; `RunJournal.last_iteration` finds the highest."""
        seq, drive = self._issue()
        return self._run(self._iteration(seq, drive, index))

    def verification(self, name: str, success: bool, **details: Any) -> dict[str, Any]:
        """The outcome of a check, as it was when it was first recorded."""
        seq, drive = self._issue()
        return self._run(self._verification(seq, drive, name, success, details))

    def now(self) -> float:
        """The time in seconds since the epoch, read once."""
        seq, drive = self._issue()
        return self._run(self._now(seq, drive))

    def random(self) -> float:
        """A random number from 0 up to 1, drawn once."""
        seq, drive = self._issue()
        return self._run(self._random(seq, drive))

    def uuid(self) -> str:
        """A random UUID, made once."""
        seq, drive = self._issue()
        return self._run(self._uuid(seq, drive))

    def sleep(self, seconds: float | timedelta, *, suspend: bool = False) -> None:
        """Waits that long, once: a later drive waits only for what is left, and one that comes after it not at all.

        The first drive records until when. That is a moment of the wall clock: where the clock is set forward the sleep
        ends earlier, where it is set back a drive waits no longer than the sleep was to last. One that has had its time
        is waited for again if the clock then says that it has not.

        Args:
            seconds: How long; on a replay it must be what it was.
            suspend: Do not wait here: the drive ends with `TurnSuspended`, and the run is driven again when it is time.

        Raises:
            TurnSuspended: It is not time yet; `details["due_at"]` says when, in seconds since the epoch.
            TurnBusyError: Another driver has taken the run over meanwhile.
            JournalConflictError: The drive has ended meanwhile.
        """
        seq, drive = self._issue()
        self._run(self._sleep(seq, drive, seconds, suspend))

    def sleep_until(self, moment: float | datetime, *, suspend: bool = False) -> None:
        """Waits until the wall clock has come to a moment; at once when it has passed.

        Args:
            moment: Seconds since the epoch, or a datetime with a time zone; on a replay it must be what it was, so take
                it from `now()` or from the run's task, not from the clock.
            suspend: As `sleep`.

        Raises:
            TurnSuspended: It is not time yet; `details["due_at"]` says when, in seconds since the epoch.
            TurnBusyError: Another driver has taken the run over meanwhile.
            JournalConflictError: The drive has ended meanwhile.
        """
        seq, drive = self._issue()
        self._run(self._sleep_until(seq, drive, moment, suspend))

    def _pause(self, seconds: float) -> None:
        woken = threading.Event()
        self._sleepers.add(woken.set)
        try:
            if self._halted is None and not self._is_over:
                woken.wait(seconds)
        finally:
            self._sleepers.discard(woken.set)

    def finish(self, outcome: str = "done") -> None:
        """Closes the run and ends the drive, once its steps in flight have ended.

        Raises:
            ReplayDivergenceError: The record has steps that the loop did not take.
        """
        self._must_be_in_the_loop()
        self._close()
        try:
            self._rest()
            self._finish(outcome)
        finally:
            self._is_over = self._has_ended

    def release(self) -> None:
        """Ends the drive and leaves the run to be resumed."""
        self._release()

    def __enter__(self) -> DurableRun:
        self._begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()
        try:
            if error is not None:
                for future in list(self._submitted):
                    future.cancel()
            # What a step in flight comes to is recorded while the run is still ours.
            if error is None or isinstance(error, Exception):
                self._rest()
            if error is None and self._halted is None:
                self._finish("done")
        finally:
            self._release()

    def _run(self, step: Step[T]) -> T:
        thread = threading.get_ident()
        self._stepping.add(thread)
        try:
            return self._done(step)
        finally:
            self._stepping.discard(thread)
            if self._is_over:  # and perhaps waited for
                with self._returned:
                    self._returned.notify_all()

    def _done(self, step: Step[T]) -> T:
        try:
            self._must_not_be_halted()
            action = next(step)
            while True:
                try:
                    outcome = _perform(action)
                except BaseException as error:
                    if isinstance(action, Write) or not isinstance(error, Exception):
                        self._cut_short(error)
                    action = step.throw(error)
                else:
                    action = step.send(outcome)
        except StopIteration as end:
            result: T = end.value
            return result


def _perform(action: Call | Write) -> Any:
    outcome = action()
    # Most results are of a type that is plain to see, and the question costs more than many a tool.
    if isinstance(action, Write) or type(outcome) in _PLAIN or not inspect.isawaitable(outcome):
        return outcome
    if inspect.iscoroutine(outcome):
        outcome.close()
    name = getattr(action.func, "__name__", action.func)
    raise InvalidJournalError(f"{name!r:.80} is async; use AsyncDurableRun.", kind="invalid_request")
