"""pydantic-ai agents whose model requests and tool calls are recorded, and replayed after a crash.

    async with AsyncDurableRun(RunJournal(), "invoice-42") as run:
        result = await agent.run("Pay invoice 42.", capabilities=[JournalCapability(run)])

Run the same code again after a crash: what is on record is not asked and not done again. Needs the extra `pydantic-ai`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

try:
    import pydantic_ai  # noqa: F401
except ModuleNotFoundError as _missing:
    _missing.add_note("Install it with: pip install 'turn-journal-runtime[pydantic-ai]'")
    raise
from pydantic import TypeAdapter
from pydantic_ai import exceptions
from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, ToolReturn
from pydantic_core import to_jsonable_python

from .jsonable import as_json, jsonable

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

#: What a tool returned in the framework's own form, which says more than its value: recorded under this key.
_RETURNED: Final = "pydantic_ai_returned"
_RETURN: Final[TypeAdapter[ToolReturn[Any]]] = TypeAdapter(ToolReturn)
#: What a tool says by raising: an outcome like any other, recorded under this key. Which there are, varies by version.
_RAISED: Final = "pydantic_ai_raised"
_SIGNALS: Final[dict[str, type[Exception]]] = {
    name: getattr(exceptions, name)
    for name in ("ModelRetry", "ToolFailed", "CallDeferred", "ApprovalRequired")
    if hasattr(exceptions, name)
}
#: The framework's own form of `ToolFailed`, where it has one.
_FAILED: Final[tuple[type[Exception], ...]] = tuple(
    getattr(exceptions, name) for name in ("ToolFailedError",) if hasattr(exceptions, name)
)


@dataclass
class JournalCapability(AbstractCapability[Any]):
    """Records an agent's model requests and tool calls in a run, and answers them from its record.

    Args:
        run: The drive that this agent's run takes its steps with; one agent run per drive.
        restart_safe: The tools that may be run again when nobody knows whether they ran. A tool whose `metadata` has
            `{"restart_safe": True}` is one, too.
        readbacks: By tool, what finds out with the idempotency key whether its effect happened: answers
            `Committed(result)`, `Absent()` or `Unknown()`.

    A tool's result comes back as JSON, in the first run as in the replay; a `ToolReturn`, and images and other files,
    come back as what they were. What a tool says by raising (`ModelRetry`,
    `ToolFailed`, `CallDeferred`, `ApprovalRequired`) is an outcome and is replayed as such. A streamed response is
    recorded when the block that reads it is left; a replay gives it in one piece, and one that broke off is asked for
    again. Calls that the model makes side by side are numbered as they begin.

    Specified in run-journal.md, section 4.
    """

    run: AsyncDurableRun
    restart_safe: Collection[str] = ()
    readbacks: Mapping[str, Callable[[str], Any]] = field(default_factory=dict)

    async def wrap_model_request(
        self, ctx: RunContext[Any], *, request_context: ModelRequestContext, handler: WrapModelRequestHandler
    ) -> ModelResponse:
        """A model request as a recorded step."""

        async def ask() -> Any:
            return ModelMessagesTypeAdapter.dump_python([await handler(request_context)], mode="json")[0]

        parameters = request_context.model_request_parameters
        request = {
            "model": request_context.model.model_name,
            # A client's own objects may stand among them; how they look may differ between two drives.
            "settings": to_jsonable_python(request_context.model_settings, fallback=lambda value: type(value).__name__),
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
                returned = await handler(args)
                recorded = as_json(returned) if isinstance(returned, ToolReturn) else jsonable(returned)
                if _is_whole(recorded) or _is_signal(recorded):  # what a tool read somewhere says nothing by its form
                    returned = ToolReturn(returned)
                    recorded = as_json(returned)
                return {_RETURNED: recorded} if isinstance(returned, ToolReturn) else recorded
            except exceptions.ToolRetryError as retry:
                return {_RAISED: "ModelRetry", "with": {"message": str(retry.tool_retry.content)}}
            except _FAILED as failed:
                return {_RAISED: "ToolFailed", "with": {"message": str(failed)}}
            except tuple(_SIGNALS.values()) as signal:
                return {_RAISED: type(signal).__name__, "with": jsonable(vars(signal))}

        declared = (tool_def.metadata or {}).get("restart_safe") is True
        outcome = await self.run.tool(
            tool_def.name,
            to_jsonable_python(args),
            execute,
            restart_safe=declared or tool_def.name in self.restart_safe,
            readback=self.readbacks.get(tool_def.name),
            label=call.tool_call_id,
        )
        if _is_signal(outcome):
            raise _SIGNALS[outcome[_RAISED]](**outcome["with"])
        return _returned(outcome)


def _is_signal(outcome: Any) -> bool:
    return isinstance(outcome, dict) and outcome.keys() == {_RAISED, "with"}


def _is_whole(outcome: Any) -> bool:
    return isinstance(outcome, dict) and outcome.keys() == {_RETURNED}


def _returned(outcome: Any) -> Any:
    """What a tool returned, as the framework takes it: files are files again."""
    whole = _is_whole(outcome)
    # As JSON: only there is text known to stand for the bytes of a file. Half of a surrogate pair has no form in UTF-8.
    text = json.dumps(outcome[_RETURNED] if whole else {"return_value": outcome}, ensure_ascii=False)
    made = _RETURN.validate_json(text.encode(errors="replace"))
    return made if whole else made.return_value


def _asked(messages: list[ModelMessage]) -> list[dict[str, Any]]:
    """What the model is shown of a conversation, without what differs between two drives of one run."""
    dumped = ModelMessagesTypeAdapter.dump_python(messages, mode="json")
    return [{key: _stable(message[key]) for key in _SHOWN if key in message} for message in dumped]


def _stable(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _stable(item) for key, item in value.items() if key not in _VOLATILE}
    return [_stable(item) for item in value] if isinstance(value, list) else value
