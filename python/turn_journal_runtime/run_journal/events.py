"""What a run journal holds: events, and what is known of a run."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Final

__all__ = [
    "KINDS",
    "KIND_APPROVAL",
    "KIND_ITERATION",
    "KIND_MODEL_DECISION",
    "KIND_TOOL_CALL",
    "KIND_TOOL_RESULT",
    "KIND_VERIFICATION",
    "RUNNING",
    "TERMINAL_STATUSES",
    "JournalEvent",
    "RunMeta",
]

#: What a model answered.
KIND_MODEL_DECISION: Final = "model_decision"
#: That a tool is about to run: `{name, args, idempotency_key}`.
KIND_TOOL_CALL: Final = "tool_call"
#: What came of it: `{result}`. Without a call: a recorded value, such as a time.
KIND_TOOL_RESULT: Final = "tool_result"
#: A question to a person, and the decision.
KIND_APPROVAL: Final = "approval"
#: Where the loop is: `{index}`.
KIND_ITERATION: Final = "iteration"
#: The outcome of a check: `{name, success, …}`.
KIND_VERIFICATION: Final = "verification"

KINDS: Final = frozenset(
    (KIND_MODEL_DECISION, KIND_TOOL_CALL, KIND_TOOL_RESULT, KIND_APPROVAL, KIND_ITERATION, KIND_VERIFICATION)
)

RUNNING: Final = "running"
TERMINAL_STATUSES: Final = frozenset(("done", "succeeded", "failed", "cancelled"))


@dataclass(slots=True)
class JournalEvent:
    """One recorded boundary of a run; a step has at most one event of each kind.

    Args:
        run_id: The run.
        seq: The number of the step, from 0.
        kind: One of the `KIND_` constants.
        payload: A JSON object.
        created_at: Seconds since the epoch.

    Specified in run-journal.md, section 1.
    """

    run_id: str
    seq: int
    kind: str
    payload: dict[str, Any] = field(default_factory=dict)
    created_at: float = field(default_factory=time.time)


@dataclass(slots=True)
class RunMeta:
    """What is known of a run beside its events.

    Args:
        run_id: The run.
        agent: Whose run it is.
        task: What it is for.
        status: `running`, or `done`, `succeeded`, `failed`, `cancelled`.
        outcome: The text that the run was closed with.
        checkpoint_id: The snapshot of the workspace that the record goes with.
        created_at: Seconds since the epoch.
        updated_at: Seconds since the epoch.
        metadata: A JSON object of the caller's.

    Specified in run-journal.md, section 1.
    """

    run_id: str
    agent: str = ""
    task: str = ""
    status: str = RUNNING
    outcome: str | None = None
    checkpoint_id: str | None = None
    created_at: float = field(default_factory=time.time)
    updated_at: float = field(default_factory=time.time)
    metadata: dict[str, Any] = field(default_factory=dict)
