"""Giving a turn up, at each phase of each kind of turn: what the journal says then, and that nothing tries it again."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from tests.python.turns.world import (
    AGENT,
    GOAL,
    RESULT,
    TODO,
    KilledError,
    Ledger,
    ReadableLedger,
    ScriptedHost,
    Turn,
    rate_limited,
)

from turn_journal_runtime import (
    DurableRun,
    GivenUpTurn,
    InvalidJournalError,
    JournalConflictError,
    JournalNotFoundError,
    RunJournal,
    TurnBusyError,
    TurnRecoveryBlockedError,
    current_idempotency_key,
    inspect_turn_journal,
    list_turn_journals,
    load_turn_journal,
    recoverable_turns,
    turn_history,
    turn_journal_path,
    verify_turn_journal,
    write_turn_journal,
)
from turn_journal_runtime.bridge import RuntimeClient, default_client
from turn_journal_runtime.hosts import CallableHost
from turn_journal_runtime.run_journal import ending
from turn_journal_runtime.turns import HostRequest, aio, give_up_turn, transitions
from turn_journal_runtime.turns.plan import PHASES, plan_turn

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Eventually

REASON, BY = "The task is obsolete.", "anna"
PLAN = plan_turn(goal_id=GOAL, agent_id=AGENT, todo_id=TODO)


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def turn(request: pytest.FixtureRequest, root: Path | str) -> Turn:
    return Turn(root, is_async=request.param)


def give_up(turn: Turn, **options: Any) -> GivenUpTurn:
    named = {"goal_id": GOAL, "agent_id": AGENT, "reason": REASON, "by": BY}
    if not options.keys() & {"turn_key", "todo_id"}:
        named["todo_id"] = TODO
    if turn.is_async:
        return asyncio.run(aio.give_up_turn(turn.root, **{**named, **options}))
    return give_up_turn(turn.root, **{**named, **options})


class Standing(NamedTuple):
    """How a turn of the settlement protocol stands, and what giving it up comes to."""

    completed: int
    pending: str | None
    failed_phase: str
    #: Which effect nobody knows of, and the steps that are due and were not begun.
    unknown: str | None = None
    owed: tuple[str, ...] = ()
    reinvoke_host: bool = False


STANDINGS = {
    "the host works": Standing(0, None, "host_execute", reinvoke_host=True),
    "it has answered": Standing(2, None, "validation"),
    "it is validated": Standing(3, None, "durable_writeback"),
    "a writeback is pending": Standing(3, "durable_writeback", "durable_writeback", "state_written"),
    "it is written": Standing(4, None, "quota_spend", owed=("quota_spend",)),
    "a spend is pending": Standing(4, "quota_spend", "quota_spend", "quota_spent"),
    "it is spent": Standing(5, None, "scheduler_apply", "scheduler_acknowledged", ("terminal_closeout",)),
    "a closeout is pending": Standing(5, "terminal_closeout", "terminal_closeout", "scheduler_acknowledged"),
}


def put(root: Path | str, completed: int, pending: str | None) -> None:
    """A turn as a driver leaves it that is killed there."""
    path = turn_journal_path(root, goal_id=GOAL, turn_key=PLAN.turn_key)
    journal = transitions.opened(PLAN)
    write_turn_journal(path, journal)
    journal = transitions.attempting(journal)
    write_turn_journal(path, journal)
    for count in (2, 3, 4, 5):
        if count <= completed:
            journal = transitions.answered(journal, RESULT) if count == 2 else transitions.completed(journal, count)
            write_turn_journal(path, journal)
    if pending is not None:
        write_turn_journal(path, transitions.prepared(journal, pending, PLAN.effect_ref(pending)))


@pytest.mark.parametrize("stands", STANDINGS)
def test_an_open_turn_fails_where_it_stands_and_what_is_not_known_stays_unknown(stands: str, turn: Turn) -> None:
    standing = STANDINGS[stands]
    put(turn.root, standing.completed, standing.pending)
    before = turn.journal
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "turn_key": PLAN.turn_key}
    knew = inspect_turn_journal(turn.root, **names)
    given = give_up(turn)
    refs = () if standing.pending is None else (PLAN.effect_ref(standing.pending),)
    assert (given.status, given.changed, given.failed_phase) == ("failed", True, standing.failed_phase)
    assert (given.by, given.reason, given.in_doubt) == (BY, REASON, refs)
    assert tuple(owed.step for owed in given.owed) == standing.owed

    journal = turn.journal
    assert (journal["status"], journal["reason"]) == ("failed", REASON)
    assert journal["completed_phases"] == list(PHASES[: standing.completed])
    for kept in ("plan", "host_result", "effect_attempts", "host_attempt_count"):
        assert journal.get(kept) == before.get(kept), kept
    verified = verify_turn_journal(turn.root)
    assert (verified["ok"], verified["transitions"]) == (True, len(list(turn_history(turn.place))))

    # The core knows of the effects what it knew before, and lets the turn go on where it stood, when that is asked for.
    knows = inspect_turn_journal(turn.root, **names)
    assert knows["recorded_effects"] == knew["recorded_effects"]
    if standing.unknown is not None:
        assert knows["recorded_effects"][standing.unknown] is None  # type: ignore[literal-required]
    assert (knows["replay_legal"], knows["recovery_decision"]["reason"]) == (True, "failed_retry_not_requested")
    asked = inspect_turn_journal(turn.root, **names, retry_failed=True)["recovery_decision"]
    assert (asked["can_continue"], asked["resume_from"]) == (True, standing.failed_phase)
    assert asked["reinvoke_host"] == standing.reinvoke_host
    assert [check["kind"] for check in asked["checks"][1:]] == ["prepared_effect_readback"] * len(refs)

    # Again is harmless, and the first word stands.
    again = give_up(turn, by="bert", reason="Another one.")
    assert (again.changed, again.by, again.reason, again.at) == (False, BY, REASON, given.at)
    assert (again.in_doubt, again.owed, turn.journal) == (given.in_doubt, given.owed, journal)


@pytest.mark.parametrize("stands", STANDINGS)
def test_a_given_up_turn_is_tried_again_by_whoever_asks_for_it_and_nothing_is_done_twice(
    stands: str, turn: Turn
) -> None:
    standing = STANDINGS[stands]
    put(turn.root, standing.completed, standing.pending)
    give_up(turn)
    sent = [ReadableLedger(), ReadableLedger(), ReadableLedger()]
    parts = dict(zip(("writeback", "spend", "scheduler"), sent, strict=True))
    if standing.pending is not None:  # it happened
        done = {"durable_writeback": 0, "quota_spend": 1, "terminal_closeout": 2}[standing.pending]
        sent[done].applied.append(PLAN.effect_ref(standing.pending))
    host = ScriptedHost()
    recorded = turn.run(host, **parts)
    assert (recorded.replayed, recorded.failure_kind, recorded.reason) == (True, "given_up", REASON)
    assert recorded.retry_due is None
    assert not recorded.ok
    assert recoverable_turns(turn.root, now=time.time() + 10_000) == []
    assert turn.run(host, retry_failed=True, **parts).ok
    assert len(host.executed) == (1 if standing.reinvoke_host else 0)
    assert [len(one.applied) for one in sent] == [
        int(standing.completed < 4),
        int(standing.completed < 5),
        1,
    ]
    assert transitions.giving_up(turn.journal) is None
    assert give_up(turn).status == "committed"


FAILURES: dict[str, dict[str, Any]] = {
    "host_execute": {"host": [rate_limited()]},
    "validation": {"validate": lambda result: False},
    "quota_spend": {"spend": "fails"},
}


@pytest.mark.parametrize("phase", FAILURES)
def test_a_failed_turn_is_not_tried_again_by_itself_once_it_is_given_up(phase: str, turn: Turn) -> None:
    parts = dict(FAILURES[phase])
    host = ScriptedHost(*parts.pop("host", []))
    if "spend" in parts:
        parts["spend"] = Ledger()
        parts["spend"].fails = OSError()
    failed = turn.run(host, **parts)
    assert failed.failed_phase == phase
    later = time.time() + 10_000
    assert len(recoverable_turns(turn.root, now=later)) == 1
    before = turn.journal
    given = give_up(turn, turn_key=failed.turn_key)
    assert (given.changed, given.failed_phase, given.reason) == (True, phase, REASON)
    assert given.in_doubt == ((PLAN.effect_ref(phase),) if phase == "quota_spend" else ())
    # Of a turn that stays failed only the audit may change.
    assert {name for name in turn.journal if turn.journal[name] != before.get(name)} == {"recovery_audit"}
    assert recoverable_turns(turn.root, now=later) == []
    recorded = turn.run(host)
    assert (recorded.failure_kind, recorded.reason, recorded.retry_due) == ("given_up", REASON, None)
    assert turn.run(ScriptedHost(), retry_failed=True, spend=ReadableLedger()).ok


def test_a_turn_that_is_over_stays_as_it_is(turn: Turn) -> None:
    assert turn.run(ScriptedHost()).ok
    assert turn.run(ScriptedHost({"result_kind": "stop"}), todo_id="stops").status == "stopped"
    stored = list(list_turn_journals(turn.root))
    with turn.runs() as runs:
        runs.open_run(PLAN.turn_key)  # its own program's business
        for todo, status in ((TODO, "committed"), ("stops", "stopped")):
            given = give_up(turn, todo_id=todo)
            assert (given.status, given.changed, given.by, given.run_id) == (status, False, None, None)
        assert runs.interrupted_runs() == [PLAN.turn_key]
    assert list(list_turn_journals(turn.root)) == stored


def test_a_turn_that_waits_for_its_scheduler_alone_is_not_given_up(turn: Turn) -> None:
    waits = turn.run(ScriptedHost(), scheduler=Ledger("action_required"))
    before = turn.journal
    with pytest.raises(JournalConflictError, match="acknowledge_turn ends it"):
        give_up(turn)
    assert (turn.journal, turn.is_driven, waits.status) == (before, False, "scheduler_action_required")


PLAIN: dict[str, tuple[dict[str, Any], str | None, tuple[str, ...]]] = {
    "started": ({"status": "started"}, "draft", ()),
    "in its first phase": ({}, "draft", ()),
    "between two phases": ({"completed_phases": ["draft"]}, "send", ()),
    "in the middle of an effect": (
        {
            "completed_phases": ["draft"],
            "effect_attempts": {"send": {"status": "prepared", "effect_ref": "letter-1#send"}},
        },
        "send",
        ("letter-1#send",),
    ),
    "with every phase done": ({"completed_phases": ["draft", "send"]}, None, ()),
}


@pytest.mark.parametrize("stands", PLAIN)
def test_a_plain_turn_fails_at_its_own_phase(stands: str, turn: Turn) -> None:
    fields, phase, in_doubt = PLAIN[stands]
    path = turn_journal_path(turn.root, goal_id=GOAL, turn_key="letter-1")
    journal = {
        "schema_version": "loopx_turn_journal_v0",
        "goal_id": GOAL,
        "agent_id": AGENT,
        "turn_key": "letter-1",
        "status": "in_progress",
        "plan": {"phases": ["draft", "send"]},
        "completed_phases": [],
    }
    write_turn_journal(path, {**journal, "status": fields.get("status", "in_progress")})
    if len(fields) > 0 and "status" not in fields:
        write_turn_journal(path, {**journal, **fields})
    if phase is None:
        with pytest.raises(JournalConflictError, match="its own program writes that it is committed"):
            give_up(turn, turn_key="letter-1")
        assert load_turn_journal(path)["status"] == "in_progress"
        return
    given = give_up(turn, turn_key="letter-1")
    assert (given.status, given.failed_phase, given.in_doubt, given.owed) == ("failed", phase, in_doubt, ())
    found = inspect_turn_journal(turn.root, goal_id=GOAL, agent_id=AGENT, turn_key="letter-1", retry_failed=True)
    assert found["replay_legal"]
    assert found["recovery_decision"]["resume_from"] == phase
    assert give_up(turn, turn_key="letter-1").changed is False


def test_only_its_owner_s_and_a_consistent_turn_is_given_up(turn: Turn) -> None:
    put(turn.root, 2, None)
    before = turn.journal
    with pytest.raises(TurnRecoveryBlockedError) as blocked:
        give_up(turn, agent_id="another", turn_key=PLAN.turn_key)
    assert blocked.value.decision["reason"] == "journal_inconsistent"
    assert (turn.journal, turn.is_driven) == (before, False)
    stored = turn.stored
    for missing in ({"todo_id": "none"}, {"turn_key": "none"}, {"todo_id": TODO, "turn_instance_id": "2"}):
        with pytest.raises(JournalNotFoundError):
            give_up(turn, **missing)
    assert turn.stored == stored, "and no lease of what is not there"


@pytest.mark.parametrize(
    "argument",
    [
        {"reason": ""},
        {"reason": " \n"},
        {"reason": "x" * 501},
        {"reason": None},
        {"by": ""},
        {"by": 7},
        {"todo_id": TODO, "turn_key": PLAN.turn_key},
        {"turn_key": PLAN.turn_key, "turn_instance_id": "1"},
        {"turn_key": None},
    ],
    ids=str,
)
def test_what_cannot_be_kept_is_refused_before_anything_is_changed(argument: dict[str, Any], turn: Turn) -> None:
    put(turn.root, 0, None)
    with pytest.raises(InvalidJournalError) as refused:
        give_up(turn, **argument)
    assert refused.value.kind == "invalid_request"
    assert turn.journal["status"] == "in_progress"


def test_a_turn_of_several_for_the_same_work_is_named_as_it_was_run(turn: Turn) -> None:
    turn.kill(ScriptedHost(KilledError()), turn_instance_id="2")
    turn.kill(ScriptedHost(KilledError()))
    assert give_up(turn, todo_id=TODO, turn_instance_id="2").changed
    (left,) = recoverable_turns(turn.root)
    assert left.turn_instance_id is None


# Its run


def working(turn: Any) -> dict[str, Any]:
    """A loop that is killed in the middle of its second tool."""
    turn.tool("add", {}, lambda: 1, restart_safe=True)
    turn.tool("send", {}, _die)
    return dict(RESULT)


def _die() -> None:
    raise KilledError


def test_its_run_is_closed_and_a_tool_that_may_have_run_is_named(turn: Turn) -> None:
    turn.kill(CallableHost(working))
    with turn.runs() as runs:
        assert runs.interrupted_runs() == [PLAN.turn_key]
        (step,) = runs.uncertain(PLAN.turn_key)
        given = give_up(turn)
        assert (given.run_id, given.in_doubt) == (PLAN.turn_key, (step.idempotency_key,))
        assert runs.interrupted_runs() == []
        meta = runs.run_meta(PLAN.turn_key)
        assert meta is not None
        assert meta.status == "cancelled"
        # What may have happened is still told.
        assert runs.uncertain(PLAN.turn_key) == [step]
        assert give_up(turn).in_doubt == given.in_doubt
        # Whoever takes the turn up again finds its record, and settles the step as ever.
        runs.settle(PLAN.turn_key, step.seq, result=None)
        calls: list[int] = []

        def on(context: Any) -> dict[str, Any]:
            context.tool("add", {}, lambda: calls.append(1), restart_safe=True)
            context.tool("send", {}, lambda: calls.append(2))
            return {**RESULT, "last": context.tool("last", {}, lambda: 3, restart_safe=True)}

        done = turn.run(CallableHost(on), retry_failed=True)
        assert (done.ok, calls) == (True, [])
        meta = runs.run_meta(PLAN.turn_key)
        assert meta is not None
        assert meta.status == "done"


def test_a_run_whose_record_is_damaged_keeps_no_turn_from_being_given_up(tmp_path: Path) -> None:
    turn = Turn(tmp_path / "root", is_async=False)
    turn.kill(CallableHost(working))
    with sqlite3.connect(tmp_path / "root" / "runs" / "journal.db") as database:
        assert database.execute("UPDATE journal SET payload = '{' WHERE kind = 'tool_call'").rowcount == 2
    database.close()
    given = give_up(turn)
    # What it did nobody can tell.
    assert (given.changed, given.in_doubt, given.run_id) == (True, (PLAN.turn_key,), PLAN.turn_key)
    with turn.runs() as runs:
        assert runs.interrupted_runs() == []


def test_its_run_is_closed_in_the_journal_that_the_driver_was_given(turn: Turn, tmp_path: Path) -> None:
    with RunJournal(tmp_path / "own.db") as runs:
        turn.kill(CallableHost(working), run_journal=runs)
        assert give_up(turn, run_journal=runs).run_id == PLAN.turn_key
        assert runs.interrupted_runs(include_owned=True) == []


class Research:
    """A host with a loop inside of its tool, in the journal of the turn or in another handle on it."""

    def __init__(self, turn: Turn, *, waits: bool = False) -> None:
        self._turn = turn
        self._waits = waits
        self.at_work, self.given_up = threading.Event(), threading.Event()
        self.did: list[str] = []

    def __call__(self, context: Any) -> dict[str, Any]:
        context.tool("research", {}, self._inner, restart_safe=True)
        return dict(RESULT)

    def _inner(self) -> None:
        with self._turn.runs() as runs, DurableRun(runs, current_idempotency_key() or "") as run:
            run.tool("look", {}, lambda: self.did.append("look"))
            self.at_work.set()
            if self._waits:
                assert self.given_up.wait(60)
            if not self.given_up.is_set():
                run.tool("send", {}, _die)
            run.tool("send", {}, lambda: self.did.append("send"))


def test_the_runs_inside_of_its_tools_are_closed_and_go_on_with_it(turn: Turn) -> None:
    agent = Research(turn)
    turn.kill(CallableHost(agent))
    inner, over = f"{PLAN.turn_key}:0:research", f"{PLAN.turn_key}:1:over"
    with turn.runs() as runs:
        with DurableRun(runs, over) as run:
            run.iteration(0)
        assert sorted(runs.interrupted_runs()) == [PLAN.turn_key, inner]
        given = give_up(turn)
        assert (given.run_id, given.in_doubt) == (PLAN.turn_key, (inner, f"{inner}:1:send"))
        assert runs.interrupted_runs() == []
        assert give_up(turn).in_doubt == given.in_doubt
        runs.settle(inner, 1, absent=True)
        agent.given_up.set()
        assert turn.run(CallableHost(agent), retry_failed=True).ok
        assert agent.did == ["look", "send"]
        assert [meta.status for one in (inner, over) if (meta := runs.run_meta(one))] == ["done", "done"]


def test_a_driver_whose_turn_is_given_up_does_no_further_step_inside_of_a_tool(root: Path | str) -> None:
    turn = Turn(root, is_async=False)
    agent = Research(turn, waits=True)
    ended: list[BaseException] = []

    def drive() -> None:
        try:
            turn.run(CallableHost(agent))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    assert agent.at_work.wait(60)
    give_up(turn, take_over=True)
    agent.given_up.set()
    thread.join(60)
    assert (agent.did, len(ended)) == (["look"], 1)
    with turn.runs() as runs:
        assert runs.interrupted_runs(include_owned=True) == []


class Late(NamedTuple):
    """A driver that is about to begin a run, and is held up there while its turn is given up."""

    turn: Turn
    is_there: threading.Event
    goes_on: threading.Event

    def wait(self) -> None:
        self.is_there.set()
        assert self.goes_on.wait(60)

    def claim(self, claim: Callable[..., Any]) -> Callable[..., Any]:
        """The claim of a journal, which comes when the turn was given up."""

        def claim_late(journal: RunJournal, driver: object, *args: Any, **how: Any) -> Any:
            if isinstance(driver, DurableRun):  # and not who gives up
                self.wait()
            return claim(journal, driver, *args, **how)

        return claim_late

    def given_up_meanwhile(self, host: Any) -> list[BaseException]:
        """What the driver ends with."""
        ended: list[BaseException] = []

        def drive() -> None:
            try:
                self.turn.run(host)
            except BaseException as error:
                ended.append(error)

        thread = threading.Thread(target=drive)
        thread.start()
        assert self.is_there.wait(60)
        assert give_up(self.turn, take_over=True).changed
        self.goes_on.set()
        thread.join(60)
        assert self.turn.journal["reason"] == REASON
        return ended


@pytest.fixture
def late(turn: Turn) -> Late:
    return Late(turn, threading.Event(), threading.Event())


@pytest.mark.parametrize("is_late", [True, False], ids=["before it is begun", "as it is begun"])
def test_a_run_inside_of_a_tool_that_begins_when_its_turn_was_given_up_does_nothing(late: Late, is_late: bool) -> None:
    did: list[str] = []

    def inner() -> None:
        with late.turn.runs() as runs, pytest.MonkeyPatch.context() as patch:
            if is_late:
                late.wait()
            else:
                patch.setattr(type(runs), "_claim", late.claim(type(runs)._claim))
            with DurableRun(runs, current_idempotency_key() or "") as run:
                run.tool("send", {}, lambda: did.append("send"))

    def agent(context: Any) -> dict[str, Any]:
        context.tool("research", {}, inner, restart_safe=True)
        return dict(RESULT)

    (error,) = late.given_up_meanwhile(CallableHost(agent))
    assert isinstance(error, TurnBusyError | JournalConflictError)
    assert did == []
    with late.turn.runs() as runs:
        if is_late:
            assert runs.run_meta(f"{PLAN.turn_key}:0:research") is None
        give_up(late.turn)
        assert runs.interrupted_runs(include_owned=True) == []


def test_a_run_inside_of_a_tool_that_begins_while_its_turn_is_given_up_is_closed_with_it(
    late: Late, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []
    begins, has_begun = threading.Event(), threading.Event()

    def inner() -> None:
        late.is_there.set()
        assert begins.wait(60)
        with late.turn.runs() as runs, DurableRun(runs, current_idempotency_key() or "") as run:
            has_begun.set()
            assert late.goes_on.wait(60)
            run.tool("send", {}, lambda: did.append("send"))

    def agent(context: Any) -> dict[str, Any]:
        context.tool("research", {}, inner, restart_safe=True)
        return dict(RESULT)

    hold = ending.hold

    def hold_late(journal: RunJournal, run_id: str, **how: Any) -> Any:
        begins.set()
        assert has_begun.wait(60)
        return hold(journal, run_id, **how)

    monkeypatch.setattr(ending, "hold", hold_late)
    late.given_up_meanwhile(CallableHost(agent))
    assert did == []
    with late.turn.runs() as runs:
        assert runs.interrupted_runs(include_owned=True) == []


@pytest.mark.parametrize("is_late", [True, False], ids=["before it is begun", "as it is begun"])
def test_a_driver_that_had_not_begun_its_run_when_its_turn_was_given_up_does_no_step(late: Late, is_late: bool) -> None:
    did: list[str] = []

    def work(request: HostRequest) -> dict[str, Any]:
        with late.turn.runs() as runs, pytest.MonkeyPatch.context() as patch:
            if is_late:
                late.wait()
            else:
                patch.setattr(type(runs), "_claim", late.claim(type(runs)._claim))
            with request.open_run(DurableRun) as run:
                run.tool("send", {}, lambda: did.append("send"))
        return dict(RESULT)

    (error,) = late.given_up_meanwhile(ScriptedHost(work))
    assert getattr(error, "kind", error) == "turn_lease_lost"
    assert did == []
    with late.turn.runs() as runs:
        give_up(late.turn)
        assert runs.interrupted_runs(include_owned=True) == []


def test_a_run_that_outlives_the_tool_which_began_it_asks_no_more_for_the_run_around_it(tmp_path: Path) -> None:
    begins = threading.Event()
    did: list[str] = []

    def inner(run_id: str) -> None:
        assert begins.wait(60)
        with DurableRun(runs, run_id) as run:
            run.tool("look", {}, lambda: did.append("look"))

    def begin() -> None:
        context, key = contextvars.copy_context(), current_idempotency_key()
        threads.append(threading.Thread(target=context.run, args=(inner, key)))
        threads[0].start()

    threads: list[threading.Thread] = []
    with RunJournal(tmp_path / "runs.db") as runs:
        with DurableRun(runs, "outer") as run:
            run.tool("begin", {}, begin)
        begins.set()
        threads[0].join(60)
    assert did == ["look"]


def test_a_run_that_its_host_has_opened_and_not_left_is_free_when_the_drive_is_over(turn: Turn) -> None:
    def opens(request: HostRequest) -> dict[str, Any]:
        kept.append(request.open_run(DurableRun))
        return dict(RESULT)

    kept: list[DurableRun] = []
    assert turn.run(ScriptedHost(opens)).ok
    place = turn.root if isinstance(turn.root, str) else turn.root / "runs" / "journal.db"
    with RunJournal(place) as runs, DurableRun(runs, PLAN.turn_key) as run:
        run.iteration(0)


def test_a_run_inside_of_a_tool_that_somebody_drives_is_refused_and_nothing_is_changed(turn: Turn) -> None:
    turn.kill(CallableHost(Research(turn)))
    before, inner = turn.journal, f"{PLAN.turn_key}:0:research"
    with turn.runs() as runs:
        driver = DurableRun(runs, inner)
        driver.start()
        with pytest.raises(TurnBusyError) as busy:
            give_up(turn)
        assert busy.value.details["run_id"] == inner
        assert turn.journal == before
        assert runs.interrupted_runs() == [PLAN.turn_key], "and the turn's own run was let go"
        driver.release()
    assert give_up(turn).changed


def test_a_turn_without_a_run_gets_none(turn: Turn) -> None:
    put(turn.root, 0, None)
    assert give_up(turn).run_id is None
    if not isinstance(turn.root, str):
        assert not (turn.root / "runs").exists()


class KilledAt(RuntimeClient):
    """A client whose process dies as soon as the turn's journal is written, before anything else."""

    def call(self, method: str, params: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
        answer = default_client().call(method, params, timeout=timeout)
        if method == "turn_journal.write":
            raise KilledError
        return answer


def test_killed_between_its_two_writes_it_is_made_whole_when_it_is_called_again(root: Path | str) -> None:
    turn = Turn(root, is_async=False)
    turn.kill(CallableHost(working))
    with pytest.raises(KilledError):
        give_up(turn, client=KilledAt())
    with turn.runs() as runs:
        assert turn.journal["status"] == "failed"
        assert runs.interrupted_runs() == [PLAN.turn_key]
        again = give_up(turn)
        assert (again.changed, again.by, again.run_id) == (False, BY, PLAN.turn_key)
        assert runs.interrupted_runs() == []


KILLED = """
import os, signal, sys
from turn_journal_runtime import RuntimeClient, give_up_turn

class Killed(RuntimeClient):
    def call(self, method, params, *, timeout=None):
        answer = super().call(method, params, timeout=timeout)
        if method == "turn_journal.write":
            os.kill(os.getpid(), signal.SIGKILL)
        return answer

names = {"goal_id": "goal", "agent_id": "agent", "todo_id": "todo"}
give_up_turn(sys.argv[1], **names, reason="The first word.", by="anna", client=Killed())
"""


@pytest.mark.process
def test_a_process_that_is_killed_between_the_two_writes_leaves_what_the_next_one_finishes(
    root: Path | str, eventually: Eventually
) -> None:
    turn = Turn(root, is_async=False)
    turn.kill(CallableHost(working))
    leases = {"TURN_JOURNAL_TURN_LEASE": "2", "TURN_JOURNAL_RUN_LEASE": "1"}
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(root)], env={**os.environ, **leases}, timeout=240, check=False
    )
    assert done.returncode == -signal.SIGKILL
    assert turn.journal["status"] == "failed"

    finished: list[GivenUpTurn] = []

    def finish() -> bool:
        try:
            finished.append(give_up(turn))
        except TurnBusyError:
            assert isinstance(root, str)  # until the leases have ended; in a folder it is free at once
        return finished != []

    eventually(finish, 30)
    (again,) = finished
    assert (again.changed, again.reason, again.run_id) == (False, "The first word.", PLAN.turn_key)
    with turn.runs() as runs:
        assert runs.interrupted_runs(include_owned=True) == []


