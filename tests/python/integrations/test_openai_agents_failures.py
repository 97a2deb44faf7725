"""openai-agents over a run journal when something fails, is late or waits: as recorded, so replayed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from agents import (
    Agent,
    ModelRetrySettings,
    ModelSettings,
    RunConfig,
    Runner,
    ToolOutputImage,
    UserError,
    function_tool,
    retry_policies,
)
from agents.testing import ModelCall, ModelStep, ScriptedModel, assistant_message, function_call
from openai import RateLimitError
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFailedEvent,
    ResponseOutputItemDoneEvent,
)

from turn_journal_runtime.errors import InvalidJournalError, TurnSuspended
from turn_journal_runtime.integrations.openai_agents import JournalModel, journal_tool
from turn_journal_runtime.run_journal import AsyncDurableRun, RunJournal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

    from agents import FunctionTool

QUIET = RunConfig(tracing_disabled=True)


@pytest.fixture
def journal() -> Iterator[RunJournal]:
    with RunJournal(":memory:") as journal:
        yield journal


def _driven(journal: RunJournal, drive: Callable[[AsyncDurableRun], Awaitable[Any]]) -> Any:
    async def inside() -> Any:
        async with AsyncDurableRun(journal, "run") as run:
            return await drive(run)

    return asyncio.run(inside())


def _says_what_the_tool_said(call: ModelCall) -> ModelStep:
    """A model that calls the one tool, and then repeats its answer."""
    outputs = [item["output"] for item in call.input if isinstance(item, dict) and "output" in item]
    return ModelStep([assistant_message(str(outputs[0])) if outputs else function_call("act", {}, call_id="1")])


def _scripted() -> ScriptedModel:
    return ScriptedModel([ModelStep.respond(_says_what_the_tool_said)] * 2)


def _busy() -> RateLimitError:
    """What a provider says that has too much to do; its response, which nobody looks at here, is left out."""
    error = RateLimitError.__new__(RateLimitError, "busy")
    error.message, error.status_code = "busy", 429
    return error


@pytest.mark.parametrize("streamed", [False, True], ids=["plain", "streamed"])
def test_a_failure_that_the_sdk_tried_again_after_is_passed_over_in_a_replay(
    journal: RunJournal, streamed: bool
) -> None:
    asked = []

    def answer(_: ModelCall) -> ModelStep:
        asked.append(1)
        return ModelStep.raise_error(_busy()) if len(asked) < 3 else ModelStep([assistant_message("here")])

    retry = ModelRetrySettings(
        max_retries=3,
        backoff={"initial_delay": 0.0, "jitter": False},
        policy=retry_policies.http_status([429]),
    )

    async def drive(run: AsyncDurableRun) -> str:
        model = JournalModel(ScriptedModel([ModelStep.respond(answer)] * 3), run)
        agent = Agent("a", model=model, model_settings=ModelSettings(retry=retry))
        if not streamed:
            return str((await Runner.run(agent, "Go.", run_config=QUIET)).final_output)
        result = Runner.run_streamed(agent, "Go.", run_config=QUIET)
        async for _ in result.stream_events():
            pass
        return str(result.final_output)

    assert [_driven(journal, drive), _driven(journal, drive), len(asked)] == ["here", "here", 3]


@function_tool(name_override="act", timeout=0.5)
async def late() -> str:
    """Takes too long."""
    await asyncio.sleep(10)
    return "never"


@function_tool(name_override="act")
def picture() -> ToolOutputImage:
    """Shows."""
    return ToolOutputImage(image_url="https://example.com/a.png")


class Receipt:
    """What has no form in JSON."""

    def __str__(self) -> str:
        return "receipt 7"


@function_tool(name_override="act")
def receipt() -> Receipt:
    """Pays."""
    return Receipt()


@function_tool(name_override="act")
def half_a_pair() -> dict[str, str]:
    """Cuts a text off."""
    return {"\ud83d": "\udc00"}


@pytest.mark.parametrize(
    ("tool", "seen"),
    [
        (late, "timed out after 0.5 seconds"),
        (picture, "'input_image'"),
        (receipt, "receipt 7"),
        (half_a_pair, r"'\ud83d': '\udc00'"),
    ],
)
def test_what_the_sdk_makes_of_a_tool_is_its_result(journal: RunJournal, tool: FunctionTool, seen: str) -> None:
    async def drive(run: AsyncDurableRun) -> str:
        agent = Agent("a", model=JournalModel(_scripted(), run), tools=[journal_tool(tool, run)])
        return str((await Runner.run(agent, "Go.", run_config=QUIET)).final_output)

    first = _driven(journal, drive)
    assert seen in first
    assert _driven(journal, drive) == first


def test_a_result_that_cannot_be_recorded_says_that_the_tool_has_run(journal: RunJournal) -> None:
    @function_tool(name_override="act")
    def endless() -> list[Any]:
        """Refers to itself."""
        value: list[Any] = []
        value.append(value)
        return value

    async def drive(run: AsyncDurableRun) -> None:
        agent = Agent("a", model=JournalModel(_scripted(), run), tools=[journal_tool(endless, run)])
        await Runner.run(agent, "Go.", run_config=QUIET)

    with pytest.raises(UserError) as caught:
        _driven(journal, drive)
    assert isinstance(caught.value.__cause__, InvalidJournalError)
    assert "step 1 of run 'run' has run and its result cannot be recorded" in caught.value.__cause__.message


def _without_items(**fields: Any) -> Response:
    return Response(
        id="r",
        created_at=0.0,
        model="m",
        object="response",
        output=[],
        parallel_tool_calls=True,
        tool_choice="auto",
        tools=[],
        **fields,
    )


def test_an_answer_is_on_record_before_it_is_seen_to_be_whole(journal: RunJournal) -> None:
    """Some providers send the items of an answer on their way only, and none when they say that it is complete."""
    message = assistant_message("here")
    response = _without_items()

    async def answers(_: ModelCall) -> AsyncIterator[Any]:
        yield ResponseOutputItemDoneEvent(
            item=message, output_index=0, sequence_number=0, type="response.output_item.done"
        )
        yield ResponseCompletedEvent(response=response, sequence_number=1, type="response.completed")
        await asyncio.sleep(0.05)  # the provider hangs up

    async def drive(run: AsyncDurableRun) -> str:
        model = JournalModel(ScriptedModel([ModelStep([], stream_events=answers)]), run)
        result = Runner.run_streamed(Agent("a", model=model), "Go.", run_config=QUIET)
        async for event in result.stream_events():
            if event.type == "raw_response_event" and event.data.type == "response.completed":
                assert [event.kind for event in journal.events("run")] == ["model_decision"]
        return str(result.final_output)

    assert [_driven(journal, drive), _driven(journal, drive)] == ["here", "here"]


def test_a_stream_that_fails_leaves_a_drive_that_can_go_on(journal: RunJournal) -> None:
    failed = ResponseFailedEvent(
        response=_without_items(status="failed"),
        sequence_number=0,
        type="response.failed",
    )

    async def fails(_: ModelCall) -> AsyncIterator[Any]:
        yield failed
        await asyncio.sleep(10)  # the provider does not hang up

    async def drive(run: AsyncDurableRun) -> str:
        broken = JournalModel(ScriptedModel([ModelStep([], stream_events=fails)]), run)
        result = Runner.run_streamed(Agent("a", model=broken), "Go.", run_config=QUIET)
        try:
            async for _ in result.stream_events():
                pass
        except Exception:  # whatever the SDK makes of it; a replay has the recorded one
            other = JournalModel(ScriptedModel([[assistant_message("the other one")]]), run)
            return str((await Runner.run(Agent("b", model=other), "Go.", run_config=QUIET)).final_output)
        return "it did not fail"

    assert [_driven(journal, drive), _driven(journal, drive)] == ["the other one"] * 2


def test_a_tool_that_needs_an_approval_waits_for_one_as_long_as_it_takes(journal: RunJournal) -> None:
    done = []

    @function_tool(needs_approval=True)
    def act() -> str:
        """Acts."""
        done.append(1)
        return "acted"

    async def drive(run: AsyncDurableRun) -> str:
        agent = Agent("a", model=JournalModel(_scripted(), run), tools=[journal_tool(act, run)])
        result = await Runner.run(agent, "Go.", run_config=QUIET)
        while result.interruptions:
            state = result.to_state()
            for call in result.interruptions:
                allowed = await run.approval(f"May it {call.name}?", binds={"arguments": call.arguments})
                (state.approve if allowed else state.reject)(call)
            result = await Runner.run(agent, state, run_config=QUIET)
        return str(result.final_output)

    for _ in range(2):
        with pytest.raises(TurnSuspended):
            _driven(journal, drive)
    (question,) = journal.pending_approvals("run")
    journal.approve("run", question.seq, True, by="ada")
    assert [_driven(journal, drive), _driven(journal, drive), done] == ["acted", "acted", [1]]
