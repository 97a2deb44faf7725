"""What the executor asks of the program that does a turn's work: session-recovery.md, sections 3 and 5."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, TypeVar, runtime_checkable

from ..errors import TurnJournalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from ..run_journal import AsyncDurableRun, DurableRun

#: A result of a host: one JSON object with `result_kind`.
HostResult: TypeAlias = dict[str, Any]

HostFailureKind: TypeAlias = Literal[
    "auth_failed",
    "contract_rejected",
    "executor_timeout",
    "output_budget_exhausted",
    "provider_capacity",
    "provider_overloaded",
    "quota_exhausted",
    "rate_limited",
    "session_missing",
    "transport_lost",
    "unknown",
]

#: What each kind says to a person. Nothing that a host wrote is ever part of it.
FAILURE_REASONS: Final[dict[str, str]] = {
    "auth_failed": "The host was not allowed in: its credentials were refused.",
    "contract_rejected": "The host did not answer with one JSON object that has a result_kind, within its bounds.",
    "executor_timeout": "The host did not answer before its deadline.",
    "output_budget_exhausted": "The host's model ran out of its output budget.",
    "provider_capacity": "The host's model has no capacity at the moment.",
    "provider_overloaded": "The host's model provider is overloaded.",
    "quota_exhausted": "The host's usage quota is used up.",
    "rate_limited": "The host was rate limited.",
    "session_missing": "The session cannot be resumed here: its transcript is gone or belongs to another folder.",
    "transport_lost": "The host was lost before it answered.",
    "unknown": "The host failed.",
}


class HostFailedError(TurnJournalError):
    """The host failed; `kind` is one of the host failure kinds of turn-journal.md, section 5.

    Args:
        kind: The kind of failure; another than the known ones counts as `unknown`.
        resumable: Whether the host's session outlived it, so that a retry resumes it.
    """

    default_kind = "unknown"

    def __init__(
        self,
        message: str | None = None,
        *,
        kind: str | None = None,
        details: dict[str, Any] | None = None,
        resumable: bool = False,
    ) -> None:
        known = kind if kind in FAILURE_REASONS else "unknown"
        super().__init__(message or FAILURE_REASONS[known], kind=known, details=details)
        if resumable:
            self.details["resumable"] = True

    @property
    def resumable(self) -> bool:
        """Whether a retry resumes the host's session."""
        return self.details.get("resumable") is True


Run = TypeVar("Run", "DurableRun", "AsyncDurableRun")


def _no_run(_form: Any) -> Any:
    raise TypeError("This request was made without a run journal.")


def _forget_session(_session_id: str) -> None:
    """A request that nobody keeps sessions for."""


@dataclass(frozen=True, kw_only=True)
class HostRequest:
    """One attempt at a turn's work.

    `input` is what the caller of `run_turn` handed in for the host; it is in no journal. `attempt` counts from 1.
    `session` is the planned session: `{action: start_new | resume, id?, context_policy?}`.
    """

    goal_id: str
    agent_id: str
    todo_id: str
    turn_key: str
    effect_id: str
    attempt: int
    turn_envelope: Mapping[str, Any]
    session: Mapping[str, Any]
    input: Any = None
    #: Opens the turn's own run, of the class that is asked for: what was recorded before a crash is replayed.
    open_run: Callable[[type[Run]], Run] = field(default=_no_run, repr=False, compare=False)
    #: Called with the session's id as soon as the host shows it, so that a crash does not lose it.
    on_session: Callable[[str], None] = field(default=_forget_session, repr=False, compare=False)

    def __getitem__(self, name: str) -> Any:
        """A part of the request, by the name that it has for a program."""
        return self.document()[name]

    def document(self) -> dict[str, Any]:
        """The request as one JSON object, the way a program gets it."""
        return {
            "goal_id": self.goal_id,
            "agent_id": self.agent_id,
            "todo_id": self.todo_id,
            "turn_key": self.turn_key,
            "effect_id": self.effect_id,
            "attempt": self.attempt,
            "turn_envelope": dict(self.turn_envelope),
            "session": dict(self.session),
            "input": self.input,
        }


@runtime_checkable
class HostAdapter(Protocol):
    """A way to run an agent program. Each method may be sync or async; one adapter serves many turns.

    An adapter whose sync `execute` can be ended from outside may have `interrupt(request)`: it asks for the end of the
    work on that request, whose caller was cancelled and waits only for it to be over.
    """

    def execute(self, request: HostRequest) -> HostResult | Awaitable[HostResult]:
        """Does the turn's work and returns its result; raises `HostFailedError`."""
        ...

    def resume(self, session_id: str, request: HostRequest) -> HostResult | Awaitable[HostResult]:
        """Takes the session's result for this turn, or continues that same session; raises `HostFailedError`."""
        ...

    def session_exists(self, session_id: str, request: HostRequest) -> bool | Awaitable[bool]:
        """Whether the session can be resumed here: an id alone proves nothing."""
        ...

    def healthcheck(self) -> bool | Awaitable[bool]:
        """Whether the adapter can be used."""
        ...

    def close(self) -> Awaitable[None] | None:
        """Ends what the adapter still runs."""
        ...
