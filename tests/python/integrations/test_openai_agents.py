"""openai-agents over a run journal: what is asked and done once, streamed or not, and what is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import Agent, FunctionTool, RunConfig, Runner, UserError, function_tool
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call

from turn_journal_runtime.errors import ReplayDivergenceError, UncertainEffectError
from turn_journal_runtime.integrations.openai_agents import JournalModel, journal_tool
from turn_journal_runtime.run_journal import AsyncDurableRun, RunJournal

if TYPE_CHECKING:
    from collections.abc import Iterator

QUIET = RunConfig(tracing_disabled=True)


def _told(_: Any, error: Exception) -> str:
    """What the model is told of a failure that is an answer."""
    return str(error)


class World:
    """The model and the tools of an agent, which count what they are asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.paid: list[int] = []
        self.dies = False

    def decide(self, call: ModelCall) -> ModelStep:
        self.asked += 1
        items = [item for item in call.input if isinstance(item, dict)]
        outputs = [str(item["output"]) for item in items if item.get("type") == "function_call_output"]
        if not outputs:  # three calls side by side, of which one is refused
            calls = [(n, {"amount": amount}) for n, amount in enumerate((5, 50, 7))]
            return ModelStep([function_call("pay", amount, call_id=f"call-{n}") for n, amount in calls])
        return ModelStep([assistant_message("; ".join(outputs))])

    def pay(self, amount: int) -> int:
        """Pays."""
        if amount > 10:
            raise ValueError("At most 10.")
        self.paid.append(amount)
        if self.dies:
            raise ConnectionError("gone")
        return amount

    def agent(self, run: AsyncDurableRun, instructions: str = "Pay.", **declared: Any) -> Agent[None]:
        model = ScriptedModel([ModelStep.respond(self.decide)] * 2)
        tool: FunctionTool = function_tool(self.pay, failure_error_function=None if self.dies else _told)
        return Agent(
            "payer",
            instructions=instructions,
            tools=[journal_tool(tool, run, **declared)],
            model=JournalModel(model, run),
        )


@pytest.fixture
def journal() -> Iterator[RunJournal]:
    with RunJournal(":memory:") as journal:
        yield journal


def _drive(
    journal: RunJournal, world: World, *, streamed: bool = False, instructions: str = "Pay.", **declared: Any
) -> tuple[str, list[str]]:
    """What the agent says, and the kinds of the events that its stream had."""

    async def drive() -> tuple[str, list[str]]:
        async with AsyncDurableRun(journal, "run") as run:
            agent = world.agent(run, instructions, **declared)
            if not streamed:
                return str((await Runner.run(agent, "Go.", run_config=QUIET)).final_output), []
            result = Runner.run_streamed(agent, "Go.", run_config=QUIET)
            kinds: list[str] = [event.type async for event in result.stream_events()]
            return str(result.final_output), kinds

    return asyncio.run(drive())


@pytest.mark.parametrize("first", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("then", [False, True], ids=["plain", "streamed"])
def test_a_finished_run_is_replayed_without_asking_or_paying(journal: RunJournal, first: bool, then: bool) -> None:
    world = World()
    said, _ = _drive(journal, world, streamed=first)
    assert "At most 10." in said
    again, kinds = _drive(journal, world, streamed=then)
    assert again == said
    assert (world.asked, world.paid) == (2, [5, 7])
    assert ("run_item_stream_event" in kinds) is then


def test_events_of_a_stream_come_while_the_model_answers(journal: RunJournal) -> None:
    _, live = _drive(journal, World(), streamed=True)
    _, replayed = _drive(journal, World(), streamed=True)
    assert live.count("raw_response_event") > replayed.count("raw_response_event") == 2


def test_a_tool_that_died_is_never_run_again_on_a_guess(journal: RunJournal) -> None:
    world = World()
    world.dies = True
    with pytest.raises(UserError, match="gone"):
        _drive(journal, world)
    world.dies = False
    assert 5 in world.paid
    for _ in range(2):
        with pytest.raises(UserError) as refused:
            _drive(journal, world)
        assert isinstance(refused.value.__cause__, UncertainEffectError)
    assert world.paid.count(5) == 1
    for step in journal.uncertain("run"):
        journal.settle("run", step.seq, result=step.args["amount"])
    assert _drive(journal, world)[0].startswith("5; ")
    assert (world.asked, world.paid.count(5)) == (2, 1)


def test_changed_instructions_are_refused_before_anything_runs(journal: RunJournal) -> None:
    world = World()
    _drive(journal, world)
    with pytest.raises(ReplayDivergenceError) as refused:
        _drive(journal, world, instructions="Pay twice.")
    assert refused.value.details["fields"] == ["request.system_instructions"]
    assert world.paid == [5, 7]


def test_a_model_goes_by_its_name_as_in_an_agent(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "agents.MultiProvider.get_model",
        lambda _, name: ScriptedModel([[assistant_message(f"{name} answers")]]),
    )

    async def drive() -> str:
        async with AsyncDurableRun(journal, "run") as run:
            agent = Agent("named", model=JournalModel("some-model", run))
            return str((await Runner.run(agent, "Go.", run_config=QUIET)).final_output)

    assert asyncio.run(drive()) == "some-model answers"
