"""Tools of pydantic-ai that defer, ask for approval or fail for good: outcomes, recorded and replayed as such."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from pydantic_ai import Agent, ApprovalRequired, CallDeferred, DeferredToolRequests, DeferredToolResults, RunContext
from pydantic_ai.exceptions import ToolFailed
from pydantic_ai.messages import ModelMessage, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from turn_journal_runtime.errors import TurnSuspended
from turn_journal_runtime.integrations.pydantic_ai import JournalCapability
from turn_journal_runtime.run_journal import AsyncDurableRun, RunJournal

if TYPE_CHECKING:
    from collections.abc import Iterator

asked: list[int] = []
paid: list[int] = []
looked: list[int] = []


@pytest.fixture
def journal() -> Iterator[RunJournal]:
    for seen in (asked, paid, looked):
        seen.clear()
    with RunJournal(":memory:") as journal:
        yield journal


def _answer(messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
    asked.append(len(messages))
    returned = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    if returned:
        return ModelResponse([TextPart("; ".join(f"{part.tool_name}: {part.content}" for part in returned))])
    return ModelResponse([ToolCallPart("look", {}, "call-1"), ToolCallPart("pay", {"amount": 5}, "call-2")])


def _agent(pay: Any, **options: Any) -> Agent[None, Any]:
    agent: Agent[None, Any] = Agent(FunctionModel(_answer), output_type=[str, DeferredToolRequests])

    @agent.tool_plain
    def look() -> str:
        looked.append(1)
        return "looked"

    agent.tool(name="pay", **options)(pay)
    return agent


def ask_first(context: RunContext[None], amount: int) -> str:
    """A tool that decides by itself that it has to be approved."""
    if not context.tool_call_approved:
        raise ApprovalRequired(metadata={"amount": amount})
    paid.append(amount)
    return "paid"


def always_approved(context: RunContext[None], amount: int) -> str:
    """A tool whose agent asks before it is called."""
    paid.append(amount)
    return "paid"


async def _drive(journal: RunJournal, agent: Agent[None, Any]) -> Any:
    """The loop of a person's agent: run, ask what has to be asked, go on."""
    async with AsyncDurableRun(journal, "run") as run:
        durable = JournalCapability(run)
        result = await agent.run("Pay.", capabilities=[durable])
        while isinstance(result.output, DeferredToolRequests):
            answers = DeferredToolResults()
            for call in result.output.approvals:
                decision = await run.approval(f"{call.tool_name}?", binds=call.args_as_dict())
                answers.approvals[call.tool_call_id] = bool(decision)
            history = result.all_messages()
            result = await agent.run(message_history=history, deferred_tool_results=answers, capabilities=[durable])
        return result.output


@pytest.mark.parametrize(("pay", "options"), [(ask_first, {}), (always_approved, {"requires_approval": True})])
@pytest.mark.parametrize("decision", [True, False])
def test_an_approval_outlives_the_process(
    journal: RunJournal, pay: Any, options: dict[str, Any], decision: bool
) -> None:
    for _ in range(2):  # it is asked once, however often the run is driven
        with pytest.raises(TurnSuspended):
            asyncio.run(_drive(journal, _agent(pay, **options)))
    (question,) = journal.pending_approvals("run")
    assert question.binds == {"amount": 5}
    assert (len(asked), paid, looked) == (1, [], [1])
    journal.approve("run", question.seq, decision, by="ada")
    output = asyncio.run(_drive(journal, _agent(pay, **options)))
    assert ("pay: paid" in output) is decision
    assert paid == ([5] if decision else [])
    assert asyncio.run(_drive(journal, _agent(pay, **options))) == output
    assert (len(asked), paid, looked) == (2, [5] if decision else [], [1])


def test_a_call_that_is_done_elsewhere_is_deferred_again_in_the_replay(journal: RunJournal) -> None:
    def elsewhere(context: RunContext[None], amount: int) -> str:
        paid.append(amount)
        raise CallDeferred(metadata={"ticket": 7})

    async def drive() -> Any:
        async with AsyncDurableRun(journal, "run") as run:
            return (await _agent(elsewhere).run("Pay.", capabilities=[JournalCapability(run)])).output

    for _ in range(2):
        deferred = asyncio.run(drive())
        assert [call.tool_name for call in deferred.calls] == ["pay"]
        assert deferred.metadata == {"call-2": {"ticket": 7}}
    assert (paid, len(asked)) == ([5], 1)


def test_a_failure_for_good_is_replayed_as_one(journal: RunJournal) -> None:
    def fails(context: RunContext[None], amount: int) -> str:
        paid.append(amount)
        raise ToolFailed("No such account.")

    async def drive() -> Any:
        async with AsyncDurableRun(journal, "run") as run:
            return (await _agent(fails).run("Pay.", capabilities=[JournalCapability(run)])).output

    first, again = asyncio.run(drive()), asyncio.run(drive())
    assert first == again
    assert "pay: No such account." in first
    assert paid == [5]
