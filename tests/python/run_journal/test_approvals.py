"""Questions that a run waits on, in no process. run-journal.md, section 4."""

from __future__ import annotations

import pickle
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.run_journal.forms import Form, drive

from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalConflictError,
    ReplayDivergenceError,
    RunNotFoundError,
    TurnSuspended,
)
from turn_journal_runtime.run_journal import PendingApproval, RunJournal

if TYPE_CHECKING:
    from tests.python.run_journal.conftest import Address


async def loop(run: Any, ran: list[Any], sum: int = 5, question: str = "Pay?") -> Any:
    args = {"to": "ann", "sum": sum}
    decision = await run.approval(question, binds=args)
    if decision != "yes":
        return decision
    return await run.tool("pay", args, lambda **args: ran.append(args))


def test_a_run_waits_in_its_record_until_it_is_decided(form: Form, address: Address) -> None:
    ran: list[Any] = []
    with RunJournal(address) as journal:
        for _ in range(2):
            with pytest.raises(TurnSuspended, match=r"RunJournal\.approve") as caught:
                drive(form, journal, "r", partial(loop, ran=ran))
        details = {"run_id": "r", "seq": 0, "question": "Pay?", "binds": {"to": "ann", "sum": 5}}
        assert caught.value.details == details
        assert pickle.loads(pickle.dumps(caught.value)).details == details  # noqa: S301 - made here
        assert journal.interrupted_runs() == ["r"]
    with RunJournal(address) as elsewhere:
        (waiting,) = elsewhere.pending_approvals()
        assert waiting == PendingApproval("r", 0, "Pay?", {"to": "ann", "sum": 5}, waiting.asked_at)
        elsewhere.approve("r", 0, "yes", by="ann@example.org")
        assert elsewhere.pending_approvals() == []
    with RunJournal(address) as journal:
        drive(form, journal, "r", partial(loop, ran=ran))
        drive(form, journal, "r", partial(loop, ran=ran))
        assert ran == [{"to": "ann", "sum": 5}]
        payload = journal.replay_index("r")[0, "approval"]
        assert (payload["decision"], payload["by"]) == ("yes", "ann@example.org")


@pytest.mark.parametrize("decision", ["no", False, 0, {"approved": True, "note": "ü"}, [1]])
def test_the_decision_reaches_the_loop_as_it_is(form: Form, journal: RunJournal, decision: Any) -> None:
    with pytest.raises(TurnSuspended):
        drive(form, journal, "r", partial(loop, ran=[]))
    journal.approve("r", 0, decision, by="me")
    assert drive(form, journal, "r", partial(loop, ran=[])) == decision


def test_other_arguments_need_a_new_decision(form: Form, journal: RunJournal) -> None:
    ran: list[Any] = []
    with pytest.raises(TurnSuspended):
        drive(form, journal, "r", partial(loop, ran=ran, sum=5))
    journal.approve("r", 0, "yes", by="me")
    with pytest.raises(TurnSuspended) as caught:
        drive(form, journal, "r", partial(loop, ran=ran, sum=5000))
    assert caught.value.details["binds"] == {"to": "ann", "sum": 5000}
    assert ran == []
    (waiting,) = journal.pending_approvals("r")
    assert waiting.binds == {"to": "ann", "sum": 5000}
    with pytest.raises(TurnSuspended):
        drive(form, journal, "r", partial(loop, ran=ran, sum=5000))
    journal.approve("r", 0, "yes", by="me")
    drive(form, journal, "r", partial(loop, ran=ran, sum=5000))
    assert ran == [{"to": "ann", "sum": 5000}]
    payload = journal.replay_index("r")[0, "approval"]
    assert [old["binds"]["sum"] for old in payload["superseded"]] == [5], "the former decision is kept"


def test_a_decision_that_the_run_went_on_with_is_not_asked_again(form: Form, journal: RunJournal) -> None:
    ran: list[Any] = []
    with pytest.raises(TurnSuspended):
        drive(form, journal, "r", partial(loop, ran=ran))
    journal.approve("r", 0, "yes", by="me")
    drive(form, journal, "r", partial(loop, ran=ran))
    journal.open_run("r")
    for change in ({"sum": 6}, {"question": "Sure?"}):
        with pytest.raises(ReplayDivergenceError) as caught:
            drive(form, journal, "r", partial(loop, ran=ran, **change))
        assert caught.value.details["fields"] == (["binds"] if "sum" in change else ["question"])
    assert len(ran) == 1


def test_a_decision_is_never_overwritten(form: Form, journal: RunJournal) -> None:
    with pytest.raises(TurnSuspended):
        drive(form, journal, "r", partial(loop, ran=[]))
    journal.approve("r", 0, "no", by="ann")
    journal.approve("r", 0, "no", by="bob")
    with pytest.raises(JournalConflictError, match="decided otherwise by 'ann'"):
        journal.approve("r", 0, "yes", by="bob")
    assert drive(form, journal, "r", partial(loop, ran=[])) == "no"


@pytest.mark.parametrize(("run_id", "seq"), [("nobody", 0), ("r", 1)])
def test_a_question_that_was_not_asked_cannot_be_decided(
    form: Form, journal: RunJournal, run_id: str, seq: int
) -> None:
    with pytest.raises(TurnSuspended):
        drive(form, journal, "r", partial(loop, ran=[]))
    with pytest.raises(RunNotFoundError, match="No run 'nobody'" if run_id == "nobody" else "asked nothing at step"):
        journal.approve(run_id, seq, "yes", by="me")


@pytest.mark.parametrize(("decision", "by"), [(None, "me"), ("yes", ""), ("yes", None)])
def test_a_decision_is_a_value_and_has_a_person(form: Form, journal: RunJournal, decision: Any, by: Any) -> None:
    with pytest.raises(TurnSuspended):
        drive(form, journal, "r", partial(loop, ran=[]))
    with pytest.raises(InvalidJournalError):
        journal.approve("r", 0, decision, by=by)
    assert len(journal.pending_approvals()) == 1


@pytest.mark.parametrize("question", [None, 5, b"Pay?"])
def test_a_question_is_a_text(form: Form, journal: RunJournal, question: Any) -> None:
    with pytest.raises(InvalidJournalError, match="A question is a text"):
        drive(form, journal, "r", lambda run: run.approval(question))
    assert journal.events("r") == []


def test_waiting_uses_up_no_resumes(form: Form, journal: RunJournal) -> None:
    for _ in range(5):
        with pytest.raises(TurnSuspended):
            drive(form, journal, "r", partial(loop, ran=[]), max_resumes=0)
    journal.approve("r", 0, "no", by="me")
    assert drive(form, journal, "r", partial(loop, ran=[]), max_resumes=0) == "no"


def test_a_suspension_that_the_loop_swallows_does_not_close_the_run(form: Form, journal: RunJournal) -> None:
    ran: list[int] = []

    async def swallowing(run: Any) -> None:
        with pytest.raises(TurnSuspended):
            await run.approval("Go?")
        with pytest.raises(TurnSuspended):
            await run.tool("t", {}, lambda: ran.append(1))

    drive(form, journal, "r", swallowing)
    assert (ran, journal.interrupted_runs()) == ([], ["r"])


def test_only_running_runs_wait(form: Form, journal: RunJournal) -> None:
    for run_id in ("a", "b"):
        with pytest.raises(TurnSuspended):
            drive(form, journal, run_id, partial(loop, ran=[]))
    journal.close_run("a", "cancelled")
    assert [waiting.run_id for waiting in journal.pending_approvals()] == ["b"]
    assert journal.pending_approvals("a") == []
