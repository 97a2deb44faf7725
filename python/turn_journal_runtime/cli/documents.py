"""What each command answers with under `--format json`.

What the core says is passed on as it is, and its schema is the core's; what a command makes of it has its type here.
`ANSWERS` is the one list of both: `make schemas` writes schemas/command-line/ from it, and the tests hold every answer
to those. Nothing here is loaded when a command runs.
"""

# ruff: noqa: TC001, TC002 (pydantic reads the annotations)

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, NotRequired, TypeAlias

from pydantic import JsonValue
from pydantic_core import core_schema

# pydantic cannot read the one of `typing` before Python 3.12.
from typing_extensions import TypedDict

from .. import documents
from ..run_journal.approvals import PendingApproval
from ..run_journal.listing import FailedAttempt, RunSummary
from ..run_journal.sleeps import PendingSleep
from ..run_journal.steps import UncertainStep
from .run_documents import (
    BackedUp,
    ClosedRun,
    ComparedRuns,
    DeletedRun,
    ExportedRun,
    ForkedRun,
    ImportedRun,
    RunDamage,
    RunParent,
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
    """What a transition changed at one place; a side that is absent is left out."""

    path: str
    before: NotRequired[JsonValue]
    after: NotRequired[JsonValue]


class TransitionChanges(TypedDict):
    """What one transition changed."""

    seq: int
    at: str
    changes: list[Change]


class RecoveredTurn(TypedDict):
    """A turn that stopped: why it is left alone for now, and how driving it ended; None: neither."""

    turn: RecoverableTurn
    waits: str | None
    outcome: str | None


class DueEffect(TypedDict):
    """A step that is due, with the id that settles it."""

    step: str
    effect_ref: str


class GiveUpOutcome(TypedDict):
    """How a turn stands that was to be given up; `done` when it was now, `changed` when it was or would be."""

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
    """What verification found in all; `problems` has the turns that are not as they were written."""

    ok: bool
    turns: int
    transitions: int
    unfinished: int
    problems: list[VerifiedTurn]


class PrunedTurn(TypedDict):
    """A turn that was pruned, now or before, and what became of its runs; `damage` is set when it was left alone."""

    goal_id: str
    turn_key: str
    damage: TurnDamage | None
    operation_id: str | None
    runs: list[str]
    runs_left: list[str]


class PruneOutcome(TypedDict):
    """What was pruned, or would be."""

    ok: bool
    done: bool
    turns: list[PrunedTurn]


class PrunedRuns(TypedDict):
    """The runs that were removed, or would be, oldest first."""

    ok: Literal[True]
    done: bool
    runs: list[str]


class Vacuumed(TypedDict):
    """How large the run journal was, and is now; None: it is in a database."""

    ok: Literal[True]
    bytes_before: int | None
    bytes_after: int | None


class Migrated(TypedDict):
    """The migrations that were run: of the tables of turns, of run journals, and of the workers' queue.

    None: what makes them is not installed.
    """

    turns: MigrateResult
    runs: list[str] | None
    queue: list[str] | None


class CopyProblem(TypedDict):
    """What keeps something from being the same at the target."""

    kind: str
    message: str


class LeftItem(TypedDict):
    """A turn, session or run that was left, and is not the same at the target."""

    kind: Literal["turn", "session", "run"]
    goal_id: str | None
    name: str
    outcome: Literal["copied", "extended", "same", "missing", "behind", "conflict", "driven", "damaged", "too_large"]
    problem: CopyProblem | None


class CopyCount(TypedDict):
    """How many came to what."""

    copied: int
    extended: int
    same: int
    left: int


class CopyOutcome(TypedDict):
    """What a copy, or a comparison, came to in all."""

    ok: bool
    verify_only: bool
    turns: CopyCount
    sessions: CopyCount
    runs: CopyCount
    problems: list[LeftItem]


@dataclass(frozen=True, slots=True)
class ListedRun(RunSummary):
    """A run in a list.

    Args:
        waits_for: What it waits for: somebody's decision, or what became of a call.
        due_at: Until when it sleeps, in seconds since the epoch; None when it does not.
        damage: What keeps that from being known; None when nothing does.
    """

    waits_for: list[Literal["decision", "outcome"]]
    due_at: float | None
    damage: RunDamage | None


class RunEvent(TypedDict):
    """One recorded event of a run."""

    seq: int
    kind: str
    payload: dict[str, JsonValue]
    created_at: float


class RunRecord(TypedDict):
    """One run, what waits for a person, and what for its time."""

    run_id: str
    agent: str
    task: str
    status: str
    outcome: str | None
    checkpoint_id: str | None
    created_at: float
    updated_at: float
    metadata: dict[str, JsonValue]
    interrupted: bool
    parent: RunParent | None
    events: list[RunEvent]
    failures: list[FailedAttempt]
    uncertain: list[UncertainStep]
    pending_approvals: list[PendingApproval]
    pending_sleeps: list[PendingSleep]


class Settled(TypedDict):
    """What was said of an uncertain step."""

    ok: Literal[True]
    run_id: str
    seq: int
    absent: bool


class Decided(TypedDict):
    """What was decided on a question."""

    ok: Literal[True]
    run_id: str
    seq: int
    decision: JsonValue
    by: str


class ReplayProblem(TypedDict):
    """Why a run does not replay: in short, and in full."""

    kind: str
    why: str
    message: str


class CheckedRun(TypedDict):
    """Whether a run replays with a loop, and how many of its steps."""

    run_id: str
    steps: int
    replayed: int
    replays: bool
    problem: ReplayProblem | None


class InstalledNode(TypedDict):
    """A Node, and where it is from."""

    source: Literal["explicit", "wheel", "path", "cache"]
    path: str
    version: str | None


class Finding(TypedDict):
    """What one check of the doctor found."""

    check: str
    outcome: Literal["ok", "warning", "failed"]
    found: str


class Diagnosis(TypedDict):
    """Whether everything works on this machine."""

    ok: bool
    checks: list[Finding]


class DemoOutcome(TypedDict):
    """What the demo did, counted from the files."""

    ok: bool
    inspection: Inspection
    status: str
    bookings: list[str]
    model_calls: int


class WorkerOutcome(TypedDict):
    """What a worker did until it was told to stop: how many turns came to what, and how many it had to leave."""

    ok: bool
    events: dict[str, int]
    left: int


class Failure(TypedDict):
    """What went wrong, on standard error."""

    kind: str
    message: str
    details: dict[str, JsonValue]


class Failed(TypedDict):
    """The answer of a command that failed."""

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
