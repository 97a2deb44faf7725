"""Traces, metrics and logs of what this package does, for those who already have them.

Nothing is imported for it. Where the process has loaded OpenTelemetry, each call of the core, each turn and each tool,
model or sleep step of a run is a span, and each call is measured; the core's own work appears under the call that
asked for it, in the same trace. Where it has not, nothing happens. What is logged goes to the logger
`turn_journal_runtime` at DEBUG, so that it is off until somebody turns it on; its fields are in the record's
`turn_journal`.

Spans, metrics and logs carry names of methods, goals, turns, runs, tools and errors: no journals, arguments or results.
"""

from __future__ import annotations

import sys
import time
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeVar

from .errors import TurnJournalError

if TYPE_CHECKING:
    from collections.abc import Generator

__all__ = ["CALL_DURATION", "LOGGER", "TRACER", "observed_call", "observed_step", "observed_turn"]

A = TypeVar("A")
T = TypeVar("T")

#: The name of the logger.
LOGGER: Final = "turn_journal_runtime"
#: The name of the tracer and the meter.
TRACER: Final = "turn_journal_runtime"
#: A histogram of the seconds that a call of the core took, by method and outcome.
CALL_DURATION: Final = "turn_journal.call.duration"

#: An answer, and no failure of the call: every new turn begins with a look for one that is not there.
_NOT_FOUND: Final = "journal_not_found"
#: What ends a span early and is no failure, either: a run inside of a step waits for a person.
_NO_FAILURES: Final = frozenset((_NOT_FOUND, "turn_suspended"))
#: Asks the core to say what it did.
_TRACED: Final = b'"trace":true,'


