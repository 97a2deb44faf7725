"""What is seen of a turn from outside: spans, measurements and logs where the process listens, nothing where not.

Each case is a process of its own: what OpenTelemetry and logging are told stays told for the whole of one.
"""

from __future__ import annotations

import json
import subprocess
import sys
from textwrap import dedent
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pathlib import Path

_TURN = """
import json
from turn_journal_runtime import CallableHost, run_turn

def drive(root):
    return run_turn(root, goal_id="g", agent_id="a", todo_id="t", host=CallableHost(lambda turn: SECRET))

SECRET = {"result_kind": "validated_progress", "note": "marker-in-a-result"}
"""

_LISTENING = """
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([reader]))

def spans():
    found = exporter.get_finished_spans()
    names = {span.context.span_id: span.name for span in found}
    return [
        {
            "name": span.name,
            "parent": names.get(span.parent.span_id) if span.parent else None,
            "trace": span.context.trace_id,
            "kind": span.kind.name,
            "ok": span.status.is_ok,
            "attributes": dict(span.attributes),
            "inside": [span.start_time, span.end_time],
        }
        for span in found
    ]
"""


def _run(script: str, folder: Path) -> Any:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script], capture_output=True, text=True, cwd=folder, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "marker-in-a-result" not in done.stdout + done.stderr
    return json.loads(done.stdout)


def test_a_turn_is_one_trace_from_the_call_through_the_core(tmp_path: Path) -> None:
    spans = _run(_LISTENING + _TURN + 'drive("turns")\nprint(json.dumps(spans()))', tmp_path)
    assert len({span["trace"] for span in spans}) == 1
    (turn,) = [span for span in spans if span["name"] == "turn_journal turn"]
    assert turn["parent"] is None
    assert turn["attributes"]["turn_journal.status"] == "committed"
    calls = [span for span in spans if span["name"] == "turn_journal turn_journal.write"]
    assert len(calls) >= 5
    assert {(call["parent"], call["kind"]) for call in calls} == {("turn_journal turn", "CLIENT")}
    in_core = [span for span in spans if span["name"] == "turn_journal.write"]
    assert len(in_core) == len(calls)
    assert {(span["parent"], span["kind"]) for span in in_core} == {("turn_journal turn_journal.write", "SERVER")}


def test_a_turn_that_is_not_there_yet_is_no_failure_in_a_trace(tmp_path: Path) -> None:
    spans = _run(_LISTENING + _TURN + 'drive("turns")\nprint(json.dumps(spans()))', tmp_path)
    (look,) = [span for span in spans if span["name"] == "turn_journal turn_journal.read"]
    assert look["attributes"]["error.type"] == "journal_not_found"
    assert [span["name"] for span in spans if not span["ok"]] == []


def test_what_the_host_traces_is_part_of_its_turn(tmp_path: Path) -> None:
    script = _LISTENING + dedent("""
        import asyncio, json
        from turn_journal_runtime import CallableHost, aio, run_turn

        def host(turn):
            with trace.get_tracer("mine").start_as_current_span("my model call"):
                return {"result_kind": "validated_progress"}

        async def async_host(turn):
            return host(turn)

        run_turn("turns", goal_id="g", agent_id="a", todo_id="t1", host=CallableHost(host))
        asyncio.run(aio.run_turn("turns", goal_id="g", agent_id="a", todo_id="t2", host=CallableHost(async_host)))
        asyncio.run(aio.run_turn("turns", goal_id="g", agent_id="a", todo_id="t3", host=CallableHost(host)))
        print(json.dumps(spans()))
        """)
    mine = [span["parent"] for span in _run(script, tmp_path) if span["name"] == "my model call"]
    assert mine == ["turn_journal turn"] * 3


def test_an_error_is_seen_with_its_kind_and_measured(tmp_path: Path) -> None:
    script = _LISTENING + dedent("""
        import json, pathlib
        from turn_journal_runtime import JournalCorruptError, load_turn_journal, turn_journal_path
        path = pathlib.Path(turn_journal_path("turns", goal_id="g", turn_key="k"))
        path.parent.mkdir(parents=True)
        path.write_text("{")
        try:
            load_turn_journal(path)
        except JournalCorruptError:
            pass
        (metric,) = reader.get_metrics_data().resource_metrics[0].scope_metrics[0].metrics
        points = [[metric.name, dict(point.attributes), point.count] for point in metric.data.data_points]
        print(json.dumps([spans(), points]))
        """)
    spans, points = _run(script, tmp_path)
    by_name = {span["name"]: span for span in spans}
    assert not by_name["turn_journal.read"]["ok"]
    call = by_name["turn_journal turn_journal.read"]
    assert (call["ok"], call["attributes"]["error.type"]) == (False, "journal_corrupt")
    assert points == [
        ["turn_journal.call.duration", {"rpc.method": "turn_journal.read", "outcome": "journal_corrupt"}, 1]
    ]


def test_async_turns_keep_their_traces_apart(tmp_path: Path) -> None:
    script = _LISTENING + dedent("""
        import asyncio, json
        from turn_journal_runtime import CallableHost, aio

        async def host(turn):
            await asyncio.sleep(0.05)
            return {"result_kind": "validated_progress"}

        async def drive(todo):
            return await aio.run_turn("turns", goal_id="g", agent_id="a", todo_id=todo, host=CallableHost(host))

        async def main():
            await asyncio.gather(*(drive(f"t{number}") for number in range(4)))

        asyncio.run(main())
        print(json.dumps(spans()))
        """)
    spans = _run(script, tmp_path)
    turns = [span for span in spans if span["name"] == "turn_journal turn"]
    assert len({turn["trace"] for turn in turns}) == 4
    for turn in turns:
        calls = [span for span in spans if span["trace"] == turn["trace"] and span["kind"] == "CLIENT"]
        assert len(calls) >= 5


