"""Trying a failed turn again in the session that outlived its host: session-recovery.md, section 2.

The core decides; these functions run the caller's binding resolver, which lives in this process.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias

from .bridge import default_client
from .errors import TurnJournalError
from .flow import Ask, Call, Flow, run

if TYPE_CHECKING:
    from .bridge import RuntimeClient
    from .documents import RecoveryCheck

#: Answers with the binding of the live session of a turn envelope, or None.
SessionBindingResolver: TypeAlias = Callable[
    [Mapping[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any] | None] | None
]


HOST_RECOVERY_SCHEMA_VERSION: Final = "loopx_turn_host_recovery_v0"


class FailedTurnSessionRecoveryError(TurnJournalError, ValueError):
    """The failed turn cannot be tried again in its session; `reason` is the stable name of why."""

    default_kind = "failed_turn_session_recovery"

    @property
    def reason(self) -> str:
        """The reason, as the recovery decision shows it."""
        return str(self.details.get("reason", self.kind))


class Assessment(NamedTuple):
    """A request that may go on, or the refusal that says why it may not."""

    request: dict[str, Any]
    check: RecoveryCheck | None
    error: FailedTurnSessionRecoveryError | None


def assessment_flow(
    request: Mapping[str, Any],
    journal: Mapping[str, Any],
    *,
    session_binding_resolver: SessionBindingResolver | None,
) -> Flow[Assessment]:
    """Assesses a retry; the resolver is asked only when everything before it holds."""
    params: dict[str, Any] = {"request": dict(request), "journal": dict(journal)}
    answer: dict[str, Any] = {"status": "unavailable" if session_binding_resolver is None else "pending"}
    assessed = yield Call("session_recovery.assess", {**params, "binding": answer})
    cause: Exception | None = None
    if assessed["status"] == "binding_needed" and session_binding_resolver is not None:
        try:
            binding = yield Ask(session_binding_resolver, (dict(request).get("turn_envelope") or {},))
            answer = {"status": "resolved", "binding": None if binding is None else dict(binding)}
        except Exception as error:  # the resolver is the caller's: whatever it raises is chained, never shown
            cause = error
            answer = {"status": "failed"}
        assessed = yield Call("session_recovery.assess", {**params, "binding": answer})
    return _assessment(assessed, cause)


def reconciliation_flow(request: Mapping[str, Any], session_binding: Mapping[str, Any] | None) -> Flow[Assessment]:
    """Compares a planned request with the binding of a live session."""
    binding = {"status": "resolved", "binding": None if session_binding is None else dict(session_binding)}
    assessed = yield Call("session_recovery.assess", {"request": dict(request), "binding": binding})
    return _assessment(assessed, None)


def _assessment(assessed: dict[str, Any], cause: Exception | None) -> Assessment:
    refusal = assessed["error"]
    if refusal is None:
        return Assessment(assessed["request"], assessed["check"], None)
    error = FailedTurnSessionRecoveryError(refusal["message"], details={"reason": refusal["reason"]})
    error.__cause__ = cause
    return Assessment(assessed["request"], assessed["check"], error)


def resolved_request(assessment: Assessment) -> dict[str, Any]:
    """The request of an assessment, or its error, raised."""
    if assessment.error is not None:
        raise assessment.error
    return assessment.request


def assess_failed_turn_retry_request(
    request: Mapping[str, Any],
    journal: Mapping[str, Any],
    *,
    session_binding_resolver: SessionBindingResolver | None,
    client: RuntimeClient | None = None,
) -> Assessment:
    """Whether a failed turn may be tried again in its session, with the exact check that was made.

    Args:
        request: `{session: {action, id?, context_policy?}, turn_envelope: {...}, ...}`; never changed.
        journal: The failed turn's journal.
        session_binding_resolver: Called with the turn envelope; answers with the live session's binding or None.
        client: The runtime to ask; the default one when None.

    Returns:
        `(resolved_request, check, error)`; without a recorded `host_recovery` the request unchanged and no check.

    Specified in session-recovery.md, section 2.
    """
    flow = assessment_flow(request, journal, session_binding_resolver=session_binding_resolver)
    return run(flow, client or default_client())


def reconcile_failed_turn_retry_request(
    request: Mapping[str, Any],
    journal: Mapping[str, Any],
    *,
    session_binding_resolver: SessionBindingResolver | None,
    client: RuntimeClient | None = None,
) -> dict[str, Any]:
    """The request that tries a failed turn again in its session.

    Args:
        request: The planned host request; never changed.
        journal: The failed turn's journal.
        session_binding_resolver: Called with the turn envelope; answers with the live session's binding or None.
        client: The runtime to ask; the default one when None.

    Raises:
        FailedTurnSessionRecoveryError: The retry is refused; `reason` says why; what the resolver raised is chained.

    Specified in session-recovery.md, section 2.
    """
    return resolved_request(
        assess_failed_turn_retry_request(
            request, journal, session_binding_resolver=session_binding_resolver, client=client
        )
    )


def reconcile_failed_turn_session_request(
    request: Mapping[str, Any],
    *,
    session_binding: Mapping[str, Any] | None,
    client: RuntimeClient | None = None,
) -> dict[str, Any]:
    """The request that resumes a live session, once its binding is the turn's.

    Args:
        request: The planned host request; never changed.
        session_binding: The live session's binding, or None when there is none.
        client: The runtime to ask; the default one when None.

    Raises:
        FailedTurnSessionRecoveryError: The binding is missing, of another turn, or has no usable session id.

    Specified in session-recovery.md, section 2.
    """
    return resolved_request(run(reconciliation_flow(request, session_binding), client or default_client()))


def build_host_recovery_record(kind: Literal["resume_session"] = "resume_session") -> dict[str, str]:
    """The `host_recovery` of a journal whose host failed and left its session alive.

    Args:
        kind: How to recover; `resume_session` is the one kind there is.

    Raises:
        ValueError: Another kind.

    Specified in session-recovery.md, section 1.
    """
    if kind != "resume_session":
        raise ValueError("A host recovery is of kind 'resume_session'; leave the record out for any other failure.")
    return {"schema_version": HOST_RECOVERY_SCHEMA_VERSION, "kind": kind}


def host_failure_flow(kind: str, attempt: int) -> Flow[dict[str, Any]]:
    """Asks the core for the record of a host failure: it owns the retry policy."""
    record: dict[str, Any] = yield Call("session_recovery.host_failure", {"kind": kind, "attempt": attempt})
    return record


def build_host_failure_record(kind: str, *, attempt: int, client: RuntimeClient | None = None) -> dict[str, Any]:
    """The `host_failure` of a journal, with what the retry policy says of another attempt.

    Args:
        kind: One of the host failure kinds, such as `rate_limited` or `transport_lost`.
        attempt: Which attempt failed, counted from 1; the journal's `host_attempt_count`.
        client: The runtime to ask; the default one when None.

    Raises:
        InvalidJournalError: An unknown kind or an attempt below 1.

    Specified in turn-journal.md, section 5.
    """
    return run(host_failure_flow(kind, attempt), client or default_client())
