"""The documents of the contract as frozen pydantic models: `TurnInspection.model_validate(inspection).replay_legal`.

The package's functions return plain dicts (`documents`), which these take as they are.
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict


class _View(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid", strict=True)


class TurnRecoveryCheck(_View):
    """One check that took part in a recovery decision."""

    kind: Literal["journal_consistency", "host_retry_policy", "host_session_binding", "prepared_effect_readback"]
    outcome: Literal["passed", "failed", "required"]
    reason: str | None = None
    step_kind: str | None = None


class TurnRecoveryDecision(_View):
    """Whether a turn may go on, from where, and why."""

    schema_version: str
    action: Literal["continue", "return_existing", "blocked"]
    can_continue: bool
    resume_from: str | None
    reinvoke_host: bool
    reason: str
    retry_failed: bool
    checks: list[TurnRecoveryCheck]


class TurnRecoveryOutcome(_View):
    """What a recovery had done when its audit was written."""

    status: Literal["started", "finished"]
    journal_status: str
    completed_phases: list[str]
    host_invoked: bool | None


class TurnRecoveryAudit(_View):
    """The last recovery: what was planned and what was done."""

    schema_version: str
    planned: TurnRecoveryDecision
    actual: TurnRecoveryOutcome


class TurnRecordedEffects(_View):
    """What the original turn is known to have done; None: not known."""

    host_invoked: bool | None
    state_written: bool | None
    quota_spent: bool | None
    scheduler_acknowledged: bool | None


class TurnInspection(_View):
    """What the core says of a journal."""

    ok: Literal[True]
    schema_version: str
    decision: Literal["replay_legal", "replay_blocked"]
    journal_status: str
    replay_legal: bool
    goal_matches: bool
    owner_matches: bool
    turn_key_matches: bool
    phases_form_ordered_prefix: bool
    completed_phases: list[str]
    tombstone_retained: bool
    violations: list[str]
    journal_consistent: bool
    recovery_decision: TurnRecoveryDecision
    last_recovery: TurnRecoveryAudit | None
    recorded_effects: TurnRecordedEffects
    effects: list[Any]


class TurnWrite(_View):
    """An acknowledged write."""

    ok: Literal[True]
    appended: bool
    replayed: bool
    effect_id: str | None
    operation_id: str
