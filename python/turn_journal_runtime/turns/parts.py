"""What a drive works with, besides the plan: the host, the validation, the providers, the limits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

from ..errors import InvalidJournalError
from .host import HostAdapter
from .providers import CLOSEOUT, SPEND, WRITEBACK, Effect, Provider

if TYPE_CHECKING:
    from collections.abc import Callable

    from ..run_journal import RunJournal
    from ..session_recovery import SessionBindingResolver

#: Kinds of result with which a host ends its turn without work to write back.
STOP_RESULT_KINDS: Final = frozenset({"stop", "wait", "user_action_required", "iteration_failed"})

MAX_RESULT_BYTES: Final = 64 * 1024
MAX_RECOVERIES: Final = 20


@dataclass(frozen=True)
class Refusal:
    """A validation's no. The reason is shown in the result of this drive and stored nowhere.

    `stage` says what a retry repeats: `host_result` the host's work, `task_postcondition` the validation alone.
    """

    reason: str = ""
    stage: Literal["host_result", "task_postcondition"] = "host_result"


def refusal_of(answer: Any) -> Refusal | None:
    """A validation's answer: a `Refusal`, a reason, False, or anything else for yes."""
    if isinstance(answer, Refusal):
        return answer
    if isinstance(answer, str):
        return Refusal(answer)
    return Refusal() if answer is False else None


@dataclass(frozen=True, kw_only=True)
class TurnParts:
    """The callables and limits of one drive."""

    host: HostAdapter
    host_input: Any
    validate: Callable[[dict[str, Any]], Any] | None
    writeback: Effect
    spend: Effect
    scheduler: Effect
    retry_failed: bool
    session_binding_resolver: SessionBindingResolver | None
    max_recoveries: int
    max_result_bytes: int
    run_journal: RunJournal | None
    take_over: bool


def turn_parts(
    *,
    host: HostAdapter,
    writeback: Provider | Callable[..., Any] | None,
    spend: Provider | Callable[..., Any] | None,
    scheduler: Provider | Callable[..., Any] | None,
    **rest: Any,
) -> TurnParts:
    """The parts of a drive, looked at before anything is done.

    Raises:
        InvalidJournalError: The host is no `HostAdapter`, or a provider has no `apply`.
    """
    if not isinstance(host, HostAdapter):
        raise InvalidJournalError(
            "The host is a HostAdapter: wrap a function in CallableHost, a program in SubprocessHost.",
            kind="invalid_request",
        )
    return TurnParts(
        host=host,
        writeback=Effect(WRITEBACK, writeback),
        spend=Effect(SPEND, spend),
        scheduler=Effect(CLOSEOUT, scheduler),
        **rest,
    )
