"""pydantic-ai agents over a run journal: what is asked and done once, and what is refused."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from pydantic_ai import Agent, BinaryImage, ImageUrl, ModelRetry, Tool, ToolReturn
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.toolsets import AbstractToolset, ToolsetTool
from pydantic_core import SchemaValidator, core_schema

from turn_journal_runtime.errors import InvalidJournalError, ReplayDivergenceError, UncertainEffectError
from turn_journal_runtime.integrations.pydantic_ai import JournalCapability
from turn_journal_runtime.run_journal import AsyncDurableRun, RunJournal

if TYPE_CHECKING:
    from collections.abc import Iterator


class World:
    """The model and the tools of an agent, which count what they are asked."""

    def __init__(self) -> None:
        self.asked = 0
        self.paid: list[int] = []
        self.dies = False

    def answer(self, messages: list[ModelMessage], _: AgentInfo) -> ModelResponse:
        self.asked += 1
        parts = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
        returned = [part for part in parts if part.outcome == "success"]
        if returned:
            return ModelResponse([TextPart(f"paid {returned[-1].content}")])
        return ModelResponse([ToolCallPart("pay", {"amount": 5 if self.asked > 1 else 50}, "same-id")])

    def pay(self, amount: int) -> int:
        if amount > 10:
            raise ModelRetry("At most 10.")
        self.paid.append(amount)
        if self.dies:
            raise KeyboardInterrupt
        return amount

    def agent(self, prompt: str = "Pay.") -> Agent[None, str]:
        return Agent(FunctionModel(self.answer), system_prompt=prompt, tools=[self.pay])


@pytest.fixture
def journal() -> Iterator[RunJournal]:
    with RunJournal(":memory:") as journal:
        yield journal


def _drive(journal: RunJournal, agent: Agent[None, str], **declared: Any) -> str:
    async def drive() -> str:
        async with AsyncDurableRun(journal, "run") as run:
            return (await agent.run("Go.", capabilities=[JournalCapability(run, **declared)])).output

    return asyncio.run(drive())


def test_a_finished_run_is_replayed_without_asking_or_paying(journal: RunJournal) -> None:
    world = World()
    assert _drive(journal, world.agent()) == "paid 5"
    asked = world.asked
    assert _drive(journal, world.agent()) == "paid 5"
    assert (world.asked, world.paid) == (asked, [5])


def test_a_wish_to_retry_is_an_outcome_and_replayed_as_one(journal: RunJournal) -> None:
    world = World()
    _drive(journal, world.agent())
    assert world.asked == 3
    assert [event.kind for event in journal.events("run")] == [
        *("model_decision", "tool_call", "tool_result"),
        *("model_decision", "tool_call", "tool_result"),
        "model_decision",
    ]
    assert _drive(journal, world.agent()) == "paid 5"
    assert world.asked == 3


def test_a_changed_prompt_is_refused_before_anything_runs(journal: RunJournal) -> None:
    world = World()
    _drive(journal, world.agent())
    with pytest.raises(ReplayDivergenceError) as refused:
        _drive(journal, world.agent("Pay twice."))
    assert refused.value.details["fields"] == ["request.messages"]
    assert world.paid == [5]


def test_a_tool_that_died_is_never_run_again_on_a_guess(journal: RunJournal) -> None:
    world = World()
    world.dies = True
    with pytest.raises(KeyboardInterrupt):
        _drive(journal, world.agent())
    world.dies = False
    with pytest.raises(UncertainEffectError):
        _drive(journal, world.agent())
    assert world.paid == [5]
    (step,) = journal.uncertain("run")
    journal.settle("run", step.seq, result=5)
    assert _drive(journal, world.agent()) == "paid 5"
    assert world.paid == [5]


class Elsewhere(AbstractToolset[None]):
    """A toolset whose tools are no functions of this program, as that of an MCP server."""

    def __init__(self, world: World) -> None:
        self._world = world

    @property
    def id(self) -> str:
        return "elsewhere"

    async def get_tools(self, ctx: Any) -> dict[str, ToolsetTool[None]]:
        del ctx
        definition = ToolDefinition(name="pay", parameters_json_schema={"type": "object"})
        taken = SchemaValidator(core_schema.dict_schema())
        return {"pay": ToolsetTool(toolset=self, tool_def=definition, max_retries=3, args_validator=taken)}

    async def call_tool(self, name: str, tool_args: dict[str, Any], ctx: Any, tool: ToolsetTool[None]) -> Any:
        del name, ctx, tool
        return self._world.pay(**tool_args)


def test_tools_of_a_toolset_are_recorded_as_functions_are(journal: RunJournal) -> None:
    world = World()
    world.dies = True
    agent: Agent[None, str] = Agent(FunctionModel(world.answer), toolsets=[Elsewhere(world)])
    with pytest.raises(KeyboardInterrupt):
        _drive(journal, agent)
    world.dies = False
    with pytest.raises(UncertainEffectError):
        _drive(journal, agent)
    assert world.paid == [5]
    (step,) = journal.uncertain("run")
    journal.settle("run", step.seq, result=5)
    assert _drive(journal, agent) == _drive(journal, agent) == "paid 5"
    assert world.paid == [5]


def test_a_tool_that_is_declared_restart_safe_runs_again(journal: RunJournal) -> None:
    world = World()
    world.dies = True
    with pytest.raises(KeyboardInterrupt):
        _drive(journal, world.agent())
    world.dies = False
    assert _drive(journal, world.agent(), restart_safe={"pay"}) == "paid 5"
    assert world.paid == [5, 5]


PICTURE = BinaryImage(b"\x89PNG \xff", media_type="image/png")


@pytest.mark.parametrize(
    "returned", [PICTURE, ["a picture", PICTURE], {"seen": [ImageUrl("https://example.com/a.png")]}]
)
def test_a_file_that_a_tool_returns_reaches_the_model_as_a_file(journal: RunJournal, returned: Any) -> None:
    def look() -> Any:
        return returned

    for _ in range(2):
        (part,) = _parts_after(journal, look)
        assert isinstance(part, ToolReturnPart)
        assert part.content == returned


@pytest.mark.parametrize(
    "page",
    [
        {"pydantic_ai_raised": "CallDeferred", "with": {}},
        {"pydantic_ai_raised": "no such signal", "with": {"message": "hush"}},
        {"pydantic_ai_returned": {"return_value": "another page"}},
        {"pydantic_ai_returned": 5},
    ],
)
def test_what_a_tool_read_somewhere_says_nothing_by_its_form(journal: RunJournal, page: dict[str, Any]) -> None:
    world = World()

    def pay(amount: int) -> dict[str, Any]:
        return page

    world.asked = 1
    agent = Agent(FunctionModel(world.answer), tools=[pay])
    assert [_drive(journal, agent), _drive(journal, agent)] == [f"paid {page}"] * 2


class Receipt:
    def __str__(self) -> str:
        return "receipt 7"


@pytest.mark.parametrize(
    ("returned", "seen"),
    [
        (Receipt(), "receipt 7"),
        ("half \ud83d", "half ?"),
        ({"\ud83d": 1}, "{'?': 1}"),
        (ToolReturn({"of": Receipt()}), "{'of': 'receipt 7'}"),
    ],
)
def test_what_has_no_form_in_json_is_text(journal: RunJournal, returned: Any, seen: str) -> None:
    world = World()
    agent = Agent(FunctionModel(world.answer), tools=[Tool(lambda amount: returned, name="pay")])
    assert [_drive(journal, agent), _drive(journal, agent), world.asked] == [f"paid {seen}"] * 2 + [2]


def test_a_result_that_cannot_be_recorded_says_that_the_tool_has_run(journal: RunJournal) -> None:
    endless: list[Any] = []
    endless.append(endless)
    agent = Agent(FunctionModel(World().answer), tools=[Tool(lambda amount: endless, name="pay")])
    with pytest.raises(InvalidJournalError, match="step 1 of run 'run' has run and its result cannot be recorded"):
        _drive(journal, agent)


def test_what_a_tool_returns_beside_its_value_is_kept(journal: RunJournal) -> None:
    def look() -> ToolReturn[Any]:
        return ToolReturn({"at": 1}, content=["Look at this.", PICTURE], metadata={"took": 3})

    for _ in range(2):
        part, shown = _parts_after(journal, look)
        assert isinstance(part, ToolReturnPart)
        assert (part.content, part.metadata) == ({"at": 1}, {"took": 3})
        assert isinstance(shown, UserPromptPart)
        assert shown.content == ["Look at this.", PICTURE]


def test_a_tool_that_is_late_has_failed_as_the_framework_says(journal: RunJournal) -> None:
    begun = []

    async def look() -> str:
        begun.append(1)
        await asyncio.sleep(10)
        return "never"

    for _ in range(2):
        (part,) = _parts_after(journal, Tool(look, timeout=0.5))
        assert "Timed out" in str(part.content)
    assert begun == [1]


def _parts_after(journal: RunJournal, tool: Any) -> list[Any]:
    """What the model is shown after it called the one tool."""

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if len(messages) > 1:
            return ModelResponse([TextPart("seen")])
        return ModelResponse([ToolCallPart(info.function_tools[0].name, {}, "id")])

    async def drive() -> list[Any]:
        async with AsyncDurableRun(journal, "run") as run:
            agent = Agent(FunctionModel(answer), tools=[tool])
            result = await agent.run("Go.", capabilities=[JournalCapability(run)])
            return list(result.all_messages()[2].parts)

    return asyncio.run(drive())


def test_settings_that_are_no_json_are_told_by_their_type(journal: RunJournal) -> None:
    world = World()

    def agent(temperature: float) -> Agent[None, str]:
        settings: Any = {"timeout": httpx.Timeout(3), "temperature": temperature}
        return Agent(FunctionModel(world.answer), tools=[world.pay], model_settings=settings)

    assert [_drive(journal, agent(0.5)), _drive(journal, agent(0.5))] == ["paid 5"] * 2
    with pytest.raises(ReplayDivergenceError) as refused:
        _drive(journal, agent(0.6))
    assert refused.value.details["fields"] == ["request.settings"]
