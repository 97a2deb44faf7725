"""What a drive of a turn comes to: its result, what is still owed, or why it may not go on."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from ..errors import TurnJournalError
from .providers import CLOSEOUT, SPEND
from .transitions import giving_up

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents import RecoveryDecision
    from .host import HostResult

TurnStatus: TypeAlias = Literal["committed", "stopped", "failed", "scheduler_action_required"]

_WRITTEN, _SPENT, _ALL = 4, 5, 7


@dataclass(frozen=True)
class Owed:
    """A step that the turn's earlier steps make due, with the id that settles it."""

    step: str
    effect_ref: str


@dataclass(frozen=True, kw_only=True)
class TurnResult:
    """How a turn stands after a drive.

    Args:
        status: `committed`, `stopped` (the host gave a stop result), `failed` or `scheduler_action_required`.
        turn_key: The turn.
        effect_id: The idempotency key of what the turn does outside itself.
        result: The host's result, once there is one.
        owed: What is still to be done: written and not spent, spent and not acknowledged.
        replayed: Nothing was done now; the recorded result is returned.
        attempts: How often the host was started.
        failed_phase: The phase at which the turn failed.
        failure_kind: The kind of a host failure; `given_up` when somebody gave the turn up.
        retry_due: When a failed host may be tried again, in seconds since the epoch; None: not by itself.
        reason: Why the turn failed, for a person.
        decision: The core's decision, when the turn stood already.
        cause: What a callable raised in this process; it is in no journal.
    """

    status: TurnStatus
    turn_key: str
    effect_id: str
    result: HostResult | None = None
    owed: tuple[Owed, ...] = ()
    replayed: bool = False
    attempts: int = 0
    failed_phase: str | None = None
    failure_kind: str | None = None
    retry_due: float | None = None
    reason: str | None = None
    decision: RecoveryDecision | None = None
    cause: BaseException | None = field(default=None, repr=False, compare=False)

    @property
    def ok(self) -> bool:
        """Whether the turn is over and nothing is owed."""
        return self.status in ("committed", "stopped") and not self.owed


class TurnRecoveryBlockedError(TurnJournalError):
    """The turn may not go on; `decision` says why, and nothing was run. Specified in session-recovery.md, section 3."""

    default_kind = "turn_recovery_blocked"

    @property
    def decision(self) -> RecoveryDecision:
        """The recovery decision that blocks."""
        decision: RecoveryDecision = self.details["decision"]
        return decision

    @property
    def owed(self) -> tuple[Owed, ...]:
        """What is still to be done, with the ids that settle it."""
        return tuple(Owed(**owed) for owed in self.details["owed"])


_NO_RESOLVER = "Give a session_binding_resolver that finds the session that its host left."
_REMEDIES = {
    "journal_inconsistent": "See its violations with inspect_turn_journal.",
    "prepared_effect_unknown": "Find out whether the effect happened, by its effect_ref, and give a provider whose "
    "readback can tell.",
    "recovery_budget_exhausted": "Look for what kills it, then raise max_recoveries; or give the turn up.",
    "binding_resolver_unavailable": _NO_RESOLVER,
    "binding_check_unavailable": _NO_RESOLVER,
    "binding_resolution_failed": "The session_binding_resolver raised: see its error, and try again.",
    "host_retry_budget_exhausted": "Its host failed too often; start another turn.",
    "host_retry_contract_invalid": "The record of its host's failure is not the policy's: make it with "
    "build_host_failure_record.",
    "host_retry_not_available": "Its host would fail again the same way; start another turn.",
}
#: Of the reasons for which the session of a failed host is not resumed.
_NOT_ITS_SESSION = "The session that its host left cannot be shown to be this turn's; start another turn."


def blocked(decision: RecoveryDecision, turn_key: str, owed: tuple[Owed, ...]) -> TurnRecoveryBlockedError:
    """The error of a decision that does not let the turn go on."""
    reason = decision["reason"]
    remedy = _REMEDIES.get(reason, _NOT_ITS_SESSION)
    return TurnRecoveryBlockedError(
        f"The turn may not go on: {reason}. {remedy}",
        details={
            "decision": dict(decision),
            "turn_key": turn_key,
            "owed": [{"step": one.step, "effect_ref": one.effect_ref} for one in owed],
        },
    )


def owed_by(journal: Mapping[str, Any], effect_id: str) -> tuple[Owed, ...]:
    """What a journal's completed phases make due."""
    phases = journal.get("completed_phases")
    completed = len(phases) if isinstance(phases, list) else 0
    if completed == _WRITTEN:
        return (Owed(SPEND, f"{effect_id}#{SPEND}"),)
    if _SPENT <= completed < _ALL:
        return (Owed(CLOSEOUT, f"{effect_id}#{CLOSEOUT}"),)
    return ()


def retry_due(journal: Mapping[str, Any], updated_at: float | None = None) -> float | None:
    """When the back-off of a failed host has passed; None when its failure is not one to be tried again by itself.

    `updated_at` stands in for journals that do not say when they failed.
    """
    if journal.get("status") != "failed" or giving_up(journal) is not None:
        return None
    failure, receipt = journal.get("host_failure"), journal.get("receipt")
    retry = failure.get("retry") if isinstance(failure, dict) else None
    backoff = retry.get("backoff_seconds") if isinstance(retry, dict) else None
    if not isinstance(backoff, int | float):
        return None
    failed_at = receipt.get("failed_at") if isinstance(receipt, dict) else None
    try:
        since: float | None = (
            datetime.fromisoformat(failed_at).timestamp() if isinstance(failed_at, str) else updated_at
        )
    except ValueError:
        since = updated_at
    return None if since is None else since + backoff


def result_of(
    journal: Mapping[str, Any],
    effect_id: str,
    *,
    replayed: bool,
    decision: RecoveryDecision | None = None,
    cause: BaseException | None = None,
    reason: str | None = None,
) -> TurnResult:
    """The result of a turn that stands as its journal says."""
    failed = journal["status"] == "failed"
    failure = journal.get("host_failure") if failed else None
    receipt = journal.get("receipt") if failed else None
    attempts = journal.get("host_attempt_count")
    given_up = giving_up(journal)
    kind = failure.get("kind") if isinstance(failure, dict) else None
    return TurnResult(
        status=journal["status"],
        turn_key=journal["turn_key"],
        effect_id=effect_id,
        result=journal.get("host_result"),
        owed=owed_by(journal, effect_id),
        replayed=replayed,
        attempts=attempts if isinstance(attempts, int) else 0,
        failed_phase=receipt.get("failed_phase") if isinstance(receipt, dict) else None,
        failure_kind=kind if given_up is None else "given_up",
        retry_due=retry_due(journal),
        reason=reason or ((given_up or journal).get("reason") if failed else None),
        decision=decision,
        cause=cause,
    )
