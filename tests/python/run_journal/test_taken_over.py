"""A drive that lost its run to another one: what it does afterwards changes nothing. run-journal.md, section 4."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from turn_journal_runtime.errors import TurnBusyError
from turn_journal_runtime.run_journal import KIND_MODEL_DECISION, KIND_TOOL_CALL, DurableRun, RunJournal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.python.run_journal.conftest import Address


@pytest.fixture(params=["the same handle", "another handle"])
def taken_over(
    request: pytest.FixtureRequest, address: Address
) -> Iterator[Callable[[], tuple[RunJournal, DurableRun]]]:
    """Takes the run `r` over: a service does it to a thread that hangs, an operator to a process that does."""
    with RunJournal(address) as other:

        def take() -> tuple[RunJournal, DurableRun]:
            journal = request.getfixturevalue("journal") if request.param == "the same handle" else other
            successor = DurableRun(journal, "r", take_over=True)
            successor.start()
            return journal, successor

        yield take


def no_one_else_may_drive(journal: RunJournal, successor: DurableRun) -> None:
    """The successor still has the run, though the drive before it has ended meanwhile."""
    assert journal.interrupted_runs() == []
    with pytest.raises(TurnBusyError):
        DurableRun(journal, "r").start()
    assert successor.tool("t", {}, lambda: "mine", restart_safe=True) == "mine"
    successor.finish()
    found = journal.run_meta("r")
    assert found is not None
    assert found.outcome == "done"


@pytest.mark.parametrize("end", ["release", "finish", "step", "drop"])
def test_it_ends_without_touching_its_successor(journal: RunJournal, taken_over: Any, end: str) -> None:
    run: DurableRun | None = DurableRun(journal, "r")
    assert run is not None
    run.start()
    elsewhere, successor = taken_over()
    ran: list[str] = []
    if end == "release":
        run.release()
    elif end == "finish":
        with pytest.raises(TurnBusyError, match="no longer driven from here"):
            run.finish("failed")
        run.release()
    elif end == "step":
        with pytest.raises(TurnBusyError, match="no longer driven from here"), run:
            run.tool("t", {}, lambda: ran.append("twice"))
    del run
    assert ran == []
    assert elsewhere.events("r") == []
    no_one_else_may_drive(elsewhere, successor)


def test_the_tool_it_was_at_leaves_no_result_and_no_failure(journal: RunJournal, taken_over: Any) -> None:
    found: list[tuple[RunJournal, DurableRun]] = []

    def works() -> str:
        found.append(taken_over())
        return "too late"

    with pytest.raises(TurnBusyError), DurableRun(journal, "r") as run:
        run.tool("t", {}, works)
    elsewhere, successor = found[0]
    assert [event.kind for event in elsewhere.events("r")] == [KIND_TOOL_CALL]
    no_one_else_may_drive(elsewhere, successor)

    def fails() -> None:
        found.append(taken_over())
        raise ValueError("too late")

    journal.delete_run("r")
    with pytest.raises(TurnBusyError), DurableRun(journal, "r") as run:
        run.tool("t", {}, fails)
    elsewhere, successor = found[1]
    assert [step.error_type for step in elsewhere.uncertain("r")] == [None]
    no_one_else_may_drive(elsewhere, successor)


def test_an_answer_that_it_asked_for_again_replaces_nothing(journal: RunJournal, taken_over: Any) -> None:
    with DurableRun(journal, "r") as run:
        run.model(lambda: "first", request={"p": 1})
        run._halt(TurnBusyError("stays open"))  # left as a crash leaves it
    elsewhere: list[Any] = []

    def second() -> str:
        elsewhere.append(taken_over())
        return "second"

    before = journal.events("r")
    with pytest.raises(TurnBusyError), DurableRun(journal, "r", take_over=True) as run:
        run.model(second, request={"p": 2}, on_change="ask_again")
    assert journal.events("r") == before
    assert before[0].kind == KIND_MODEL_DECISION