def observed_call(method: str, exchange: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    """An exchange with the core that is also traced, measured and logged where the process has what it takes."""
    if "opentelemetry.trace" in sys.modules or _logger() is not None:
        return _observed_call(method, exchange)
    return exchange


def observed_turn(
    flow: Generator[Any, Any, T], *, goal_id: str, agent_id: str, turn_key: str
) -> Generator[Any, Any, T]:
    """A drive of a turn as a span, under which its calls of the core appear."""
    if "opentelemetry.trace" in sys.modules or _logger() is not None:
        return _observed_turn(
            flow,
            {
                "turn_journal.goal_id": goal_id,
                "turn_journal.agent_id": agent_id,
                "turn_journal.turn_key": turn_key,
            },
        )
    return flow


def observed_step(
    step: Generator[A, Any, T], kind: str, run_id: str, seq: int, tool: str | None = None
) -> Generator[A, Any, T]:
    """A step of a run as a span, current while its function runs. One that is on record does nothing, and is none: the
    trace of a resumed run shows what was done in it."""
    return _observed_step(step, kind, run_id, seq, tool) if "opentelemetry.trace" in sys.modules else step


def _observed_step(
    step: Generator[A, Any, T], kind: str, run_id: str, seq: int, tool: str | None
) -> Generator[A, Any, T]:
    try:
        action = next(step)
    except StopIteration as end:
        recorded: T = end.value
        return recorded
    from opentelemetry import context

    trace: Any = sys.modules["opentelemetry.trace"]
    attributes: dict[str, str | int] = {"turn_journal.run_id": run_id, "turn_journal.seq": seq}
    if tool is not None:
        attributes["turn_journal.tool"] = tool
    span = trace.get_tracer(TRACER).start_span(f"turn_journal {kind}", attributes=attributes)
    token = context.attach(trace.set_span_in_context(span))
    try:
        while True:
            try:
                outcome = yield action
            except BaseException as error:
                action = step.throw(error)
            else:
                action = step.send(outcome)
    except StopIteration as end:
        value: T = end.value
        return value
    except Exception as error:
        _fail(trace, span, error.kind if isinstance(error, TurnJournalError) else type(error).__name__)
        raise
    finally:
        context.detach(token)
        span.end()


def _observed_call(method: str, exchange: Generator[Any, Any, T]) -> Generator[Any, Any, T]:
    trace = sys.modules.get("opentelemetry.trace")
    attributes = {"rpc.system": "jsonrpc", "rpc.method": method}
    span: Any = None
    if trace is not None:
        tracer = trace.get_tracer(TRACER)
        span = tracer.start_span(f"turn_journal {method}", kind=trace.SpanKind.CLIENT, attributes=attributes)
    recording = span is not None and span.is_recording()
    begun = time.perf_counter()
    outcome = "cancelled"
    try:
        question = next(exchange)
        while True:
            if recording:
                connection, request, deadline = question
                question = (connection, _TRACED + request, deadline)
            answer = yield question
            if recording and isinstance(answer, dict):
                _add_spans(trace, span, answer)
            question = exchange.send(answer)
    except StopIteration as end:
        outcome = "ok"
        value: T = end.value
        return value
    except Exception as error:
        outcome = error.kind if isinstance(error, TurnJournalError) else type(error).__name__
        if span is not None:
            _fail(trace, span, outcome)
        raise
    finally:
        exchange.close()
        seconds = time.perf_counter() - begun
        if span is not None:
            span.end()
        if "opentelemetry.metrics" in sys.modules:
            _call_duration().record(seconds, {"rpc.method": method, "outcome": outcome})
        _log(f"{method}: {outcome}", event="call", method=method, outcome=outcome, seconds=seconds)


def _observed_turn(flow: Generator[Any, Any, T], attributes: dict[str, str]) -> Generator[Any, Any, T]:
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        logged: T = yield from _logged_turn(flow, attributes, None, None)
        return logged
    from opentelemetry import context

    span = trace.get_tracer(TRACER).start_span("turn_journal turn", attributes=attributes)
    # The flow is driven by one thread or task to its end, so that what is attached here is in force between its steps.
    token = context.attach(trace.set_span_in_context(span))
    try:
        result: T = yield from _logged_turn(flow, attributes, trace, span)
        return result
    finally:
        context.detach(token)
        span.end()


def _logged_turn(flow: Generator[Any, Any, T], attributes: dict[str, str], trace: Any, span: Any) -> Any:
    status = "cancelled"
    try:
        result = yield from flow
        status = str(getattr(result, "status", "done"))
        if span is not None:
            span.set_attribute("turn_journal.status", status)
        return result
    except Exception as error:
        status = error.kind if isinstance(error, TurnJournalError) else type(error).__name__
        if span is not None:
            _fail(trace, span, status)
        raise
    finally:
        fields = {name.removeprefix("turn_journal."): value for name, value in attributes.items()}
        _log(f"turn {attributes['turn_journal.turn_key']}: {status}", event="turn", outcome=status, **fields)


def _fail(trace: Any, span: Any, kind: str) -> None:
    """Marks a span as failed, with the error's kind; messages may name paths, and stay in the process."""
    span.set_attribute("error.type", kind)
    if kind not in _NO_FAILURES:
        span.set_status(trace.Status(trace.StatusCode.ERROR, kind))


def _add_spans(trace: Any, span: Any, answer: dict[str, Any]) -> None:
    """What the core says it did, under the call that asked for it."""
    recorded = answer.get("spans")
    if not isinstance(recorded, list):
        return
    failed = _kind_of(answer.get("error")) != _NOT_FOUND
    tracer = trace.get_tracer(TRACER)
    contexts: list[Any] = []
    for one in recorded:
        parent = one["parent"]
        context = trace.set_span_in_context(span) if parent is None else contexts[parent]
        made = tracer.start_span(
            one["name"],
            context=context,
            kind=trace.SpanKind.SERVER if parent is None else trace.SpanKind.INTERNAL,
            start_time=int(one["start"]),
        )
        contexts.append(trace.set_span_in_context(made))
        if failed and not one["ok"]:
            made.set_status(trace.Status(trace.StatusCode.ERROR))
        made.end(end_time=int(one["end"]))


def _kind_of(error: Any) -> Any:
    """The kind of an error as it stands on the wire, however odd."""
    data = error.get("data") if isinstance(error, dict) else None
    return data.get("kind") if isinstance(data, dict) else None


@cache
def _call_duration() -> Any:
    metrics = sys.modules["opentelemetry.metrics"]
    return metrics.get_meter(TRACER).create_histogram(
        CALL_DURATION, unit="s", description="How long a call of the core took, by method and outcome."
    )


def _logger() -> Any:
    """The logger, when somebody listens; None otherwise."""
    logging = sys.modules.get("logging")
    if logging is None:
        return None
    logger = _named_logger()
    return logger if logger.isEnabledFor(logging.DEBUG) else None


@cache
def _named_logger() -> Any:
    return sys.modules["logging"].getLogger(LOGGER)


def _log(message: str, **fields: Any) -> None:
    logger = _logger()
    if logger is not None:
        logger.debug(message, extra={"turn_journal": fields})
