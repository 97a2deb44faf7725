"""openai-agents whose model responses and tool calls are recorded, and replayed after a crash.

    async with AsyncDurableRun(RunJournal(), "invoice-42") as run:
        agent = Agent("billing", model=JournalModel(model, run), tools=[journal_tool(charge, run)])
        result = await Runner.run(agent, "Pay invoice 42.")

Run the same code again after a crash: what is on record is not asked and not done again. Needs the extra
`openai-agents`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import time
import warnings
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

try:
    import agents  # noqa: F401
except ModuleNotFoundError as _missing:
    _missing.add_note("Install it with: pip install 'turn-journal-runtime[openai-agents]'")
    raise
from agents import (
    FunctionTool,
    Model,
    ModelResponse,
    ModelSettings,
    MultiProvider,
    RunContextWrapper,
    Usage,
)
from agents.tool import invoke_function_tool
from openai.types.responses import Response, ResponseCompletedEvent, ResponseOutputItemDoneEvent, ResponseUsage
from pydantic import TypeAdapter
from pydantic_core import to_jsonable_python

from ..errors import RecordedToolError
from .jsonable import jsonable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Mapping

    from agents import Agent, AgentOutputSchemaBase, Handoff, ModelTracing, Tool
    from agents.items import TResponseInputItem, TResponseStreamEvent
    from agents.retry import ModelRetryAdvice, ModelRetryAdviceRequest
    from agents.tool_context import ToolContext
    from openai.types.responses.response_prompt_param import ResponsePromptParam

    from ..run_journal import AsyncDurableRun

__all__ = ["JournalModel", "journal_mcp_tools", "journal_tool"]

_RESPONSE: Final[TypeAdapter[ModelResponse]] = TypeAdapter(ModelResponse)
_END: Final = object()
#: How a stream says that no response will come; the SDK raises what it makes of them.
_FAILURES: Final = frozenset({"response.failed", "response.incomplete", "error", "response.error"})
#: What a tool has that is done in this process, and not at the provider: it is no part of a response.
_DOES: Final = ("on_invoke_tool", "executor", "computer", "editor")
#: What `journal_tool` made, in whatever copies of a tool it stands.
_RECORDED: Final[WeakSet[Any]] = WeakSet()


class JournalModel(Model):
    """A model of the SDK that is asked once for each step of a run.

    Args:
        model: The model that is asked, or its name as an agent takes it.
        run: The drive that the agent takes its steps with.

    A streamed response is recorded when it is whole, before its last event is passed on; a replay gives it in one
    piece, and one that was cut off is asked for again. A failure after which the SDK asked again
    (`ModelSettings.retry`) is passed over in a replay, without the wait. `ModelSettings.timeout` cuts a step short, so
    that the run has to be driven again: give the model's client the time-out instead. A tool of the agent that does
    something in this process and is not recorded is told with a `RuntimeWarning`.

    Specified in run-journal.md, section 4.
    """

    def __init__(self, model: Model | str, run: AsyncDurableRun) -> None:
        self._model = MultiProvider().get_model(model) if isinstance(model, str) else model
        self._run = run
        self._told: set[str] = set()

    async def get_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> ModelResponse:
        """A response as a recorded step."""

        async def ask() -> Any:
            response = await self._model.get_response(
                system_instructions,
                input,
                model_settings,
                tools,
                output_schema,
                handoffs,
                tracing,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                prompt=prompt,
            )
            return _recorded(response)

        self._tell_unrecorded(tools)
        request = _asked(system_instructions, input, model_settings, tools, handoffs)
        return _RESPONSE.validate_python(await self._step(ask, request, model_settings))

    async def stream_response(
        self,
        system_instructions: str | None,
        input: str | list[TResponseInputItem],
        model_settings: ModelSettings,
        tools: list[Tool],
        output_schema: AgentOutputSchemaBase | None,
        handoffs: list[Handoff],
        tracing: ModelTracing,
        *,
        previous_response_id: str | None,
        conversation_id: str | None,
        prompt: ResponsePromptParam | None,
    ) -> AsyncIterator[TResponseStreamEvent]:
        """A response as a recorded step; its events are passed on while they come."""
        events: asyncio.Queue[Any] = asyncio.Queue()
        completed: ResponseCompletedEvent | None = None
        failure: Any = None

        async def ask() -> Any:
            nonlocal completed, failure
            items = []
            async for event in self._model.stream_response(
                system_instructions,
                input,
                model_settings,
                tools,
                output_schema,
                handoffs,
                tracing,
                previous_response_id=previous_response_id,
                conversation_id=conversation_id,
                prompt=prompt,
            ):
                # The SDK is done with the stream when it sees how it ended: the step has to be over by then.
                if event.type in _FAILURES:
                    failure = event
                    raise RuntimeError(f"The model's stream ended with {event.type}.")
                if isinstance(event, ResponseCompletedEvent):
                    completed = event
                    continue
                if isinstance(event, ResponseOutputItemDoneEvent):
                    items.append(event.item)
                events.put_nowait(event)
            if completed is None:
                raise RuntimeError("The model's stream ended before its response was complete.")
            if not completed.response.output:
                # Some providers send what they answer on its way only; the SDK takes it from there, too.
                completed.response.output = list(items)
            return _recorded(_response_of(completed.response))

        async def step() -> Any:
            try:
                return await self._step(ask, request, model_settings)
            finally:
                events.put_nowait(_END)

        self._tell_unrecorded(tools)
        request = _asked(system_instructions, input, model_settings, tools, handoffs)
        task = asyncio.ensure_future(step())
        try:
            while (event := await events.get()) is not _END:
                yield event
            if failure is not None:
                yield failure
            recorded = await task
            yield completed or _completed(_RESPONSE.validate_python(recorded))
        finally:
            task.cancel()

    async def _step(self, ask: Callable[[], Any], request: Any, settings: ModelSettings) -> Any:
        """The model's step, or the one with which the SDK got an answer after it had failed."""
        retries = 0 if settings.retry is None else settings.retry.max_retries or 0
        while True:
            try:
                return await self._run.model(ask, request=request)
            except RecordedToolError:
                # Whether to try again was decided then, by what is not on record: the policy is not asked again.
                if retries == 0:
                    raise
                retries -= 1

    def _tell_unrecorded(self, tools: list[Tool]) -> None:
        for tool in tools:
            does = [getattr(tool, name) for name in _DOES if getattr(tool, name, None) is not None]
            if does and not (isinstance(tool, FunctionTool) and does[0] in _RECORDED) and tool.name not in self._told:
                self._told.add(tool.name)
                warnings.warn(
                    f"The tool {tool.name!r} is not recorded: after a crash it runs again. Wrap a function's with "
                    "journal_tool(tool, run), those of MCP servers with journal_mcp_tools(agent, run), and any other "
                    "as a function; where it may run again, say restart_safe.",
                    RuntimeWarning,
                    stacklevel=2,
                )

    def get_retry_advice(self, request: ModelRetryAdviceRequest) -> ModelRetryAdvice | None:
        """What the model itself advises."""
        return self._model.get_retry_advice(request)

    async def close(self) -> None:
        """Closes the model."""
        await self._model.close()