@pytest.mark.parametrize("write", [1, 2])
def test_killed_before_the_turn_is_taken_up_again_it_is_still_given_up(root: Path | str, write: int) -> None:
    turn = Turn(root, is_async=False)
    turn.kill(CallableHost(working))
    given = give_up(turn)
    writes: list[dict[str, Any]] = []

    class Dies(RuntimeClient):
        def call(self, method: str, params: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
            if method == "turn_journal.write":
                writes.append(params)
                if len(writes) == write:
                    raise KilledError
            return default_client().call(method, params, timeout=timeout)

    turn.kill(CallableHost(working), retry_failed=True, client=Dies())
    assert recoverable_turns(turn.root) == []
    # It was counted before anything of it was done, and before that nothing was changed.
    audit = turn.journal["recovery_audit"]
    assert (audit["recovery_count"], audit["actual"]["status"]) == ((0, "finished"), (1, "started"))[write - 1]
    with turn.runs() as runs:
        assert len(runs.interrupted_runs()) == write - 1
        again = give_up(turn)
        assert (again.changed, again.by, again.at) == (False, given.by, given.at)
        assert again.run_id == (None, PLAN.turn_key)[write - 1]
        assert runs.interrupted_runs() == []


# A turn that somebody drives


def test_a_turn_that_somebody_drives_is_refused_and_its_driver_named(turn: Turn) -> None:
    put(turn.root, 2, None)
    before = turn.journal
    with turn.leased() as number, pytest.raises(TurnBusyError) as busy:
        give_up(turn)
    assert busy.value.details["number"] == number
    assert busy.value.details["pid"] is not None
    assert busy.value.details["host"] is not None
    assert turn.journal == before
    assert give_up(turn).changed


def test_a_run_that_somebody_drives_by_itself_is_refused_and_nothing_is_changed(turn: Turn) -> None:
    turn.kill(CallableHost(working))
    before = turn.journal
    with turn.runs() as runs:
        run = DurableRun(runs, PLAN.turn_key)
        run.start()
        with pytest.raises(TurnBusyError) as busy:
            give_up(turn, run_journal=runs)
        assert busy.value.details["run_id"] == PLAN.turn_key
        assert (turn.journal, turn.is_driven) == (before, False)
        assert give_up(turn, run_journal=runs, take_over=True).run_id == PLAN.turn_key
        assert run.tool("add", {}, lambda: 1, restart_safe=True) == 1  # it is on record
        with pytest.raises(TurnBusyError, match="no longer driven from here"):
            run.tool("send", {}, lambda: 2, restart_safe=True)


def test_a_driver_whose_turn_is_given_up_does_no_further_step_and_no_effect(root: Path | str) -> None:
    turn = Turn(root, is_async=False)
    at_work, given_up = threading.Event(), threading.Event()
    calls: list[str] = []
    ended: list[BaseException] = []

    def loop(context: Any) -> dict[str, Any]:
        context.tool("first", {}, lambda: calls.append("first"), restart_safe=True)
        at_work.set()
        assert given_up.wait(60)
        context.tool("second", {}, lambda: calls.append("second"), restart_safe=True)
        return dict(RESULT)

    def drive() -> None:
        try:
            turn.run(CallableHost(loop), writeback=lambda ref, payload: calls.append(ref))
        except BaseException as error:
            ended.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    assert at_work.wait(60)
    with pytest.raises(TurnBusyError):
        give_up(turn)
    given = give_up(turn, take_over=True)
    given_up.set()
    thread.join(60)
    assert (given.changed, given.run_id, calls) == (True, PLAN.turn_key, ["first"])
    assert [getattr(error, "kind", error) for error in ended] in (["turn_busy"], ["turn_lease_lost"])
    assert (turn.journal["status"], turn.journal["reason"]) == ("failed", REASON)
    with turn.runs() as runs:
        assert runs.interrupted_runs() == []
