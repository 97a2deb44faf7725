"""Giving a turn up: an open one fails where it would go on, and nobody tries it again by itself.

What the rules allow is asked of the core: turn-journal.md, sections 5 and 6. An effect that was prepared stays as
unknown as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidJournalError, JournalConflictError
from ..flow import Ask
from ..journal_flows import interpret, write
from . import transitions
from .outcome import Owed, blocked, owed_by
from .plan import plan_turn
from .record import read_stored
from .runs import AbandonedRun, run_id_of

if TYPE_CHECKING:
    from ..documents import Journal, RecoveryDecision
    from ..flow import Flow
    from ..run_journal import RunJournal
    from .root import TurnRoot

#: A text that a person gave is short: it stands in the journal, in logs and in tables.
_LONGEST_TEXT: Final = 500

#: Decisions of the core about open turns that cannot fail any more.
_REFUSALS: Final = {
    "resume_scheduler": "Everything of the turn is done but its scheduler's acknowledgement: acknowledge_turn ends it.",
    "recovery_phase_unavailable": "Every phase of the turn is completed: its own program writes that it is committed.",
}


@dataclass(frozen=True, kw_only=True)
class GivenUpTurn:
    """How a turn stands that was to be given up.

    Args:
        goal_id: Its goal.
        turn_key: Its key.
        status: `failed`; or `committed` or `stopped`: it was over, nothing was changed, and it is not given up.
        changed: Whether it was given up now.
        failed_phase: The phase at which it failed, and from which it would go on.
        by: Who gave it up, the first time; None when it is not given up.
        reason: Why.
        at: When, as ISO 8601.
        in_doubt: The keys of what was about to be done, and of which nobody knows whether it happened: the `effect_ref`
            of a prepared effect, the idempotency keys of its run's tools.
        owed: What its completed phases make due, and nobody has begun: written and not spent, spent and not announced.
        run_id: The run that was closed now, as `cancelled`.
    """

    goal_id: str
    turn_key: str
    status: str
    changed: bool
    failed_phase: str | None = None
    by: str | None = None
    reason: str | None = None
    at: str | None = None
    in_doubt: tuple[str, ...] = ()
    owed: tuple[Owed, ...] = ()
    run_id: str | None = None


def key_of(goal_id: str, agent_id: str, turn_key: str | None, todo_id: str | None, turn_instance_id: str | None) -> str:
    """The key of a turn that is named by it, or as `run_turn` names it."""
    if turn_key is None and todo_id is not None:
        return plan_turn(
            goal_id=goal_id, agent_id=agent_id, todo_id=todo_id, turn_instance_id=turn_instance_id
        ).turn_key
    if turn_key is None or todo_id is not None or turn_instance_id is not None:
        raise InvalidJournalError(
            "Name the turn by its turn_key, or by its todo_id (and turn_instance_id).",
            kind="invalid_request",
            details={"field": "turn_key"},
        )
    return turn_key


def give_up_flow(
    root: TurnRoot,
    *,
    goal_id: str,
    agent_id: str,
    turn_key: str,
    reason: str,
    by: str,
    take_over: bool,
    run_journal: RunJournal | None,
) -> Flow[GivenUpTurn]:
    """Gives a turn up under its lease: first its journal says so, then its run is closed."""
    _check_text("reason", reason)
    _check_text("by", by)
    path = root.path(goal_id, turn_key)
    yield from read_stored(path, goal_id, turn_key)  # a lease of what is not there would leave something there
    lease = yield from root.acquire(path, take_over=take_over)
    try:
        stored = yield from read_stored(path, goal_id, turn_key)
        journal = stored["journal"]
        after = yield from _after(journal, goal_id, agent_id, turn_key, by=by, reason=reason)
        run = AbandonedRun(root, run_journal, run_id_of(turn_key, transitions.host_run(after)), take_over=take_over)
        if after["status"] != "failed":
            return _standing(after, goal_id, turn_key)
        try:
            in_doubt = yield Ask(run.in_doubt)
            yield Ask(run.hold)
            if after is not journal:
                yield from write(
                    path,
                    after,
                    expected_effect_id=None,
                    expected_previous=stored["operation_id"],
                    lease=lease.number,
                )
            run_id = yield Ask(run.cancel)
        finally:
            yield Ask(run.let_go)
        return _standing(after, goal_id, turn_key, in_doubt, changed=after is not journal, run_id=run_id)
    finally:
        yield from lease.give_back()


def foresee_flow(root: TurnRoot, *, goal_id: str, agent_id: str, turn_key: str, by: str) -> Flow[GivenUpTurn]:
    """How the turn would stand; nothing is changed, and whether somebody drives it is not asked."""
    journal = (yield from read_stored(root.path(goal_id, turn_key), goal_id, turn_key))["journal"]
    after = yield from _after(journal, goal_id, agent_id, turn_key, by=by, reason="")
    run = AbandonedRun(root, None, run_id_of(turn_key, transitions.host_run(after)))
    try:
        in_doubt = (yield Ask(run.in_doubt)) if after["status"] == "failed" else ()
    finally:
        yield Ask(run.let_go)
    return _standing(after, goal_id, turn_key, in_doubt, changed=after is not journal)


def given_up_by(root: TurnRoot, goal_id: str, turn_key: str) -> Flow[str | None]:
    """By whom a turn was given up, when and why, in words; None when it was not."""
    stored = yield from read_stored(root.path(goal_id, turn_key), goal_id, turn_key)
    said = transitions.giving_up(stored["journal"])
    return None if said is None else f"{said.get('by')} at {said.get('at')}: {said.get('reason')}"


def _after(
    journal: Journal, goal_id: str, agent_id: str, turn_key: str, *, by: str, reason: str
) -> Flow[transitions.Journal]:
    """The journal of the turn once it is given up; the same one when there is nothing to give up."""
    inspection = yield from interpret(journal, goal_id=goal_id, agent_id=agent_id, turn_key=turn_key)
    decision: RecoveryDecision = inspection["recovery_decision"]
    if decision["reason"] in _REFUSALS:
        raise JournalConflictError(_REFUSALS[decision["reason"]], details={"status": inspection["journal_status"]})
    if decision["action"] == "blocked":
        raise blocked(decision, turn_key, ())
    if decision["reason"] == "terminal_result_retained" or transitions.giving_up(journal) is not None:
        return journal
    return transitions.given_up(journal, decision, by=by, reason=reason)


def _standing(
    journal: transitions.Journal,
    goal_id: str,
    turn_key: str,
    in_doubt: tuple[str, ...] = (),
    *,
    changed: bool = False,
    run_id: str | None = None,
) -> GivenUpTurn:
    given_up: dict[str, Any] = transitions.giving_up(journal) or {}
    receipt = journal.get("receipt")
    pending = transitions.pending_ref(journal)
    effect_id = transitions.identity(journal).get("effect_id")
    owed = owed_by(journal, effect_id) if isinstance(effect_id, str) else ()
    return GivenUpTurn(
        goal_id=goal_id,
        turn_key=turn_key,
        status=journal["status"],
        changed=changed,
        failed_phase=receipt.get("failed_phase") if isinstance(receipt, dict) else None,
        by=given_up.get("by"),
        reason=given_up.get("reason"),
        at=given_up.get("at"),
        in_doubt=in_doubt if pending is None else (pending, *in_doubt),
        owed=tuple(one for one in owed if one.effect_ref != pending),
        run_id=run_id,
    )


def _check_text(field: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip() or len(value) > _LONGEST_TEXT:
        raise InvalidJournalError(
            f"Say in `{field}` {'why' if field == 'reason' else 'who gives the turn up'}, in at most {_LONGEST_TEXT} "
            "characters; it stands in the journal.",
            kind="invalid_request",
            details={"field": field},
        )
