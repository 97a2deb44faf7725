"""Drives one turn through its phases, from wherever it stands: session-recovery.md, section 3.

A drive is a flow (see `flow`): it asks the core for every decision, runs the caller's callables, and writes each step
before the next begins, so that it may be killed at any instruction and begun again.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from ..errors import InvalidJournalError, RecordedToolError, TurnJournalError
from ..flow import Ask, Call, Flow
from ..journal_flows import BINDING_CHECK_UNAVAILABLE
from ..json_values import encode
from ..session_recovery import (
    Assessment,
    assessment_flow,
    build_host_recovery_record,
    host_failure_flow,
    reconciliation_flow,
)
from ..settings import current
from . import transitions
from .host import FAILURE_REASONS, HostFailedError, HostRequest
from .outcome import TurnResult, blocked, owed_by, result_of
from .parts import STOP_RESULT_KINDS, Refusal, TurnParts, refusal_of
from .plan import PHASES, TurnPlan
from .providers import ACTION_REQUIRED, CLOSEOUT, SPEND, WRITEBACK, Effect, readback_answer
from .record import TurnRecord
from .runs import TurnRuns
from .sessions import TurnSessions

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ..documents import RecoveryDecision
    from ..session_recovery import SessionBindingResolver
    from .host import Run
    from .root import Lease, TurnRoot

#: What `_send` answers when the turn has failed at that step.
_FAILED: Final = object()

_REFUSED: Final = "The host's result was refused by validation."
_STEP_FAILED: Final = {
    WRITEBACK: "The writeback failed; whether it happened is not known.",
    SPEND: "The spend failed; whether it happened is not known.",
    CLOSEOUT: "The scheduler failed; whether it was reached is not known.",
}
#: What is wrong with a result that a journal cannot hold, by the kind of the fault.
_UNFIT: Final = {
    "journal_too_large": "it is larger than max_result_bytes",
    "journal_too_deep": "it nests too deep",
}


def turn_flow(root: TurnRoot, plan: TurnPlan, parts: TurnParts) -> Flow[TurnResult]:
    """One drive of a turn, under its lease."""
    path = root.path(plan.goal_id, plan.turn_key)
    lease = yield from root.acquire(path, take_over=parts.take_over)
    runs = TurnRuns(root, plan, parts.run_journal, take_over=parts.take_over)
    try:
        return (yield from _Drive(root, lease, plan, parts, TurnRecord(path, plan, lease), runs).run())
    finally:
        runs.close()
        yield from lease.give_back()


class _Drive:
    """The steps from one stored journal to the next."""

    def __init__(
        self, root: TurnRoot, lease: Lease, plan: TurnPlan, parts: TurnParts, record: TurnRecord, runs: TurnRuns
    ) -> None:
        self._root = root
        self._lease = lease
        self._plan = plan
        self._parts = parts
        self._record = record
        self._runs = runs
        self._decision: RecoveryDecision | None = None
        #: The step whose effect was prepared by an earlier drive: nobody knows whether it happened.
        self._pending: str | None = None
        #: The session that is resumed instead of starting the host, and whether its host had failed.
        self._session_id: str | None = None
        self._was_failed = False
        #: What is told of a failure in this process alone.
        self._cause: BaseException | None = None
        self._reason: str | None = None

    def run(self) -> Flow[TurnResult]:
        """Reads, decides, and does what is left to do."""
        if (yield from self._record.read()):
            decision = self._decision = yield from self._decide()
            if decision["action"] == "blocked":
                raise self._blocked(decision)
            if decision["action"] == "return_existing":
                return self._result(replayed=True)
            if self._record.journal["status"] == "scheduler_action_required":
                return (yield from self._ask_scheduler_back())
            yield from self._begin_recovery(decision)
        steps: dict[int, Callable[[], Flow[None]]] = {
            0: self._host,
            1: self._host,
            2: self._validation,
            3: partial(self._effect, self._parts.writeback, 4),
            4: partial(self._effect, self._parts.spend, 5),
            5: self._scheduler,
        }
        while self._record.journal["status"] == "in_progress":
            yield from steps[len(self._record.journal["completed_phases"])]()
        return self._result()

    # What may be done about what stands

    def _decide(self) -> Flow[RecoveryDecision]:
        """The core's decision, with the host's session looked at where there is one."""
        record, retry = self._record, self._parts.retry_failed
        inspection = yield from record.inspect(retry_failed=retry)
        decision = inspection["recovery_decision"]
        record.host_invoked = inspection["recorded_effects"]["host_invoked"]
        if decision["reason"] == BINDING_CHECK_UNAVAILABLE:
            resolver = self._parts.session_binding_resolver or (yield from self._noted_resolver())
            request = self._session_request()
            assessment = yield from assessment_flow(request, record.journal, session_binding_resolver=resolver)
            self._resume_session(assessment)
            inspection = yield from record.inspect(retry_failed=retry, check=assessment.check)
            return inspection["recovery_decision"]
        if decision["reinvoke_host"] and record.journal["status"] == "in_progress":
            # The driver died while the host worked. A session that this turn is known to have started is not left
            # behind: it is held to the same rules, and without one the host is started again.
            binding = yield from self._sessions().binding()
            if binding is not None and self._is_this_turns(binding):
                self._resume_session((yield from reconciliation_flow(self._session_request(), binding)))
        return decision

    def _resume_session(self, assessment: Assessment) -> None:
        if assessment.error is None and assessment.request.get("_recovery") == {"skip_host": True}:
            self._session_id = assessment.request["session"].get("id")

    def _is_this_turns(self, binding: dict[str, Any]) -> bool:
        planned = self._record.planned_session()
        goes_on = planned.get("action") == "resume" and planned.get("id") == binding.get("session_id")
        was_started = transitions.attempts(self._record.journal) > 0
        return binding.get("turn_key") == self._plan.turn_key or (goes_on and was_started)

    def _begin_recovery(self, decision: RecoveryDecision) -> Flow[None]:
        journal = self._record.journal
        if transitions.recovery_count(journal) >= self._parts.max_recoveries:
            raise self._blocked({**decision, "action": "blocked", "reason": "recovery_budget_exhausted"})
        if transitions.giving_up(journal) is not None:
            # Written first: what may not be taken up, such as a turn that was pruned, is refused with its runs closed.
            self._record.journal = transitions.taken_up(journal, decision)
            yield from self._record.save(finished=False)
            yield Ask(self._runs.open_again, (transitions.host_run(journal),))
        self._pending = transitions.pending_step(journal)
        self._was_failed = journal["status"] == "failed"
        self._record.journal = transitions.resumed(journal, decision)
        self._record.host_invoked = None if decision["reinvoke_host"] else False

    def _ask_scheduler_back(self) -> Flow[TurnResult]:
        """The scheduler was reached and wants to be waited for; it may know better by now."""
        readback = self._parts.scheduler.readback
        if readback is not None:
            answer = yield Ask(readback, (self._plan.effect_ref(CLOSEOUT),))
            if readback_answer(CLOSEOUT, answer) == "committed":
                yield from self._complete(7, "committed")
                return self._result()
        return self._result(replayed=True)

    # The phases

    def _host(self) -> Flow[None]:
        record = self._record
        record.journal = transitions.attempting(record.journal)
        record.host_invoked = None
        yield from record.save()
        yield from self._lease.confirm()
        try:
            result = yield from self._ask_host(self._request())
            self._check_result(result)
        except TurnJournalError as error:
            self._lease.check()
            record.host_invoked = True
            if not isinstance(error, HostFailedError | RecordedToolError):
                # Not the host's failure: a question, a step in doubt, another driver. The same attempt goes on later.
                record.journal = transitions.suspended(record.journal, error.kind)
                yield from record.stand_still()
                raise
            yield from self._host_failed(error)
        except Exception as error:
            self._lease.check()
            record.host_invoked = True
            yield from self._host_failed(error)
        else:
            record.host_invoked = True
            record.journal = transitions.answered(record.journal, result)
            yield from record.save()

    def _ask_host(self, request: HostRequest) -> Generator[Call | Ask, Any, Any]:
        host = self._parts.host
        interrupt = getattr(host, "interrupt", None)
        end = None if interrupt is None else partial(interrupt, request)
        if self._session_id is not None and not (yield Ask(host.session_exists, (self._session_id, request))):
            if self._was_failed:
                raise HostFailedError(kind="session_missing")
            self._session_id = None
        with self._lease.ending(end):
            if self._session_id is None:
                return (yield Ask(host.execute, (request,), end))
            # Noted as this turn's, so that a crash from here on finds it.
            yield Ask(request.on_session, (self._session_id,))
            return (yield Ask(host.resume, (self._session_id, request), end))

    def _check_result(self, result: Any) -> None:
        kind = result.get("result_kind") if isinstance(result, dict) else None
        if not isinstance(result, dict):
            raise _rejected(f"it is a {type(result).__name__}, and a result is a dict")
        if not isinstance(kind, str) or not kind.strip():
            raise _rejected('it has no "result_kind", a text such as "validated_progress"')
        if result.get("turn_key", self._plan.turn_key) != self._plan.turn_key:
            raise _rejected("its turn_key is another turn's")
        try:
            # The result stands one level deep in the journal.
            encode(result, self._parts.max_result_bytes, current().max_depth - 1)
        except InvalidJournalError as error:
            raise _rejected(_UNFIT.get(error.kind, "it is no JSON"), error.kind) from error

    def _host_failed(self, error: Exception) -> Flow[None]:
        record = self._record
        kind, resumable = (error.kind, error.resumable) if isinstance(error, HostFailedError) else ("unknown", False)
        failure = yield from host_failure_flow(kind, transitions.attempts(record.journal))
        recovery = build_host_recovery_record() if resumable else None
        self._cause = error
        # An exception's text may be a provider's; it is in `cause`, for who asks.
        told = error.message if isinstance(error, HostFailedError) else ""
        self._reason = told or f"The host raised {type(error).__name__}: see `cause`."
        record.journal = transitions.host_failed(record.journal, failure, recovery, FAILURE_REASONS[kind])
        yield from record.save()

    def _validation(self) -> Flow[None]:
        record = self._record
        yield from record.save()
        result = record.journal["host_result"]
        refusal: Refusal | None = None
        if self._parts.validate is not None:
            try:
                refusal = refusal_of((yield Ask(self._parts.validate, (dict(result),))))
            except TurnJournalError:
                raise
            except (ValueError, AssertionError) as error:  # how validators say no; anything else decides nothing
                self._cause = error
                refusal = Refusal()
        if refusal is not None:
            self._reason = refusal.reason or None
            failed = transitions.failed(record.journal, PHASES[2], _REFUSED)
            record.journal = {**failed, "validation_stage": refusal.stage}
            yield from record.save()
        else:
            yield from self._complete(3, "stopped" if result["result_kind"] in STOP_RESULT_KINDS else None)

    def _effect(self, effect: Effect, count: int) -> Flow[None]:
        if (yield from self._send(effect)) is not _FAILED:
            yield from self._complete(count)

    def _scheduler(self) -> Flow[None]:
        answer = yield from self._send(self._parts.scheduler)
        if answer == ACTION_REQUIRED:
            yield from self._complete(5, "scheduler_action_required")
        elif answer is not _FAILED:
            yield from self._complete(7, "committed")

    def _complete(self, count: int, status: str | None = None) -> Flow[None]:
        journal = transitions.completed(self._record.journal, count)
        self._record.journal = journal if status is None else transitions.ended(journal, status)
        yield from self._record.save()

    def _send(self, effect: Effect) -> Generator[Call | Ask, Any, Any]:
        """Does an effect once: it is prepared before it is sent, and one that was prepared earlier is asked back."""
        record, effect_ref = self._record, self._plan.effect_ref(effect.step)
        if self._pending == effect.step:
            self._pending = None
            yield from record.save()
            known = yield from self._ask_back(effect, effect_ref)
            if known != "absent":
                return known
        if effect.apply is None:
            return None
        record.journal = transitions.prepared(record.journal, effect.step, effect_ref)
        yield from record.save()
        yield from self._lease.confirm()
        try:
            return (yield Ask(effect.apply, (effect_ref, self._payload(effect_ref))))
        except Exception as error:
            self._cause = error
            record.journal = transitions.failed(record.journal, effect.step, _STEP_FAILED[effect.step])
            yield from record.save()
            return _FAILED

    def _ask_back(self, effect: Effect, effect_ref: str) -> Generator[Call | Ask, Any, str]:
        """What became of an effect that an earlier drive had prepared; blocks when nobody can tell."""
        known = "unknown"
        if effect.readback is not None:
            known = readback_answer(effect.step, (yield Ask(effect.readback, (effect_ref,))))
        elif effect.idempotent:
            known = "absent"
        if known == "unknown":
            yield from self._record.stand_still()
            decision = self._decision
            if decision is None:
                raise RuntimeError("an effect is pending only in a turn that was decided on")
            check: Any = {"kind": "prepared_effect_readback", "outcome": "failed", "step_kind": effect.step}
            checks = [one for one in decision["checks"] if one["kind"] != "prepared_effect_readback"]
            raise self._blocked(
                {**decision, "action": "blocked", "reason": "prepared_effect_unknown", "checks": [*checks, check]}
            )
        return known

    # What the callables are given

    def _request(self) -> HostRequest:
        plan, session = self._plan, self._record.planned_session()
        if self._session_id is not None:
            session |= {"action": "resume", "id": self._session_id}
        return HostRequest(
            goal_id=plan.goal_id,
            agent_id=plan.agent_id,
            todo_id=plan.todo_id,
            turn_key=plan.turn_key,
            effect_id=plan.effect_id,
            attempt=transitions.attempts(self._record.journal),
            turn_envelope=self._record.planned("turn_envelope"),
            session=session,
            input=self._parts.host_input,
            open_run=self._open_run,
            on_session=self._sessions().note,
        )

    def _open_run(self, form: type[Run]) -> Run:
        run = self._runs.open(form, transitions.host_run(self._record.journal))
        # Whoever takes the turn over to end it looks for its run after that: one that is begun later is refused here.
        self._lease.look()
        return run

    def _payload(self, effect_ref: str) -> dict[str, Any]:
        plan = self._plan
        return {
            "goal_id": plan.goal_id,
            "agent_id": plan.agent_id,
            "todo_id": plan.todo_id,
            "turn_key": plan.turn_key,
            "effect_ref": effect_ref,
            "result": dict(self._record.journal["host_result"]),
        }

    def _sessions(self) -> TurnSessions:
        return TurnSessions(self._root.bindings, self._plan, self._record.planned_session())

    def _noted_resolver(self) -> Flow[SessionBindingResolver | None]:
        """Answers with the session that was noted here, when there is one."""
        binding = yield from self._sessions().binding()
        return None if binding is None else lambda _envelope: binding

    def _session_request(self) -> dict[str, Any]:
        return {"session": self._record.planned_session(), "turn_envelope": self._record.planned("turn_envelope")}

    # What the drive comes to

    def _result(self, *, replayed: bool = False) -> TurnResult:
        return result_of(
            self._record.journal,
            self._plan.effect_id,
            replayed=replayed,
            decision=self._decision,
            cause=self._cause,
            reason=self._reason,
        )

    def _blocked(self, decision: RecoveryDecision) -> TurnJournalError:
        decision = {**decision, "can_continue": False, "reinvoke_host": False}
        return blocked(decision, self._plan.turn_key, owed_by(self._record.journal, self._plan.effect_id))


def _rejected(what: str, fault: str | None = None) -> HostFailedError:
    """The failure of a host whose result is none. Its own keys and values are not shown."""
    details = {} if fault is None else {"fault": fault}
    return HostFailedError(f"The host's answer is no result: {what}.", kind="contract_rejected", details=details)
