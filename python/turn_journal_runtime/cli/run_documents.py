"""What the commands that compare, move and end runs answer with; `documents` lists them with the others."""

# ruff: noqa: TC001 (pydantic reads the annotations)

from __future__ import annotations

from typing import Literal, TypeAlias

# pydantic cannot read the one of `typing` before Python 3.12.
from typing_extensions import TypedDict

from ..run_journal.approvals import PendingApproval
from ..run_journal.lineage import RunDifference
from ..run_journal.steps import UncertainStep


class RunDamage(TypedDict):
    """What is wrong with a run that cannot be read whole."""

    kind: str
    message: str


class RunParent(TypedDict):
    """The run that another one was forked from, and the last step that it took over."""

    run_id: str
    upto: int


#: How two runs stand to each other: at the step where they part they took the same one with other content, or another.
RunRelation: TypeAlias = Literal["equal", "a_is_beginning", "b_is_beginning", "content", "path"]


class ComparedRuns(TypedDict):
    """Where two runs part, and how."""

    a: str
    b: str
    relation: RunRelation
    difference: RunDifference | None


class ForkedRun(TypedDict):
    """A run that was made of another one's first steps, and what waits for a person in it."""

    ok: Literal[True]
    run_id: str
    parent: RunParent
    events: int
    uncertain: list[UncertainStep]
    pending_approvals: list[PendingApproval]


class ExportedRun(TypedDict):
    """The file that a run was written to."""

    ok: Literal[True]
    run_id: str
    path: str
    lines: int


class ImportedRun(TypedDict):
    """A run that was imported, and whether it replaced one."""

    ok: Literal[True]
    run_id: str
    replaced: bool
    status: str
    events: int
    interrupted: bool


class BackedUp(TypedDict):
    """The file that a journal was copied to."""

    ok: Literal[True]
    path: str


class ClosedRun(TypedDict):
    """A run that was closed, or would be, and the tool calls whose outcome stays unknown."""

    ok: Literal[True]
    done: bool
    run_id: str
    outcome: Literal["cancelled", "failed", "done"]
    events: int
    uncertain: list[UncertainStep]
    damage: RunDamage | None


class DeletedRun(TypedDict):
    """A run that was deleted, or would be: how it stood, and the tool calls whose outcome was not known."""

    ok: Literal[True]
    done: bool
    run_id: str
    status: str
    events: int
    uncertain: list[UncertainStep]
    damage: RunDamage | None
