"""The ways a turn can go, sync and async: through, failed, refused, uncertain, blocked, scheduled, suspended."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.turns.world import (
    AGENT,
    GOAL,
    RESULT,
    IdempotentLedger,
    KilledError,
    Ledger,
    ReadableLedger,
    ScriptedHost,
    Turn,
    rate_limited,
    with_session,
)

from turn_journal_runtime.address import turn_journal_path
from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalConflictError,
    JournalNotFoundError,
    TurnSuspended,
    UncertainEffectError,
)
from turn_journal_runtime.hosts import CallableHost
from turn_journal_runtime.journal import inspect_turn_journal, write_turn_journal
from turn_journal_runtime.turns import (
    HostFailedError,
    Refusal,
    TurnRecoveryBlockedError,
    acknowledge_turn,
    transitions,
)
from turn_journal_runtime.turns.plan import plan_turn

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def turn(request: pytest.FixtureRequest, root: Path | str) -> Turn:
    return Turn(root, is_async=request.param)


@pytest.fixture
def sync_turn(root: Path | str) -> Turn:
    """For matrices over what both forms share: the flow is one."""
    return Turn(root, is_async=False)


def ledgers() -> dict[str, Any]:
    return {"writeback": ReadableLedger(), "spend": ReadableLedger(), "scheduler": ReadableLedger()}


# Straight through


def test_a_turn_goes_through_its_phases_and_each_effect_has_its_key(turn: Turn) -> None:
    parts, host = ledgers(), ScriptedHost()
    seen: list[Any] = []
    result = turn.run(host, validate=seen.append, host_input="the prompt", **parts)
    assert (result.status, result.ok, result.owed, result.replayed, result.attempts) == (
        "committed",
        True,
        (),
        False,
        1,
    )
    assert (result.result, seen) == (RESULT, [RESULT])
    for name, step in [
        ("writeback", "durable_writeback"),
        ("spend", "quota_spend"),
        ("scheduler", "terminal_closeout"),
    ]:
        assert parts[name].applied == [f"{result.effect_id}#{step}"]
        assert parts[name].payloads[0]["result"] == RESULT
    (request,) = host.executed
    assert (request.input, request.attempt, request.effect_id) == ("the prompt", 1, result.effect_id)
    progress = [0, 2, 3, 3, 4, 4, 5, 5]
    assert turn.history() == [*(("in_progress", count) for count in progress), ("committed", 7)]
    inspection = inspect_turn_journal(turn.root, goal_id=GOAL, agent_id=AGENT, turn_key=result.turn_key)
    assert inspection["replay_legal"]
    assert set(inspection["recorded_effects"].values()) == {True}


def test_a_turn_that_is_over_is_returned_and_nothing_is_called(turn: Turn) -> None:
    first = turn.run(ScriptedHost(), **ledgers())
    host, parts = ScriptedHost(), ledgers()
    again = turn.run(host, **parts)
    assert (again.replayed, again.status, again.result, again.turn_key) == (True, "committed", RESULT, first.turn_key)
    assert not host.executed
    assert not any(ledger.applied for ledger in parts.values())


def test_without_providers_nothing_is_prepared(turn: Turn) -> None:
    assert turn.run(ScriptedHost()).ok
    assert turn.history() == [*(("in_progress", count) for count in (0, 2, 3, 4, 5)), ("committed", 7)]


def test_async_and_sync_callables_do_in_both_forms(turn: Turn) -> None:
    sent = []

    async def send(effect_ref: str, payload: Any) -> None:
        sent.append(effect_ref)

    async def agree(result: Any) -> bool:
        return True

    async def loop(context: Any) -> dict[str, Any]:
        answer = await context.model(lambda: "yes", request={"prompt": "?"})
        return {**RESULT, "answer": answer}

    result = turn.run(CallableHost(loop), validate=agree, writeback=send, spend=lambda ref, payload: sent.append(ref))
    assert result.result == {**RESULT, "answer": "yes"}
    assert len(sent) == 2


@pytest.mark.parametrize("kind", ["stop", "wait", "user_action_required", "iteration_failed"])
def test_a_stop_result_ends_the_turn_after_validation(turn: Turn, kind: str) -> None:
    parts = ledgers()
    validated: list[Any] = []
    result = turn.run(ScriptedHost({"result_kind": kind}), validate=validated.append, **parts)
    assert (result.status, result.ok, len(validated)) == ("stopped", True, 1)
    assert not any(ledger.applied for ledger in parts.values())
    assert turn.run(ScriptedHost(), **parts).replayed


def test_the_same_inputs_are_the_same_turn_and_others_another() -> None:
    names: dict[str, Any] = {"goal_id": "g", "agent_id": "a", "todo_id": "t"}
    key = plan_turn(**names).turn_key
    assert key == "sha256:1933a408a08be8b2e1a09f5b915a8dd4eed9b1c30d28f521b4a1ec8c7f4ebc66"
    assert plan_turn(**names, session={"action": "resume", "id": "s"}).turn_key == key
    others: list[dict[str, Any]] = [
        {**names, "todo_id": "t2"},
        {**names, "turn_instance_id": "2"},
        {**names, "goal_id": "g:a"},
    ]
    assert len({key, *(plan_turn(**other).turn_key for other in others)}) == 4


@pytest.mark.parametrize(
    "names",
    [
        {"todo_id": " t"},
        {"agent_id": ""},
        {"goal_id": "a/b"},
        {"todo_id": "a\nb"},
        {"todo_id": "a:b", "turn_instance_id": "1"},
    ],
)
def test_names_that_name_nothing_are_refused_before_anything_is_done(turn: Turn, names: dict[str, str]) -> None:
    host = ScriptedHost()
    with pytest.raises(InvalidJournalError) as raised:
        turn.run(host, **names)
    assert raised.value.kind == "invalid_request"
    assert not host.executed
    assert turn.is_empty


def test_what_is_no_host_and_no_provider_is_refused(turn: Turn) -> None:
    for parts in ({"host": lambda context: RESULT}, {"host": ScriptedHost(), "writeback": object()}):
        with pytest.raises(InvalidJournalError, match=r"CallableHost|apply"):
            turn.run(**parts)
    assert turn.is_empty


# The host fails


def test_a_failed_host_is_recorded_and_tried_again_only_when_asked(turn: Turn) -> None:
    host = ScriptedHost(rate_limited())
    failed = turn.run(host)
    assert (failed.status, failed.failed_phase, failed.failure_kind, failed.ok) == (
        "failed",
        "host_execute",
        "rate_limited",
        False,
    )
    assert isinstance(failed.cause, HostFailedError)
    assert turn.journal["host_failure"]["retry"] == {
        "strategy": "same_configuration",
        "max_attempts": 3,
        "backoff_seconds": 60,
    }
    assert "host_recovery" not in turn.journal
    waiting = turn.run(host)
    assert (waiting.replayed, waiting.status, len(host.executed)) == (True, "failed", 1)
    done = turn.run(host, retry_failed=True)
    assert (done.status, done.attempts, len(host.executed)) == ("committed", 2, 2)
    assert "host_failure" not in turn.journal
    assert turn.journal["recovery_audit"]["planned"]["reason"] == "retry_failed_phase"
    assert turn.journal["recovery_audit"]["actual"] == {
        "status": "finished",
        "journal_status": "committed",
        "completed_phases": turn.journal["completed_phases"],
        "host_invoked": True,
    }


def test_an_exception_of_the_host_is_an_unknown_failure(turn: Turn) -> None:
    failed = turn.run(ScriptedHost(ValueError("secret")))
    assert (failed.failure_kind, isinstance(failed.cause, ValueError)) == ("unknown", True)
    assert failed.reason == "The host raised ValueError: see `cause`."
    assert "secret" not in turn.stored
    assert turn.run(ScriptedHost()).reason == "The host failed."  # a journal keeps no more


@pytest.mark.parametrize(
    ("answer", "what"),
    [
        (None, "it is a NoneType"),
        ("done", "it is a str"),
        ({"answer": 42}, 'it has no "result_kind"'),
        ({**RESULT, "turn_key": "another"}, "its turn_key is another turn's"),
        ({**RESULT, "at": object()}, "it is no JSON"),
        ({**RESULT, "x": "y" * 70_000}, "it is larger than max_result_bytes"),
    ],
)
def test_a_result_that_is_none_is_told_what_it_lacks(turn: Turn, answer: Any, what: str) -> None:
    failed = turn.run(ScriptedHost(lambda request: answer))
    assert failed.failure_kind == "contract_rejected"
    assert what in str(failed.reason)


def test_the_attempts_of_a_host_are_limited(turn: Turn) -> None:
    host = ScriptedHost(*[rate_limited() for _ in range(5)])
    for _ in range(3):
        assert turn.run(host, retry_failed=True).status == "failed"
    with pytest.raises(TurnRecoveryBlockedError) as raised:
        turn.run(host, retry_failed=True)
    assert raised.value.decision["reason"] == "host_retry_budget_exhausted"
    assert len(host.executed) == 3


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        {},
        {"result_kind": " "},
        {"result_kind": 1},
        {**RESULT, "turn_key": "another"},
        {**RESULT, "x": object()},
    ],
)
def test_a_result_that_breaks_the_contract_is_no_result(turn: Turn, result: Any) -> None:
    failed = turn.run(ScriptedHost(lambda request: result))
    assert (failed.status, failed.failure_kind) == ("failed", "contract_rejected")
    assert "host_result" not in turn.journal


@pytest.mark.parametrize("value", [float("nan"), 2**60, "\ud800", {1: 2}])
def test_a_result_that_json_cannot_carry_is_no_result(turn: Turn, value: Any) -> None:
    failed = turn.run(ScriptedHost(lambda request: {**RESULT, "value": value}))
    assert (failed.status, failed.failure_kind) == ("failed", "contract_rejected")


@pytest.mark.parametrize(("depth", "fits"), [(127, True), (128, False)])
def test_a_result_is_no_deeper_than_its_journal_may_be(turn: Turn, depth: int, fits: bool) -> None:
    inner: list[Any] = []
    for _ in range(depth - 2):
        inner = [inner]
    done = turn.run(ScriptedHost({**RESULT, "x": inner}))
    assert (done.ok, done.failure_kind) == ((True, None) if fits else (False, "contract_rejected"))


def test_a_result_has_a_size(turn: Turn) -> None:
    assert turn.run(ScriptedHost({**RESULT, "x": "y" * 70_000})).failure_kind == "contract_rejected"
    assert turn.run(ScriptedHost({**RESULT, "x": "y" * 70_000}), retry_failed=True, max_result_bytes=80_000).ok


# The host's session outlives it


def test_a_session_that_outlived_its_host_is_resumed_and_the_host_is_not_executed(turn: Turn) -> None:
    host = ScriptedHost(with_session("s-1", rate_limited(resumable=True)))
    assert turn.run(host).status == "failed"
    assert turn.journal["host_recovery"] == {"schema_version": "loopx_turn_host_recovery_v0", "kind": "resume_session"}
    host.sessions.add("s-1")
    done = turn.run(host, retry_failed=True)
    assert (done.status, done.attempts, len(host.executed)) == ("committed", 2, 1)
    ((session_id, request),) = host.resumed
    assert (session_id, request.session["action"], request.session["id"]) == ("s-1", "resume", "s-1")
    checks = turn.journal["recovery_audit"]["planned"]["checks"]
    assert {"kind": "host_session_binding", "outcome": "passed", "reason": "session_binding_matched"} in checks


def test_the_callers_resolver_is_asked_before_what_was_noted(turn: Turn) -> None:
    host = ScriptedHost(rate_limited(resumable=True))
    turn.run(host)
    host.sessions.add("mine")
    binding = {"schema_version": "loopx_turn_session_binding_v0", "goal_id": GOAL, "agent_id": AGENT, "todo_id": "todo"}

    async def resolve(envelope: Any) -> dict[str, str]:
        assert envelope["goal_id"] == GOAL
        return {**binding, "session_id": "mine"}

    assert turn.run(host, retry_failed=True, session_binding_resolver=resolve).ok
    assert host.resumed[0][0] == "mine"


@pytest.mark.parametrize(
    ("resolver", "reason"),
    [
        (None, "binding_resolver_unavailable"),
        (lambda envelope: None, "session_binding_missing"),
        (lambda envelope: 1 / 0, "binding_resolution_failed"),
        (lambda envelope: {"schema_version": "x"}, "session_binding_schema_unsupported"),
    ],
)
def test_without_a_proven_binding_a_retry_is_blocked_and_changes_nothing(
    turn: Turn, resolver: Any, reason: str
) -> None:
    host = ScriptedHost(rate_limited(resumable=True))
    turn.run(host)
    before = turn.journal
    with pytest.raises(TurnRecoveryBlockedError) as raised:
        turn.run(host, retry_failed=True, session_binding_resolver=resolver)
    assert raised.value.decision["reason"] == reason
    assert (turn.journal, len(host.executed), host.resumed) == (before, 1, [])


def test_a_session_that_is_gone_is_said_to_be_and_the_next_retry_starts_anew(turn: Turn) -> None:
    host = ScriptedHost(with_session("s-1", rate_limited(resumable=True)))
    turn.run(host)
    gone = turn.run(host, retry_failed=True)
    assert (gone.failure_kind, len(host.executed), host.resumed) == ("session_missing", 1, [])
    assert turn.run(host, retry_failed=True).ok
    assert len(host.executed) == 2


@pytest.mark.parametrize("alive", [True, False])
def test_a_driver_that_died_with_its_host_leaves_the_session_to_the_next(turn: Turn, alive: bool) -> None:
    host = ScriptedHost(with_session("s-1", KilledError()))
    turn.kill(host)
    if alive:
        host.sessions.add("s-1")
    assert turn.run(host).attempts == 2
    assert (len(host.executed), len(host.resumed)) == ((1, 1) if alive else (2, 0))


def test_a_resumption_that_is_killed_is_resumed_again(turn: Turn) -> None:
    host = ScriptedHost(rate_limited(resumable=True), KilledError())
    host.sessions.add("mine")
    binding = {"schema_version": "loopx_turn_session_binding_v0", "goal_id": GOAL, "agent_id": AGENT, "todo_id": "todo"}
    turn.run(host)
    turn.kill(host, retry_failed=True, session_binding_resolver=lambda envelope: {**binding, "session_id": "mine"})
    assert turn.run(host).ok
    assert (len(host.executed), [session for session, _ in host.resumed]) == (1, ["mine", "mine"])


def test_a_turn_that_never_began_is_begun_whatever_session_was_planned_for_it(turn: Turn) -> None:
    assert turn.run(ScriptedHost(with_session("s-1", lambda _: dict(RESULT))), turn_instance_id="first").ok
    session = {"action": "resume", "id": "s-1"}
    names = {"goal_id": GOAL, "agent_id": AGENT, "todo_id": "todo", "turn_instance_id": "second"}
    plan = plan_turn(**names, session=session)
    write_turn_journal(turn_journal_path(turn.root, goal_id=GOAL, turn_key=plan.turn_key), transitions.opened(plan))
    host = ScriptedHost()
    host.sessions.add("s-1")
    assert turn.run(host, turn_instance_id="second", session=session).ok
    assert (len(host.executed), host.resumed) == (1, [])


# Validation refuses


def refuse(error: Exception) -> Any:
    def validate(result: Any) -> None:
        raise error

    return validate


@pytest.mark.parametrize(
    "validate",
    [
        lambda result: False,
        lambda result: "not good",
        lambda result: Refusal("not good"),
        refuse(ValueError("not good")),
        refuse(AssertionError("not good")),
    ],
)
def test_a_refused_result_is_done_anew_on_retry(turn: Turn, validate: Any) -> None:
    asked: list[int] = []

    def model() -> int:
        asked.append(1)
        return len(asked)

    def loop(context: Any) -> dict[str, Any]:
        return {**RESULT, "n": context.model(model, request={"prompt": "?"})}

    refused = turn.run(CallableHost(loop), validate=validate)
    assert (refused.status, refused.failed_phase) == ("failed", "validation")
    assert refused.reason in ("not good", "The host's result was refused by validation.")
    assert "not good" not in turn.stored
    done = turn.run(CallableHost(loop), validate=lambda result: result["n"] == 2, retry_failed=True)
    assert (done.status, done.result, done.attempts) == ("committed", {**RESULT, "n": 2}, 2)


def test_a_refused_postcondition_is_looked_at_again_without_the_host(turn: Turn) -> None:
    host = ScriptedHost()
    turn.run(host, validate=lambda result: Refusal(stage="task_postcondition"))
    assert turn.run(host, validate=lambda result: True, retry_failed=True).ok
    assert len(host.executed) == 1


def test_a_validation_that_raises_decides_nothing(turn: Turn) -> None:
    host = ScriptedHost()
    with pytest.raises(ZeroDivisionError):
        turn.run(host, validate=lambda result: 1 / 0)
    assert (turn.journal["status"], len(turn.journal["completed_phases"])) == ("in_progress", 2)
    assert turn.run(host).ok
    assert len(host.executed) == 1


# An effect is uncertain

STEPS = [("writeback", "durable_writeback"), ("spend", "quota_spend"), ("scheduler", "terminal_closeout")]


@pytest.mark.parametrize(("name", "step"), STEPS)
@pytest.mark.parametrize("how", ["killed", "raised"])
@pytest.mark.parametrize("happened", [True, False])
def test_an_uncertain_effect_is_asked_back_and_done_once(
    sync_turn: Turn, name: str, step: str, how: str, happened: bool
) -> None:
    parts, host = ledgers(), ScriptedHost()
    error = KilledError() if how == "killed" else OSError("secret")
    setattr(parts[name], "dies" if happened else "fails", error)
    if how == "killed":
        sync_turn.kill(host, **parts)
    else:
        failed = sync_turn.run(host, **parts)
        assert (failed.status, failed.failed_phase, failed.cause) == ("failed", step, error)
        assert "secret" not in sync_turn.stored
        assert failed.owed == sync_turn.run(host, **parts).owed
    assert list(sync_turn.journal["effect_attempts"]) == [step]
    parts[name].heal()
    done = sync_turn.run(host, retry_failed=True, **parts)
    assert (done.status, len(host.executed)) == ("committed", 1)
    assert parts[name].asked == [f"{done.effect_id}#{step}"]
    for ledger in parts.values():
        assert len(ledger.applied) == 1


@pytest.mark.parametrize(("name", "step"), STEPS)
def test_an_idempotent_provider_is_sent_the_same_key_again(sync_turn: Turn, name: str, step: str) -> None:
    parts = {**ledgers(), name: IdempotentLedger()}
    parts[name].dies = KilledError()
    sync_turn.kill(ScriptedHost(), **parts)
    parts[name].heal()
    done = sync_turn.run(ScriptedHost(), **parts)
    assert done.ok
    assert parts[name].applied == [f"{done.effect_id}#{step}"] * 2


@pytest.mark.parametrize(("name", "step"), STEPS)
@pytest.mark.parametrize(
    "provider", [Ledger(), ReadableLedger(answers="unknown"), ReadableLedger(answers="perhaps"), None]
)
def test_an_effect_that_nobody_knows_of_blocks_and_is_never_repeated(
    sync_turn: Turn, name: str, step: str, provider: Any
) -> None:
    parts, deadly = ledgers(), Ledger()
    deadly.dies = KilledError()
    sync_turn.kill(ScriptedHost(), **{**parts, name: deadly})
    for _ in range(3):  # asking again and again uses up no budget
        with pytest.raises(TurnRecoveryBlockedError) as raised:
            sync_turn.run(ScriptedHost(), max_recoveries=1, **{**parts, name: provider})
    decision = raised.value.decision
    assert (decision["action"], decision["reason"], decision["resume_from"]) == (
        "blocked",
        "prepared_effect_unknown",
        "scheduler_apply" if name == "scheduler" else step,
    )
    assert provider is None or not provider.applied
    assert pickle.loads(pickle.dumps(raised.value)).decision == decision  # noqa: S301
    # Once somebody knows, the turn goes on.
    assert sync_turn.run(ScriptedHost(), **{**parts, name: ReadableLedger(answers="committed")}).ok


def test_what_is_written_and_not_spent_is_owed(turn: Turn) -> None:
    parts = ledgers()
    parts["spend"].fails = OSError()
    failed = turn.run(ScriptedHost(), **parts)
    assert [(owed.step, owed.effect_ref) for owed in failed.owed] == [
        ("quota_spend", f"{failed.effect_id}#quota_spend")
    ]
    assert not failed.ok


# The scheduler


def test_a_scheduler_may_ask_to_be_waited_for(turn: Turn) -> None:
    scheduler = Ledger("action_required")
    waits = turn.run(ScriptedHost(), scheduler=scheduler)
    assert (waits.status, waits.ok) == ("scheduler_action_required", False)
    assert [owed.effect_ref for owed in waits.owed] == [f"{waits.effect_id}#terminal_closeout"]
    for _ in range(3):  # looking again is no recovery
        again = turn.run(ScriptedHost(), scheduler=scheduler, max_recoveries=1)
        assert (again.status, again.replayed, again.owed) == (waits.status, True, waits.owed)
    assert len(scheduler.applied) == 1
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "turn_key": waits.turn_key}
    with pytest.raises(TurnRecoveryBlockedError):
        acknowledge_turn(turn.root, **{**names, "agent_id": "another"})
    assert acknowledge_turn(turn.root, **names).ok
    assert acknowledge_turn(turn.root, **names).replayed
    assert turn.run(ScriptedHost()).status == "committed"


def test_a_scheduler_that_knows_better_ends_the_turn(turn: Turn) -> None:
    scheduler = ReadableLedger("action_required", answers="action_required")
    assert turn.run(ScriptedHost(), scheduler=scheduler).status == "scheduler_action_required"
    assert turn.run(ScriptedHost(), scheduler=scheduler).status == "scheduler_action_required"
    scheduler.answers = "committed"
    assert turn.run(ScriptedHost(), scheduler=scheduler).ok
    assert len(scheduler.applied) == 1


def test_an_uncertain_scheduler_may_turn_out_to_be_waiting(turn: Turn) -> None:
    scheduler = ReadableLedger("action_required", answers="action_required")
    scheduler.dies = KilledError()
    turn.kill(ScriptedHost(), scheduler=scheduler)
    scheduler.heal()
    assert turn.run(ScriptedHost(), scheduler=scheduler).status == "scheduler_action_required"
    assert len(scheduler.applied) == 1


def test_only_a_turn_that_waits_can_be_acknowledged(turn: Turn) -> None:
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "turn_key": "sha256:" + "0" * 64}
    with pytest.raises(JournalNotFoundError):
        acknowledge_turn(turn.root, **names)
    assert turn.is_empty
    failed = turn.run(ScriptedHost(rate_limited()))
    with pytest.raises(JournalConflictError):
        acknowledge_turn(turn.root, **{**names, "turn_key": failed.turn_key})


def test_a_plain_turn_has_no_scheduler_to_be_acknowledged(turn: Turn) -> None:
    plain = {
        "schema_version": "loopx_turn_journal_v0",
        "goal_id": GOAL,
        "agent_id": AGENT,
        "turn_key": "plain",
        "status": "started",
        "completed_phases": [],
        "plan": {},
    }
    write_turn_journal(turn_journal_path(turn.root, goal_id=GOAL, turn_key="plain"), plain)
    with pytest.raises(JournalConflictError, match="its own program drives it"):
        acknowledge_turn(turn.root, goal_id=GOAL, agent_id=AGENT, turn_key="plain")


# Recoveries are counted, and only those


def test_a_turn_that_kills_its_driver_again_and_again_is_stopped_and_others_go_on(sync_turn: Turn) -> None:
    turn = sync_turn
    host = ScriptedHost(*[KilledError() for _ in range(10)])
    for _ in range(4):
        turn.kill(host, max_recoveries=3)
    with pytest.raises(TurnRecoveryBlockedError) as raised:
        turn.run(host, max_recoveries=3)
    assert raised.value.decision["reason"] == "recovery_budget_exhausted"
    assert len(host.executed) == 4
    assert turn.run(ScriptedHost(), todo_id="another", max_recoveries=3).ok
    assert turn.run(ScriptedHost(), max_recoveries=4).attempts == 5


def test_a_foreign_journal_is_blocked_and_left_alone(tmp_path: Path) -> None:
    turn = Turn(tmp_path, is_async=False)
    turn.kill(ScriptedHost(KilledError()))
    journal = turn.path.read_text()
    turn.path.write_text(journal.replace('"agent_id":"agent"', '"agent_id":"thief"'))
    host = ScriptedHost()
    with pytest.raises(TurnRecoveryBlockedError) as raised:
        turn.run(host)
    assert raised.value.decision["reason"] == "journal_inconsistent"
    assert not host.executed


# The inner cursor belongs to the outer one


def test_a_recovered_host_replays_what_its_run_has_recorded(turn: Turn) -> None:
    done: list[str] = []
    deadly = [True]

    def model() -> str:
        done.append("model")
        return "plan"

    def loop(context: Any) -> dict[str, Any]:
        plan = context.model(model, request={"prompt": "?"})
        context.tool("send", {"to": plan}, lambda to: done.append("send"))
        if deadly:
            raise KilledError
        return {**RESULT, "plan": plan}

    turn.kill(CallableHost(loop))
    deadly.clear()
    assert turn.run(CallableHost(loop)).result == {**RESULT, "plan": "plan"}
    assert done == ["model", "send"]
    with turn.runs() as runs:
        meta = runs.run_meta(plan_turn(goal_id=GOAL, agent_id=AGENT, todo_id="todo").turn_key)
    assert meta is not None
    assert meta.status == "done"


def test_a_turn_waits_for_approvals_without_using_up_anything(turn: Turn) -> None:
    count = 4

    def loop(context: Any, request: Any) -> dict[str, Any]:
        return {**RESULT, "answers": [context.approval("may I?", binds={"n": n}) for n in range(count)]}

    key = plan_turn(goal_id=GOAL, agent_id=AGENT, todo_id="todo").turn_key
    for _ in range(count):
        with pytest.raises(TurnSuspended) as raised:
            turn.run(CallableHost(loop), max_recoveries=1)
        assert turn.journal["status"] == "in_progress"
        with turn.runs() as runs:
            runs.approve(key, raised.value.details["seq"], "yes", by="me")
    done = turn.run(CallableHost(loop), max_recoveries=1)
    assert (done.result, done.attempts) == ({**RESULT, "answers": ["yes"] * count}, 1)


def test_a_step_in_doubt_is_never_run_again_and_fails_nothing(turn: Turn) -> None:
    ran: list[int] = []

    def loop(context: Any) -> dict[str, Any]:
        return {**RESULT, "paid": context.tool("pay", {"amount": 5}, pay)}

    def pay(amount: int) -> str:
        ran.append(amount)
        raise KilledError

    turn.kill(CallableHost(loop))
    with pytest.raises(UncertainEffectError) as raised:
        turn.run(CallableHost(loop))
    assert turn.journal["status"] == "in_progress"
    with turn.runs() as runs:
        runs.settle(raised.value.details["run_id"], raised.value.details["seq"], result="paid")
    assert turn.run(CallableHost(loop)).result == {**RESULT, "paid": "paid"}
    assert ran == [5]
