"""Questions to people, and their decisions.

A question stands in the record as the `approval` event of its step and waits there, in no process. It is bound to the
arguments that it showed: a decision on other arguments is no decision. Specified in run-journal.md, section 4.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import InvalidJournalError, JournalConflictError, RunNotFoundError
from .faults import decode_row
from .payload import decode, encode, same
from .steps import must_be_recorded

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from .database import Database

__all__ = ["PendingApproval", "approve", "pending"]


@dataclass(frozen=True, slots=True)
class PendingApproval:
    """A question that waits for a decision.

    Args:
        run_id: The run that asked it.
        seq: The number of its step, for `approve`.
        question: What is asked.
        binds: The arguments that a decision would be bound to.
        asked_at: When it was asked, in seconds since the epoch.

    Specified in run-journal.md, section 4.
    """

    run_id: str
    seq: int
    question: str
    binds: Any
    asked_at: float


def approve(
    database: Database, stored: Callable[[Mapping[str, Any]], str], run_id: str, seq: int, decision: Any, by: str
) -> None:
    """Records a decision on a question."""
    if decision is None or not isinstance(by, str) or not by:
        raise InvalidJournalError(
            "A decision is a JSON value other than None, and `by` names who made it.", kind="invalid_request"
        )
    with database.transaction() as cursor:
        row = cursor.execute(
            "SELECT CAST(payload AS BLOB) FROM journal WHERE run_id = ? AND seq = ? AND kind = 'approval'",
            (run_id, seq),
        ).fetchone()
        if row is None:
            must_be_recorded(cursor, run_id)
            raise RunNotFoundError(
                f"Run {run_id!r} has asked nothing at step {seq}; `turn-journal run show` and "
                "`RunJournal.pending_approvals` list what waits.",
                details={"run_id": run_id, "seq": seq},
            )
        asked = decode_row(run_id, seq, "approval", row[0])
        kept = decode(stored({"decision": decision, "by": by}).encode())
        if "decision" in asked:
            if same(asked["decision"], kept["decision"]):
                return
            raise JournalConflictError(
                f"Step {seq} of run {run_id!r} was decided otherwise by {asked.get('by')!r}; a decision is never "
                "overwritten.",
                details={"run_id": run_id, "seq": seq, "by": asked.get("by")},
            )
        decided = encode(asked | kept | {"decided_at": time.time()}).decode()
        cursor.execute(
            "UPDATE journal SET payload = ? WHERE run_id = ? AND seq = ? AND kind = 'approval'", (decided, run_id, seq)
        )


def pending(database: Database, run_id: str | None) -> list[PendingApproval]:
    """The questions of running runs without a decision, those of one run by number."""
    rows = database.read(
        "SELECT journal.run_id, seq, CAST(payload AS BLOB), journal.created_at FROM runs "
        "JOIN journal ON journal.run_id = runs.run_id "
        "WHERE status = 'running' AND kind = 'approval' AND runs.run_id = COALESCE(?, runs.run_id) "
        "ORDER BY runs.created_at, seq",
        (run_id,),
    )
    found = []
    for run, seq, payload, asked_at in rows:
        asked = decode_row(run, seq, "approval", payload)
        if "decision" not in asked:
            found.append(PendingApproval(run, seq, str(asked.get("question", "")), asked.get("binds"), asked_at))
    return found
