"""The run journal: what an agent run has done, so that none of it is done twice.

It needs no Node and knows nothing of the bridge. Specified in run-journal.md.
"""

from .approvals import PendingApproval
from .checkpoints import Checkpoints, GitCheckpoints
from .durable import DurableRun
from .durable_async import AsyncDurableRun
from .events import (
    KIND_APPROVAL,
    KIND_ITERATION,
    KIND_MODEL_DECISION,
    KIND_TOOL_CALL,
    KIND_TOOL_RESULT,
    KIND_VERIFICATION,
    JournalEvent,
    RunMeta,
)
from .journal import RunJournal
from .lineage import RunDifference
from .sleeps import PendingSleep
from .stepping import current_idempotency_key
from .steps import Absent, Committed, UncertainStep, Unknown

#: What a host is handed to take its steps with: a drive of the turn's own run.
TurnContext = DurableRun
AsyncTurnContext = AsyncDurableRun

__all__ = [
    "KIND_APPROVAL",
    "KIND_ITERATION",
    "KIND_MODEL_DECISION",
    "KIND_TOOL_CALL",
    "KIND_TOOL_RESULT",
    "KIND_VERIFICATION",
    "Absent",
    "AsyncDurableRun",
    "AsyncTurnContext",
    "Checkpoints",
    "Committed",
    "DurableRun",
    "GitCheckpoints",
    "JournalEvent",
    "PendingApproval",
    "PendingSleep",
    "RunDifference",
    "RunJournal",
    "RunMeta",
    "TurnContext",
    "UncertainStep",
    "Unknown",
    "current_idempotency_key",
]
