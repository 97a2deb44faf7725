"""The journals that a drive writes, each made from the one before: turn-journal.md, sections 2, 4 and 5.

Pure: nothing here decides whether a turn may go on, and nothing is written here. The core admits or refuses each.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from ..documents import LOOPX_TURN_JOURNAL_SCHEMA_VERSION
from .plan import PHASES, TurnPlan

if TYPE_CHECKING:
    from ..documents import RecoveryDecision

RECOVERY_AUDIT_SCHEMA_VERSION: Final = "loopx_turn_recovery_audit_v0"

#: Where the number of recoveries stands in the audit: the one part of a journal that may change in every status.
RECOVERY_COUNT: Final = "recovery_count"

#: Where the audit says who gave the turn up: also a turn that had failed before may be given up.
_GIVEN_UP: Final = "given_up"

Journal = dict[str, Any]

#: What a failure leaves, and what no longer holds once the turn goes on.
_FAILURE_KEYS: Final = ("host_failure", "host_recovery", "receipt", "reason", "validation_stage")


def opened(plan: TurnPlan) -> Journal:
    """The first journal of a turn."""
    return {
        "schema_version": LOOPX_TURN_JOURNAL_SCHEMA_VERSION,
        "goal_id": plan.goal_id,
        "turn_key": plan.turn_key,
        "status": "in_progress",
        "completed_phases": [],
        "plan": plan.document,
    }


def resumed(journal: Journal, decision: RecoveryDecision) -> Journal:
    """The turn goes on where the decision says, and the recovery is counted."""
    after = _without(journal, *_FAILURE_KEYS)
    after["status"] = "in_progress"
    if decision["resume_from"] == PHASES[0] and len(after["completed_phases"]) > 0:
        # The work is done anew after a refused validation: its run journal begins anew as well.
        after = _without(after, "host_result")
        after["completed_phases"] = []
        after["host_run"] = host_run(journal) + 1
    after["recovery_audit"] = _planned(decision, recovery_count(journal) + 1)
    return audited(after, finished=False, host_invoked=None if decision["reinvoke_host"] else False)


def _planned(decision: RecoveryDecision, count: int) -> dict[str, Any]:
    return {
        "schema_version": RECOVERY_AUDIT_SCHEMA_VERSION,
        "planned": dict(decision),
        "actual": {},
        RECOVERY_COUNT: count,
    }


def audited(journal: Journal, *, finished: bool, host_invoked: bool | None) -> Journal:
    """The journal with its audit, when a recovery is under way, saying what was done so far."""
    audit = journal.get("recovery_audit")
    if not isinstance(audit, Mapping):
        return journal
    actual = {
        "status": "finished" if finished else "started",
        "journal_status": journal["status"],
        "completed_phases": list(journal["completed_phases"]),
        "host_invoked": host_invoked,
    }
    return {**journal, "recovery_audit": {**audit, "actual": actual}}


def not_counted(journal: Journal) -> Journal:
    """The recovery ended in good order with nothing to be done yet: it does not use up the budget."""
    audit = journal.get("recovery_audit")
    if not isinstance(audit, Mapping):
        return journal
    return {**journal, "recovery_audit": {**audit, RECOVERY_COUNT: max(recovery_count(journal) - 1, 0)}}


def attempting(journal: Journal) -> Journal:
    """The host is about to be started once more."""
    if "host_suspended" in journal:
        return _without(journal, "host_suspended")  # the same attempt goes on
    return {**journal, "host_attempt_count": attempts(journal) + 1}


def suspended(journal: Journal, kind: str) -> Journal:
    """The host stands still: it waits for a decision, or for a step in doubt to be settled."""
    return {**journal, "host_suspended": {"kind": kind}}


def host_failed(
    journal: Journal, failure: Mapping[str, Any], recovery: Mapping[str, Any] | None, reason: str
) -> Journal:
    """The host failed; with `recovery` its session outlived it."""
    after = failed(journal, PHASES[0], reason)
    after["host_failure"] = dict(failure)
    if recovery is not None:
        after["host_recovery"] = dict(recovery)
    return after


def failed(journal: Journal, phase: str, reason: str) -> Journal:
    """The turn failed at a phase; a prepared effect stays as unknown as it is."""
    receipt = {"turn_key": journal["turn_key"], "failed_phase": phase, "failed_at": _now()}
    return {**journal, "status": "failed", "receipt": receipt, "reason": reason}


def given_up(journal: Journal, decision: RecoveryDecision, *, by: str, reason: str) -> Journal:
    """Somebody decided that the turn does not go on. An open one fails where it would; nothing else of it changes."""
    after = journal
    if journal["status"] != "failed":
        # A closeout that is pending stands where the scheduler's phase does, and fails by its own name.
        phase = pending_step(journal) or decision["resume_from"] or ""
        after = failed(journal, phase, reason)
        if phase == PHASES[2]:
            # Nothing was refused: should the turn be tried again, the host's answer holds.
            after["validation_stage"] = "task_postcondition"
    said = {"by": by, "reason": reason, "at": _now()}
    audit = {**_planned(decision, recovery_count(journal)), _GIVEN_UP: said}
    return audited({**after, "recovery_audit": audit}, finished=True, host_invoked=False)


def taken_up(journal: Journal, decision: RecoveryDecision) -> Journal:
    """A turn that was given up is about to go on: the recovery is counted, and until it has begun the turn stays given
    up."""
    audit = {**_planned(decision, recovery_count(journal) + 1), _GIVEN_UP: giving_up(journal)}
    return {**journal, "recovery_audit": audit}


def giving_up(journal: Mapping[str, Any]) -> dict[str, Any] | None:
    """Who gave the turn up, why and when; None when nobody did, or it was tried again since."""
    audit = journal.get("recovery_audit")
    found = audit.get(_GIVEN_UP) if isinstance(audit, Mapping) else None
    return dict(found) if journal.get("status") == "failed" and isinstance(found, Mapping) else None


def answered(journal: Journal, result: Mapping[str, Any]) -> Journal:
    """The host has given its result."""
    after = completed(journal, 2)
    after["host_result"] = dict(result)
    return after


def prepared(journal: Journal, step: str, effect_ref: str) -> Journal:
    """An effect is about to be sent."""
    return {**journal, "effect_attempts": {step: {"status": "prepared", "effect_ref": effect_ref}}}


def completed(journal: Journal, count: int) -> Journal:
    """So many phases are done; what was prepared on the way has happened."""
    return {**_without(journal, "effect_attempts"), "completed_phases": list(PHASES[:count])}


def ended(journal: Journal, status: str) -> Journal:
    """The turn is over, or waits for its scheduler."""
    after = {**journal, "status": status}
    if status != "stopped":
        after["scheduler"] = {"acknowledged": status == "committed"}
    return after


def identity(journal: Mapping[str, Any]) -> Mapping[str, Any]:
    """Whose the turn is, as its settlement plan says; empty for a plain turn, which has none."""
    found: Any = journal
    for key in ("plan", "transaction", "settlement_plan", "identity"):
        found = found.get(key) if isinstance(found, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def attempts(journal: Mapping[str, Any]) -> int:
    """How often the host was started."""
    return _count(journal.get("host_attempt_count"))


def host_run(journal: Mapping[str, Any]) -> int:
    """How often the work was begun anew."""
    return _count(journal.get("host_run"))


def recovery_count(journal: Mapping[str, Any]) -> int:
    """How many recoveries were begun."""
    audit = journal.get("recovery_audit")
    return _count(audit.get(RECOVERY_COUNT)) if isinstance(audit, Mapping) else 0


def pending_step(journal: Mapping[str, Any]) -> str | None:
    """The step whose effect is pending."""
    pending = journal.get("effect_attempts")
    return next(iter(pending)) if isinstance(pending, Mapping) and pending else None


def pending_ref(journal: Mapping[str, Any]) -> str | None:
    """The key of the effect that is pending."""
    pending = journal.get("effect_attempts")
    entry = next(iter(pending.values()), None) if isinstance(pending, Mapping) else None
    ref = entry.get("effect_ref") if isinstance(entry, Mapping) else None
    return ref if isinstance(ref, str) else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")


def _count(value: Any) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _without(journal: Journal, *keys: str) -> Journal:
    return {key: value for key, value in journal.items() if key not in keys}
