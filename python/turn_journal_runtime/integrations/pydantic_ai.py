"""pydantic-ai agents whose model requests and tool calls are recorded, and replayed after a crash.

    async with AsyncDurableRun(RunJournal(), "invoice-42") as run:
        result = await agent.run("Pay invoice 42.", capabilities=[JournalCapability(run)])

Run the same code again after a crash: what is on record is not asked and not done again. Needs the extra `pydantic-ai`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import ModelRetry, ToolRetryError
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse
from pydantic_core import to_jsonable_python

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from pydantic_ai.capabilities import ValidatedToolArgs, WrapModelRequestHandler, WrapToolExecuteHandler
    from pydantic_ai.messages import ModelMessage, ToolCallPart
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.tools import RunContext, ToolDefinition

    from ..run_journal import AsyncDurableRun

__all__ = ["JournalCapability"]

#: What of a message reaches the model; the rest is the framework's own bookkeeping.
_SHOWN: Final = ("kind", "parts", "instructions")
#: What of a part differs between two drives of one run.
_VOLATILE: Final = frozenset({"timestamp", "metadata"})

#: Marks a tool's wish that the model tries again, which is an outcome like any other.
_RETRY: Final = "pydantic_ai_model_retry"


@dataclass
class JournalCapability(AbstractCapability[Any]):
    """Records an agent's model requests and tool calls in a run, and answers them from its record.

    Args:
        run: The drive that this agent's run takes its steps with; one agent run per drive.
        restart_safe: The tools that may be run again when nobody knows whether they ran. A tool whose `metadata` has
            `{"restart_safe": True}` is one, too.
        readbacks: By tool, what finds out with the idempotency key whether its effect happened: answers
            `Committed(result)`, `Absent()` or `Unknown()`.

    A tool's result comes back as JSON, in the first run as in the replay. A tool's `ModelRetry` is an outcome and is
    replayed as such. Streamed runs and tools that defer (`CallDeferred`, `ApprovalRequired`) are not recorded: ask with
    `run.approval` instead.

    Specified in run-journal.md, section 4.
    """

    run: AsyncDurableRun
    restart_safe: Collection[str] = ()
    readbacks: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """A model request as a recorded step."""
        if request_context.streaming:
            return await handler(request_context)

        async def ask() -> Any:
            return ModelMessagesTypeAdapter.dump_python([await handler(request_context)], mode="json")[0]

        parameters = request_context.model_request_parameters
        request = {
            "model": request_context.model.model_name,
            "settings": to_jsonable_python(request_context.model_settings),
            "tools": to_jsonable_python(sorted(tool.name for tool in parameters.function_tools)),
            "messages": _asked(request_context.messages),
        }
        recorded = await self.run.model(ask, request=request)
        response = ModelMessagesTypeAdapter.validate_python([recorded])[0]
        assert isinstance(response, ModelResponse)  # noqa: S101 - what `ask` recorded
        return response

    async def wrap_tool_execute(
        self,
        ctx: RunContext[Any],
        *,
        call: ToolCallPart,
        tool_def: ToolDefinition,
        args: ValidatedToolArgs,
        handler: WrapToolExecuteHandler,
    ) -> Any:
        """A tool call as a recorded step."""

        async def execute(**_: Any) -> Any:
            try:
                return to_jsonable_python(await handler(args))
            except ToolRetryError as retry:
                return {_RETRY: str(retry.tool_retry.content)}
            except ModelRetry as retry:
                return {_RETRY: retry.message}

        declared = (tool_def.metadata or {}).get("restart_safe") is True
        outcome = await self.run.tool(
            tool_def.name,
            to_jsonable_python(args),
            execute,
            restart_safe=declared or tool_def.name in self.restart_safe,
            readback=self.readbacks.get(tool_def.name),
            label=call.tool_call_id,
        )
        if isinstance(outcome, dict) and outcome.keys() == {_RETRY}:
            raise ModelRetry(outcome[_RETRY])
        return outcome


def _asked(messages: list[ModelMessage]) -> list[dict[str, Any]]:
    """What the model is shown of a conversation, without what differs between two drives of one run."""
    dumped = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return [{key: _stable(message[key]) for key in _SHOWN if key in message} for message in dumped]


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stable(item) for key, item in value.items() if key not in _VOLATILE}
    return [_stable(item) for item in value] if isinstance(value, list) else value