def journal_tool(
    tool: FunctionTool,
    run: AsyncDurableRun,
    *,
    restart_safe: bool = False,
    readback: Callable[[str], Any] | None = None,
) -> FunctionTool:
    """A tool of the SDK whose calls are recorded steps of a run.

    A result that is no text comes back as JSON, in the first run as in the replay. What the tool's
    `failure_error_function` answers is a result like any other, and so is what its `timeout_seconds` make of a call.

    Args:
        tool: The tool, as `function_tool` makes it.
        run: The drive that the agent takes its steps with.
        restart_safe: It may be run again when nobody knows whether it ran.
        readback: Finds out with the idempotency key whether its effect happened: answers `Committed(result)`,
            `Absent()` or `Unknown()`.

    The SDK raises what stops a run (`UncertainEffectError`, `TurnSuspended`) as its own `UserError`, whose `__cause__`
    it is.

    Specified in run-journal.md, section 4.
    """

    async def invoke(context: ToolContext[Any], arguments: str) -> Any:
        async def execute(**_: Any) -> Any:
            # With the tool's own time-out: what cuts the step itself short leaves its outcome unknown.
            # What has no form in JSON is the text that the SDK would make of it.
            return jsonable(await invoke_function_tool(function_tool=tool, context=context, arguments=arguments))

        try:
            given = json.loads(arguments) if arguments else {}
        except ValueError:
            given = None
        if not isinstance(given, dict):
            # The tool answers what is wrong with it, which is an outcome, too.
            given = {"arguments": arguments}
        return await run.tool(
            tool.name, given, execute, restart_safe=restart_safe, readback=readback, label=context.tool_call_id
        )

    _RECORDED.add(invoke)
    return dataclasses.replace(tool, on_invoke_tool=invoke, timeout_seconds=None)


