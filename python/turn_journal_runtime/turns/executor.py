"""Drives one turn through its phases, from wherever it stands: session-recovery.md, section 3.

A drive is a flow (see `flow`): it asks the core for every decision, runs the caller's callables, and writes each step
before the next begins, so that it may be killed at any instruction and begun again.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ..address import turn_journal_path
from ..errors import InvalidJournalError, JournalNotFoundError, RecordedToolError, TurnJournalError
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
from .core_calls import inspect_call, read_call, write_call
from .host import FAILURE_REASONS, HostFailedError, HostRequest
from .lease import acquire_lease
from .outcome import TurnResult, blocked, owed_by, result_of
from .parts import STOP_RESULT_KINDS, Refusal, TurnParts, refusal_of
from .plan import PHASES, TurnPlan
from .providers import ACTION_REQUIRED, CLOSEOUT, SPEND, WRITEBACK, Effect, readback_answer
from .sessions import TurnSessions

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from ..documents import Inspection, RecoveryDecision
    from ..run_journal import RunJournal
    from ..session_recovery import SessionBindingResolver
    from .host import Run

#: What `_send` answers when the turn has failed at that step.
_FAILED: Final = object()

_REFUSED: Final = "The host's result was refused by validation."
_STEP_FAILED: Final = {
    WRITEBACK: "The writeback failed; whether it happened is not known.",
    SPEND: "The spend failed; whether it happened is not known.",
    CLOSEOUT: "The scheduler failed; whether it was reached is not known.",
}


def run_journal_path(runtime_root: str | os.PathLike[str]) -> Path:
    """Where the runs of a runtime root's turns are recorded, unless `run_turn` was given a run journal."""
    return Path(os.path.abspath(runtime_root)) / "runs" / "journal.db"


def turn_flow(runtime_root: str | os.PathLike[str], plan: TurnPlan, parts: TurnParts) -> Flow[TurnResult]:
    """One drive of a turn, under its lease."""
    root = Path(os.path.abspath(runtime_root))
    path = turn_journal_path(root, goal_id=plan.goal_id, turn_key=plan.turn_key)
    lease = yield Ask(lambda: acquire_lease(path, take_over=parts.take_over))
    drive = _Drive(root, path, plan, parts, lease.number)
    try:
        return (yield from drive.run())
    finally:
        drive.close()
        lease.release()


