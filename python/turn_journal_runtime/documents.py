"""The documents of the contract as plain, typed dicts: turn-journal.md, sections 3 to 6.

`turn_journal_runtime.models` has the same as pydantic models, for those who want attributes.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NotRequired, TypeAlias, TypedDict

LOOPX_TURN_JOURNAL_SCHEMA_VERSION: Final = "loopx_turn_journal_v0"
TURN_JOURNAL_INSPECTION_SCHEMA_VERSION: Final = "loopx_turn_journal_inspection_v1"

#: A journal: open, so that unknown fields are kept.
Journal: TypeAlias = dict[str, Any]


class RecoveryCheck(TypedDict):
    """One check that took part in a recovery decision."""

    kind: Literal["journal_consistency", "host_retry_policy", "host_session_binding", "prepared_effect_readback"]
    outcome: Literal["passed", "failed", "required"]
    reason: NotRequired[str]
    step_kind: NotRequired[str]


class RecoveryDecision(TypedDict):
    """Whether a turn may go on, from where, and why."""

    schema_version: str
    action: Literal["continue", "return_existing", "blocked"]
    can_continue: bool
    resume_from: str | None
    reinvoke_host: bool
    reason: str
    retry_failed: bool
    checks: list[RecoveryCheck]


class RecoveryOutcome(TypedDict):
    """What a recovery had done when its audit was written."""

    status: Literal["started", "finished"]
    journal_status: str
    completed_phases: list[str]
    host_invoked: bool | None


class RecoveryAudit(TypedDict):
    """The last recovery: what was planned and what was done."""

    schema_version: str
    planned: RecoveryDecision
    actual: RecoveryOutcome


class RecordedEffects(TypedDict):
    """What the original turn is known to have done; None: not known."""

    host_invoked: bool | None
    state_written: bool | None
    quota_spent: bool | None
    scheduler_acknowledged: bool | None


class Inspection(TypedDict):
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
    recovery_decision: RecoveryDecision
    last_recovery: RecoveryAudit | None
    recorded_effects: RecordedEffects
    effects: list[Any]


class WriteResult(TypedDict):
    """An acknowledged write: it stands, whatever happens next."""

    ok: Literal[True]
    appended: bool
    replayed: bool
    effect_id: str | None
    operation_id: str


class StoredJournal(TypedDict):
    """A journal as it is stored, or as it was at a transition."""

    journal: Journal
    operation_id: str
    seq: int | None


class TurnDamage(TypedDict):
    """Why a stored turn cannot be read."""

    kind: str
    message: str


class TurnTransition(TypedDict):
    """One transition of a turn's history."""

    seq: int
    at: str
    operation_id: str
    status: str
    completed_phases: list[str]
    hash: str
    signed: bool
    adopted: bool
    pruned: bool


class ListedTurn(TypedDict):
    """A stored turn; the fields after `damage` are None when it cannot be read."""

    goal_id: str
    turn_key: str
    damage: TurnDamage | None
    status: str | None
    completed_phases: list[str] | None
    operation_id: str | None
    updated_at: str | None


class RecoverableJournal(TypedDict):
    """A turn that may go on; the fields after `damage` are None when it cannot be read."""

    goal_id: str
    turn_key: str
    damage: TurnDamage | None
    agent_id: str | None
    status: str | None
    completed_phases: list[str] | None
    recovery_decision: RecoveryDecision | None


class TurnHead(TypedDict):
    """The end of a turn's history, kept elsewhere: it shows later whether the end was cut."""

    goal_id: str
    turn_key: str
    count: int
    digest: str


class TurnProblem(TypedDict):
    """What is wrong with a turn, and the first place where it shows."""

    kind: str
    line: int | None
    message: str


class HistoryEnd(TypedDict):
    """How many transitions a history has, and the digest of the last."""

    count: int
    digest: str


class VerifiedTurn(TypedDict):
    """What verification found at one turn."""

    goal_id: str
    turn_key: str
    ok: bool
    transitions: int
    head: HistoryEnd | None
    signed: bool
    unfinished: bool
    problem: TurnProblem | None


class VerifyReport(TypedDict):
    """What verification found in all; `problems` has the turns that are not as they were written."""

    ok: bool
    turns: int
    transitions: int
    unfinished: int
    problems: list[VerifiedTurn]


class PrunedTurn(TypedDict):
    """A turn whose history, bulk and runs went; `damage` is set when it was left alone.

    `operation_id` is its tombstone's; None without damage: it was pruned before, and this is about its runs alone.
    `runs_left` are driven, or have an effect whose outcome is not known.
    """

    goal_id: str
    turn_key: str
    damage: TurnDamage | None
    operation_id: str | None
    runs: list[str]
    runs_left: list[str]


class CopiedTurn(TypedDict):
    """What became of a turn that was to be copied; `problem` is set when source and target are not the same now."""

    goal_id: str
    turn_key: str
    outcome: Literal["copied", "extended", "same", "missing", "behind", "conflict", "driven", "damaged", "too_large"]
    transitions: int
    problem: TurnDamage | None


class CopiedItem(TypedDict):
    """A turn, session or run that was to be copied; `problem` is set when source and target are not the same now."""

    kind: Literal["turn", "session", "run"]
    goal_id: str | None
    #: The turn's key, the session's line of work, the run's id; empty where a whole goal cannot be read.
    name: str
    outcome: Literal["copied", "extended", "same", "missing", "behind", "conflict", "driven", "damaged", "too_large"]
    problem: TurnDamage | None


class CopyCount(TypedDict):
    """How many came to what; those that were left are told one by one."""

    copied: int
    extended: int
    same: int
    left: int


class CopyReport(TypedDict):
    """What a copy came to in all: `ok` when everything of the source is at the target, and the same."""

    ok: bool
    verify_only: bool
    turns: CopyCount
    sessions: CopyCount
    runs: CopyCount
    problems: list[CopiedItem]


class MigrateResult(TypedDict):
    """What was done to the tables of a database, and the version that they have now."""

    version: int
    applied: list[str]


class HeldLease(TypedDict):
    """A lease of a turn in a database: its fencing number, and when it ends by the database's clock."""

    number: int
    expires_at: str


class ReleaseLeaseResult(TypedDict):
    """Whether the lease was still held."""

    released: bool


class LeaseHolder(TypedDict):
    """Who drives a turn in a database, by what it has said of itself."""

    number: int | None
    holder: dict[str, Any] | None
    since: str | None
    expires_at: str | None
    remaining_ms: int


class SessionBinding(TypedDict):
    """The binding of a line of work in a database; None where there is none."""

    binding: dict[str, Any] | None


class SessionOfLine(TypedDict):
    """The binding of one line of work in a database."""

    goal_id: str
    line: str
    binding: dict[str, Any]


class RepairResult(TypedDict):
    """What a repair would do, or did."""

    repair: Literal["nothing", "cut_unfinished", "cut_history", "take_snapshot_over", "restore_snapshot"]
    done: bool
    kept: int
    cut_bytes: int
    plan: str | None
    message: str
