"""A step in a thread of the caller's, and the moment at which the loop learns how it ended.

Specified in run-journal.md, section 4.
"""

from __future__ import annotations

from concurrent.futures import Executor, Future
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Submitted"]

T = TypeVar("T")


class Submitted(Future[T]):
    """What an executor makes of a step.

    Args:
        on_failure_known: Called when the loop asks how a step ended that has failed; what it issues from then on, it
            may issue because of that.
    """

    def __init__(self, on_failure_known: Callable[[], None]) -> None:
        super().__init__()
        self._on_failure_known = on_failure_known

    def begin(self, executor: Executor, step: Callable[[], T]) -> None:
        """Gives the step to the executor, which runs it in the context of the caller."""
        try:
            task = executor.submit(copy_context().run, _run, self, step)
        except BaseException:
            self.cancel()
            raise
        task.add_done_callback(self._task_has_ended)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        error = super().exception(timeout)
        if error is not None:
            self._on_failure_known()
        return error

    def result(self, timeout: float | None = None) -> T:
        self.exception(timeout)
        return super().result()

    def _task_has_ended(self, task: Future[None]) -> None:
        if task.cancelled():  # by a pool that is shut down
            self.cancel()


def _run(submitted: Submitted[T], step: Callable[[], T]) -> None:
    if not submitted.set_running_or_notify_cancel():
        return
    try:
        result = step()
    except BaseException as error:
        submitted.set_exception(error)
        del submitted  # which has the error, which has this frame
    else:
        submitted.set_result(result)