async def journal_mcp_tools(
    agent: Agent[Any],
    run: AsyncDurableRun,
    *,
    restart_safe: Collection[str] = (),
    readbacks: Mapping[str, Callable[[str], Any]] | None = None,
    context: Any = None,
) -> Agent[Any]:
    """The agent with the tools that its MCP servers have now, as tools whose calls are recorded steps of a run.

    Args:
        agent: The agent; its servers are connected, and stay so while it runs.
        run: The drive that the agent takes its steps with.
        restart_safe: The tools that may be run again when nobody knows whether they ran.
        readbacks: By tool, what `journal_tool` takes as `readback`.
        context: What `Runner.run` is given as `context`, for servers that filter their tools by it.

    What a server answers to a call that went wrong is a result, by the SDK's default: give the agent or the server
    `failure_error_function=None` where a connection that was lost in the middle of a call is to leave it uncertain.

    Specified in run-journal.md, section 4.
    """
    tools = [
        journal_tool(
            tool, run, restart_safe=tool.name in restart_safe, readback=readbacks.get(tool.name) if readbacks else None
        )
        for tool in await agent.get_mcp_tools(RunContextWrapper(context))
        if isinstance(tool, FunctionTool)
    ]
    return agent.clone(tools=[*agent.tools, *tools], mcp_servers=[])


def _asked(
    system_instructions: str | None, input: Any, settings: ModelSettings, tools: list[Tool], handoffs: list[Handoff]
) -> dict[str, Any]:
    """What the model is shown: a change of it is a divergence."""
    return {
        "system_instructions": system_instructions,
        "input": to_jsonable_python(input),
        "settings": settings.to_json_dict(),
        "tools": sorted([tool.name for tool in tools] + [handoff.tool_name for handoff in handoffs]),
    }


def _recorded(response: ModelResponse) -> Any:
    # What the provider left out stays out: the SDK shows the model its own words again, and nulls would be new to it.
    return _RESPONSE.dump_python(response, mode="json", exclude_unset=True)


def _response_of(response: Response) -> ModelResponse:
    """A streamed response in the form of one that was asked for in one piece."""
    used = response.usage
    usage = (
        Usage()
        if used is None
        else Usage(
            requests=1,
            input_tokens=used.input_tokens,
            output_tokens=used.output_tokens,
            total_tokens=used.total_tokens,
            input_tokens_details=used.input_tokens_details,
            output_tokens_details=used.output_tokens_details,
        )
    )
    return ModelResponse(output=response.output, usage=usage, response_id=response.id)


def _completed(recorded: ModelResponse) -> ResponseCompletedEvent:
    """The end of a stream whose response is on record."""
    usage = recorded.usage
    response = Response(
        id=recorded.response_id or "recorded",
        created_at=time.time(),
        model="recorded",
        object="response",
        output=recorded.output,
        tool_choice="auto",
        tools=[],
        parallel_tool_calls=True,
        usage=ResponseUsage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            total_tokens=usage.total_tokens,
            input_tokens_details=usage.input_tokens_details,
            output_tokens_details=usage.output_tokens_details,
        ),
    )
    return ResponseCompletedEvent(response=response, sequence_number=0, type="response.completed")