class _Drive:
    """The journal as it is in memory and as it is stored, and the steps from one to the next."""

    def __init__(self, root: Path, path: Path, plan: TurnPlan, parts: TurnParts, lease: int) -> None:
        self._root = root
        self._path = path
        self._plan = plan
        self._parts = parts
        self._lease = lease
        self._journal: transitions.Journal = {}
        self._stored: transitions.Journal | None = None
        self._operation_id: str | None = None
        self._decision: RecoveryDecision | None = None
        #: Effects that were prepared by an earlier drive: nobody knows whether they happened.
        self._pending: str | None = None
        #: The session that is resumed instead of starting the host, and whether its host had failed.
        self._session_id: str | None = None
        self._was_failed = False
        self._host_invoked: bool | None = False
        #: What is told of a failure in this process alone.
        self._cause: BaseException | None = None
        self._reason: str | None = None
        self._runs = parts.run_journal
        self._own_runs: RunJournal | None = None

    def close(self) -> None:
        """Closes what the drive opened for itself."""
        if self._own_runs is not None:
            self._own_runs.close()

    def run(self) -> Flow[TurnResult]:
        """Reads, decides, and does what is left to do."""
        yield from self._read()
        if self._stored is None:
            self._journal = transitions.opened(self._plan)
        else:
            decision = yield from self._decide()
            self._decision = decision
            if decision["action"] == "blocked":
                raise self._blocked(decision)
            if decision["action"] == "return_existing":
                return self._result(replayed=True)
            if self._stored["status"] == "scheduler_action_required":
                return (yield from self._ask_scheduler_back())
            self._begin_recovery(decision)
        steps: dict[int, Callable[[], Flow[None]]] = {
            0: self._host,
            2: self._validation,
            3: lambda: self._effect(self._parts.writeback, 4),
            4: lambda: self._effect(self._parts.spend, 5),
            5: self._scheduler,
        }
        while self._journal["status"] == "in_progress":
            yield from steps[len(self._journal["completed_phases"])]()
        return self._result()

    # What stands, and what may be done about it

    def _read(self) -> Flow[None]:
        try:
            stored = yield read_call(self._path)
        except JournalNotFoundError:
            return
        self._journal = self._stored = stored["journal"]
        self._operation_id = stored["operation_id"]

    def _decide(self) -> Flow[RecoveryDecision]:
        """The core's decision, with the host's session looked at where there is one."""
        inspection: Inspection = yield self._inspect()
        decision = inspection["recovery_decision"]
        self._host_invoked = inspection["recorded_effects"]["host_invoked"]
        if decision["reason"] == BINDING_CHECK_UNAVAILABLE:
            resolver = self._parts.session_binding_resolver or self._noted_resolver()
            assessment = yield from assessment_flow(
                self._session_request(), self._journal, session_binding_resolver=resolver
            )
            self._resume_session(assessment)
            inspection = yield self._inspect(assessment.check)
            return inspection["recovery_decision"]
        if decision["reinvoke_host"] and self._journal["status"] == "in_progress":
            # The driver died while the host worked. A session that this turn is known to have started is not left
            # behind: it is held to the same rules, and without one the host is started again.
            binding = self._sessions().binding()
            if binding is not None and self._is_this_turns(binding):
                self._resume_session((yield from reconciliation_flow(self._session_request(), binding)))
        return decision

    def _resume_session(self, assessment: Assessment) -> None:
        if assessment.error is None and assessment.request.get("_recovery") == {"skip_host": True}:
            self._session_id = assessment.request["session"].get("id")

    def _is_this_turns(self, binding: dict[str, Any]) -> bool:
        planned = self._planned_session()
        goes_on = planned.get("action") == "resume" and planned.get("id") == binding.get("session_id")
        return binding.get("turn_key") == self._plan.turn_key or (goes_on and transitions.attempts(self._journal) > 0)

    def _begin_recovery(self, decision: RecoveryDecision) -> None:
        if transitions.recovery_count(self._journal) >= self._parts.max_recoveries:
            raise self._blocked({**decision, "action": "blocked", "reason": "recovery_budget_exhausted"})
        self._pending = transitions.pending_step(self._journal)
        self._was_failed = self._journal["status"] == "failed"
        self._journal = transitions.resumed(self._journal, decision)
        self._host_invoked = None if decision["reinvoke_host"] else False

    def _ask_scheduler_back(self) -> Flow[TurnResult]:
        """The scheduler was reached and wants to be waited for; it may know better by now."""
        readback = self._parts.scheduler.readback
        if readback is not None:
            answer = yield Ask(readback, (self._plan.effect_ref(CLOSEOUT),))
            if readback_answer(CLOSEOUT, answer) == "committed":
                self._journal = transitions.ended(transitions.completed(self._journal, 7), "committed")
                yield from self._save()
                return self._result()
        return self._result(replayed=True)

    # The phases

    def _host(self) -> Flow[None]:
        self._journal = transitions.attempting(self._journal)
        request = self._request()
        self._host_invoked = None
        yield from self._save()
        try:
            result = yield from self._ask_host(request)
            self._check_result(result)
        except TurnJournalError as error:
            self._host_invoked = True
            if not isinstance(error, HostFailedError | RecordedToolError):
                # Not the host's failure: a question, a step in doubt, another driver. The same attempt goes on later.
                self._journal = transitions.suspended(self._journal, error.kind)
                yield from self._stand_still()
                raise
            yield from self._host_failed(error)
        except Exception as error:
            yield from self._host_failed(error)
        else:
            self._host_invoked = True
            self._journal = transitions.answered(self._journal, result)
            yield from self._save()

    def _ask_host(self, request: HostRequest) -> Generator[Call | Ask, Any, Any]:
        host = self._parts.host
        interrupt = getattr(host, "interrupt", None)
        end = None if interrupt is None else lambda: interrupt(request)
        if self._session_id is None:
            return (yield Ask(host.execute, (request,), end))
        if not (yield Ask(host.session_exists, (self._session_id, request))):
            if self._was_failed:
                raise HostFailedError(kind="session_missing")
            return (yield Ask(host.execute, (request,), end))
        # Noted as this turn's, so that a crash from here on finds it.
        request.on_session(self._session_id)
        return (yield Ask(host.resume, (self._session_id, request), end))

    def _check_result(self, result: Any) -> None:
        kind = result.get("result_kind") if isinstance(result, dict) else None
        named = isinstance(kind, str) and kind.strip() and result.get("turn_key", self._plan.turn_key)
        if named != self._plan.turn_key:
            raise HostFailedError(kind="contract_rejected")
        try:
            # The result stands one level deep in the journal.
            encode(result, self._parts.max_result_bytes, current().max_depth - 1)
        except InvalidJournalError as error:
            raise HostFailedError(kind="contract_rejected", details={"fault": error.kind}) from error

    def _host_failed(self, error: Exception) -> Flow[None]:
        kind, resumable = (error.kind, error.resumable) if isinstance(error, HostFailedError) else ("unknown", False)
        failure = yield from host_failure_flow(kind, transitions.attempts(self._journal))
        recovery = build_host_recovery_record() if resumable else None
        self._host_invoked = True
        self._cause = error
        self._journal = transitions.host_failed(self._journal, failure, recovery, FAILURE_REASONS[kind])
        yield from self._save()

    def _validation(self) -> Flow[None]:
        yield from self._save()
        result = self._journal["host_result"]
        refusal: Refusal | None = None
        if self._parts.validate is not None:
            refusal = refusal_of((yield Ask(self._parts.validate, (dict(result),))))
        if refusal is not None:
            self._journal = transitions.failed(self._journal, PHASES[2], _REFUSED)
            self._journal["validation_stage"] = refusal.stage
            self._reason = refusal.reason or None
        else:
            self._journal = transitions.completed(self._journal, 3)
            if result["result_kind"] in STOP_RESULT_KINDS:
                self._journal = transitions.ended(self._journal, "stopped")
        yield from self._save()

    def _effect(self, effect: Effect, count: int) -> Flow[None]:
        if (yield from self._send(effect)) is not _FAILED:
            self._journal = transitions.completed(self._journal, count)
            yield from self._save()

    def _scheduler(self) -> Flow[None]:
        answer = yield from self._send(self._parts.scheduler)
        if answer is _FAILED:
            return
        count, status = (5, "scheduler_action_required") if answer == ACTION_REQUIRED else (7, "committed")
        self._journal = transitions.ended(transitions.completed(self._journal, count), status)
        yield from self._save()

    def _send(self, effect: Effect) -> Generator[Call | Ask, Any, Any]:
        """Does an effect once: it is prepared before it is sent, and one that was prepared earlier is asked back."""
        effect_ref = self._plan.effect_ref(effect.step)
        if self._pending == effect.step:
            self._pending = None
            yield from self._save()
            known = yield from self._ask_back(effect, effect_ref)
            if known != "absent":
                return known
        elif effect.apply is None:
            return None
        self._journal = transitions.prepared(self._journal, effect.step, effect_ref)
        yield from self._save()
        if effect.apply is None:
            return None
        try:
            return (yield Ask(effect.apply, (effect_ref, self._payload(effect_ref))))
        except Exception as error:
            self._cause = error
            self._journal = transitions.failed(self._journal, effect.step, _STEP_FAILED[effect.step])
            yield from self._save()
            return _FAILED

    def _ask_back(self, effect: Effect, effect_ref: str) -> Generator[Call | Ask, Any, str]:
        """What became of an effect that an earlier drive had prepared; blocks when nobody can tell."""
        known = "unknown"
        if effect.readback is not None:
            known = readback_answer(effect.step, (yield Ask(effect.readback, (effect_ref,))))
        elif effect.idempotent:
            known = "absent"
        if known == "unknown":
            yield from self._stand_still()
            decision = self._decision
            if decision is None:
                raise RuntimeError("an effect is pending only in a turn that was decided on")
            check: Any = {"kind": "prepared_effect_readback", "outcome": "failed", "step_kind": effect.step}
            checks = [one for one in decision["checks"] if one["kind"] != "prepared_effect_readback"]
            raise self._blocked(
                {**decision, "action": "blocked", "reason": "prepared_effect_unknown", "checks": [*checks, check]}
            )
        return known

    # What the phases share

    def _save(self, *, finished: bool = False) -> Flow[None]:
        """Stores the journal as it is in memory, when it differs from what is stored."""
        finished = finished or self._journal["status"] != "in_progress"
        self._journal = transitions.audited(self._journal, finished=finished, host_invoked=self._host_invoked)
        if self._journal == self._stored:
            return
        written = yield write_call(self._path, self._journal, self._operation_id, self._plan.effect_id, self._lease)
        self._stored, self._operation_id = self._journal, written["operation_id"]

    def _stand_still(self) -> Flow[None]:
        """The drive ends in good order with the turn open: that is no recovery to be counted."""
        self._journal = transitions.not_counted(self._journal)
        yield from self._save(finished=True)

    def _request(self) -> HostRequest:
        plan, session = self._plan, self._planned_session()
        if self._session_id is not None:
            session |= {"action": "resume", "id": self._session_id}
        return HostRequest(
            goal_id=plan.goal_id,
            agent_id=plan.agent_id,
            todo_id=plan.todo_id,
            turn_key=plan.turn_key,
            effect_id=plan.effect_id,
            attempt=transitions.attempts(self._journal),
            turn_envelope=self._plan_part("turn_envelope") or {},
            session=session,
            input=self._parts.host_input,
            open_run=self._open_run,
            on_session=self._sessions().note,
        )

    def _open_run(self, form: type[Run]) -> Run:
        """The turn's run; work that is begun anew begins a new one. How often it is resumed is this turn's business."""
        if self._runs is None:
            from ..run_journal import RunJournal

            file = run_journal_path(self._root)
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._runs = self._own_runs = RunJournal(file)
        anew = transitions.host_run(self._journal)
        run_id = self._plan.turn_key if anew == 0 else f"{self._plan.turn_key}.{anew}"
        return form(
            self._runs,
            run_id,
            agent=self._plan.agent_id,
            task=self._plan.todo_id,
            max_resumes=sys.maxsize,
            take_over=self._parts.take_over,
        )

    def _sessions(self) -> TurnSessions:
        return TurnSessions(self._root, self._plan, self._planned_session())

    def _noted_resolver(self) -> SessionBindingResolver | None:
        """Answers with the session that was noted here, when there is one."""
        binding = self._sessions().binding()
        return None if binding is None else lambda _envelope: binding

    def _session_request(self) -> dict[str, Any]:
        return {"session": self._planned_session(), "turn_envelope": self._plan_part("turn_envelope") or {}}

    def _planned_session(self) -> dict[str, Any]:
        return dict(self._plan_part("session") or {"action": "start_new"})

    def _plan_part(self, name: str) -> Any:
        return self._journal["plan"].get(name)

    def _payload(self, effect_ref: str) -> dict[str, Any]:
        plan = self._plan
        return {
            "goal_id": plan.goal_id,
            "agent_id": plan.agent_id,
            "todo_id": plan.todo_id,
            "turn_key": plan.turn_key,
            "effect_ref": effect_ref,
            "result": dict(self._journal["host_result"]),
        }

    def _inspect(self, check: Any = None) -> Call:
        plan, retry = self._plan, self._parts.retry_failed
        return inspect_call(self._journal, plan.goal_id, plan.agent_id, plan.turn_key, retry, check)

    def _result(self, *, replayed: bool = False) -> TurnResult:
        return result_of(
            self._journal,
            self._plan.effect_id,
            replayed=replayed,
            decision=self._decision,
            cause=self._cause,
            reason=self._reason,
        )

    def _blocked(self, decision: RecoveryDecision) -> TurnJournalError:
        decision = {**decision, "can_continue": False, "reinvoke_host": False}
        owed = owed_by(self._journal, self._plan.effect_id) if "completed_phases" in self._journal else ()
        return blocked(decision, self._plan.turn_key, owed)
