"""What the commands on runs answer with; `documents` lists them with the others."""

# ruff: noqa: TC001, TC002 (pydantic reads the annotations)

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from pydantic import JsonValue

# pydantic cannot read the one of `typing` before Python 3.12.
from typing_extensions import TypedDict

from ..run_journal.approvals import PendingApproval
from ..run_journal.lineage import RunDifference
from ..run_journal.listing import FailedAttempt, RunSummary
from ..run_journal.sleeps import PendingSleep
from ..run_journal.steps import UncertainStep


class RunDamage(TypedDict):
    """What is wrong with a run that cannot be read whole.

    Args:
        kind: The kind of error.
        message: Which row is damaged, and how.
    """

    kind: str
    message: str


class RunParent(TypedDict):
    """The run that another one was forked from, and the last step that it took over.

    Args:
        run_id: The run that it was forked from.
        upto: The last step that it took over.
    """

    run_id: str
    upto: int


#: How two runs stand to each other: at the step where they part they took the same one with other content, or another.
RunRelation: TypeAlias = Literal["equal", "a_is_beginning", "b_is_beginning", "content", "path"]


class ComparedRuns(TypedDict):
    """Where two runs part, and how.

    Args:
        a: The first run.
        b: The second run.
        relation: How they stand to each other: where they part, they took the same step with other content, or another
            path.
        difference: The first step at which they part; null when they are equal.
    """

    a: str
    b: str
    relation: RunRelation
    difference: RunDifference | None


class ForkedRun(TypedDict):
    """A run that was made of another one's first steps.

    Args:
        ok: It was made.
        run_id: The new run.
        parent: Where its steps are from.
        events: How many events it has.
        uncertain: Its tool calls whose outcome is not known.
        pending_approvals: Its questions that wait for a decision.
    """

    ok: Literal[True]
    run_id: str
    parent: RunParent
    events: int
    uncertain: list[UncertainStep]
    pending_approvals: list[PendingApproval]


class ExportedRun(TypedDict):
    """The file that a run was written to.

    Args:
        ok: It was written.
        run_id: The run.
        path: The file.
        lines: How many lines it has.
    """

    ok: Literal[True]
    run_id: str
    path: str
    lines: int


class ImportedRun(TypedDict):
    """A run that was imported.

    Args:
        ok: It was stored.
        run_id: The run.
        replaced: Whether it replaced one of that id.
        status: `running`, or how it ended.
        events: How many events it has.
        interrupted: Whether it has not ended, and nobody drives it here.
    """

    ok: Literal[True]
    run_id: str
    replaced: bool
    status: str
    events: int
    interrupted: bool


class BackedUp(TypedDict):
    """The file that a journal was copied to.

    Args:
        ok: It was written.
        path: The file.
    """

    ok: Literal[True]
    path: str


class ClosedRun(TypedDict):
    """A run that was closed, or would be.

    Args:
        ok: Nothing keeps it from being closed.
        done: Whether it was done, and not only foreseen.
        run_id: The run.
        outcome: How it ends.
        events: How many events it has.
        uncertain: Its tool calls whose outcome stays unknown.
        damage: What keeps those from being known; null when nothing does.
    """

    ok: Literal[True]
    done: bool
    run_id: str
    outcome: Literal["cancelled", "failed", "done"]
    events: int
    uncertain: list[UncertainStep]
    damage: RunDamage | None


class DeletedRun(TypedDict):
    """A run that was deleted, or would be.

    Args:
        ok: Nothing keeps it from being deleted.
        done: Whether it was done, and not only foreseen.
        run_id: The run.
        status: How it stood: `running`, or how it had ended.
        events: How many events it had.
        uncertain: Its tool calls whose outcome was not known.
        damage: What keeps those from being known; null when nothing does.
    """

    ok: Literal[True]
    done: bool
    run_id: str
    status: str
    events: int
    uncertain: list[UncertainStep]
    damage: RunDamage | None


class PrunedRuns(TypedDict):
    """The runs that were removed, or would be.

    Args:
        ok: Nothing kept them.
        done: Whether it was done, and not only foreseen.
        runs: Their ids, oldest first.
    """

    ok: Literal[True]
    done: bool
    runs: list[str]


class Vacuumed(TypedDict):
    """How large a run journal was, and is now.

    Args:
        ok: It was written anew.
        bytes_before: Its file and log before; null of one in a database.
        bytes_after: Its file and log now; null of one in a database.
    """

    ok: Literal[True]
    bytes_before: int | None
    bytes_after: int | None


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
    """One recorded event of a run.

    Args:
        seq: The step's number.
        kind: What was recorded: `model_decision`, `tool_call`, `tool_result`, `approval`, `iteration` or
            `verification`.
        payload: What it was.
        created_at: When, in seconds since the epoch.
    """

    seq: int
    kind: str
    payload: dict[str, JsonValue]
    created_at: float


class RunRecord(TypedDict):
    """One run, what waits for a person, and what for its time.

    Args:
        run_id: The run.
        agent: Whose run it is.
        task: What it is for.
        status: `running`, or `done`, `succeeded`, `failed`, `cancelled`.
        outcome: The text that it was closed with.
        checkpoint_id: The snapshot of the workspace that the record goes with.
        created_at: When it was begun, in seconds since the epoch.
        updated_at: When it was written last, in seconds since the epoch.
        metadata: What its first drive said of it.
        interrupted: Whether it has not ended, and nobody drives it.
        parent: Where its steps are from; null when it is no fork.
        events: Its events, by number.
        failures: Its attempts that failed.
        uncertain: Its tool calls whose outcome is not known.
        pending_approvals: Its questions that wait for a decision.
        pending_sleeps: Its sleeps whose time has not come.
    """

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
    """What was said of an uncertain step.

    Args:
        ok: It was recorded.
        run_id: The run.
        seq: The step's number.
        absent: Whether it did not happen; else its result was recorded.
    """

    ok: Literal[True]
    run_id: str
    seq: int
    absent: bool


class Decided(TypedDict):
    """What was decided on a question.

    Args:
        ok: It was recorded.
        run_id: The run.
        seq: The number of the question's step.
        decision: The decision.
        by: Who decided.
    """

    ok: Literal[True]
    run_id: str
    seq: int
    decision: JsonValue
    by: str


class ReplayProblem(TypedDict):
    """Why a run does not replay.

    Args:
        kind: The kind of error.
        why: In short.
        message: In full.
    """

    kind: str
    why: str
    message: str


class CheckedRun(TypedDict):
    """Whether a run replays with a loop.

    Args:
        run_id: The run.
        steps: How many steps are on record.
        replayed: How many of them the loop took as they stand there.
        replays: Whether it took all of them, and went on after them only where the run did not end.
        problem: Where it parts from the record, or what it failed with; null when it replays.
    """

    run_id: str
    steps: int
    replayed: int
    replays: bool
    problem: ReplayProblem | None