_STEPS = """
import asyncio, json
from concurrent.futures import ThreadPoolExecutor
from turn_journal_runtime import AsyncDurableRun, DurableRun, RecordedToolError, RunJournal

def mine(name, value="marker-in-a-result"):
    with trace.get_tracer("mine").start_as_current_span(name):
        return value

def fails(**_):
    raise ValueError("marker-in-a-result")

def seen():
    found = [[s["name"], s["parent"], s["attributes"], s["ok"]] for s in spans()]
    exporter.clear()
    return found
"""


@pytest.mark.parametrize("form", ["sync", "async"])
def test_a_step_is_a_span_when_it_is_taken_and_none_when_it_is_replayed(tmp_path: Path, form: str) -> None:
    script = (
        _LISTENING
        + _STEPS
        + dedent("""
        async def loop(run, take):
            await take(run.model(mine, "ask", request={"p": "marker-in-a-result"}))
            await take(run.tool("look", {"marker-in-a-result": 1}, lambda **_: mine("looking")))
            await take(run.iteration(0))
            await take(run.sleep(0.01))

        async def drive(form, last):
            async def done(value):
                return value
            with trace.get_tracer("mine").start_as_current_span("agent"):
                if form == "sync":
                    with DurableRun(journal, "r") as run:
                        await loop(run, done)
                        run.submit(pool, "last", {}, last).result()
                else:
                    async with AsyncDurableRun(journal, "r") as run:
                        async def same(value):
                            return await value
                        await loop(run, same)
                        await asyncio.gather(run.tool("last", {}, last))

        with RunJournal("runs.db") as journal, ThreadPoolExecutor(1) as pool:
            try:
                asyncio.run(drive(FORM, fails))
            except ValueError:
                pass
            first = seen()
            journal.settle("r", 4, absent=True)
            asyncio.run(drive(FORM, lambda: mine("last one")))
            print(json.dumps([first, seen()]))
        """).replace("FORM", repr(form))
    )
    first, again = _run(script, tmp_path)
    at = {"turn_journal.run_id": "r"}
    last = {**at, "turn_journal.seq": 4, "turn_journal.tool": "last"}
    assert first == [
        ["ask", "turn_journal model", {}, True],
        ["turn_journal model", "agent", {**at, "turn_journal.seq": 0}, True],
        ["looking", "turn_journal tool", {}, True],
        ["turn_journal tool", "agent", {**at, "turn_journal.seq": 1, "turn_journal.tool": "look"}, True],
        ["turn_journal sleep", "agent", {**at, "turn_journal.seq": 3}, True],
        ["turn_journal tool", "agent", {**last, "error.type": "ValueError"}, False],
        ["agent", None, {}, False],
    ]
    assert again == [
        ["last one", "turn_journal tool", {}, True],
        ["turn_journal tool", "agent", last, True],
        ["agent", None, {}, True],
    ]


def test_steps_at_once_keep_their_spans_apart_and_one_that_waits_is_no_failure(tmp_path: Path) -> None:
    script = (
        _LISTENING
        + _STEPS
        + dedent("""
        async def slow(n):
            await asyncio.sleep(0.01 * (3 - n))
            return mine(f"work {n}")

        def asks():
            with DurableRun(journal, "inner") as inner:
                inner.approval("May I?")

        async def main():
            async with AsyncDurableRun(journal, "r") as run:
                await asyncio.gather(*(run.tool(f"t{n}", {"n": n}, slow) for n in range(3)))
                await run.tool("research", {}, asks)

        with RunJournal("runs.db") as journal:
            try:
                asyncio.run(main())
            except Exception as error:
                kind = error.kind
            print(json.dumps([kind, seen()]))
        """)
    )
    kind, found = _run(script, tmp_path)
    tools = [attributes["turn_journal.tool"] for name, _, attributes, _ in found if name == "turn_journal tool"]
    assert (kind, tools) == ("turn_suspended", ["t2", "t1", "t0", "research"])
    assert found[-1][2]["error.type"] == "turn_suspended"
    assert all(ok for *_, ok in found)


def test_without_opentelemetry_and_logging_nothing_is_loaded_or_said(tmp_path: Path) -> None:
    script = _TURN + dedent("""
        import sys
        status = drive("turns").status
        print(json.dumps([status, [name for name in sys.modules if name.split(".")[0] == "opentelemetry"]]))
        """)
    assert _run(script, tmp_path) == ["committed", []]


def test_logs_are_structured_and_off_by_default(tmp_path: Path) -> None:
    script = _TURN + dedent("""
        import logging

        records = []

        class Keep(logging.Handler):
            def emit(self, record):
                records.append(record.turn_journal)

        logging.getLogger().addHandler(Keep())
        drive("quiet")
        quiet = len(records)
        logging.getLogger("turn_journal_runtime").setLevel(logging.DEBUG)
        drive("turns")
        print(json.dumps([quiet, records]))
        """)
    quiet, records = _run(script, tmp_path)
    assert quiet == 0
    assert {(record["event"], record["outcome"]) for record in records} == {
        ("call", "ok"),
        ("call", "journal_not_found"),
        ("turn", "committed"),
    }
    assert all(record["seconds"] > 0 for record in records if record["event"] == "call")
