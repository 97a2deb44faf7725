"""What a durable run refuses, how often it is resumed, and what it keeps of secrets. run-journal.md, section 4."""

from __future__ import annotations

import asyncio
import gc
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.run_journal.forms import Form, Killed, Tool, drive, interrupt, killed_after

from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalConflictError,
    JournalCorruptError,
    ReplayDivergenceError,
    ResumeBudgetExhaustedError,
    TurnSuspended,
    UncertainEffectError,
)
from turn_journal_runtime.run_journal import (
    KIND_TOOL_CALL,
    KIND_TOOL_RESULT,
    AsyncDurableRun,
    AsyncTurnContext,
    DurableRun,
    JournalEvent,
    RunJournal,
    TurnContext,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_turn_context_is_the_durable_run() -> None:
    assert (TurnContext, AsyncTurnContext) == (DurableRun, AsyncDurableRun)


# Refusals


def test_arguments_that_cannot_be_recorded_are_refused_before_the_tool_runs(form: Form, journal: RunJournal) -> None:
    tool = Tool()
    with pytest.raises(InvalidJournalError, match="keys are text"):
        drive(form, journal, "r", lambda run: run.tool("t", {"a": {1: 2}}, tool))
    assert (tool.calls, journal.events("r")) == ([], [])


@pytest.mark.parametrize("value", [object(), lambda: None, [{"deep": object().__str__}]])
def test_arguments_that_no_replay_would_know_again_are_refused(form: Form, journal: RunJournal, value: Any) -> None:
    """`<object object at 0x7f…>` is another text in every process."""
    tool = Tool()
    for step in (
        lambda run: run.tool("t", {"x": value}, tool),
        lambda run: run.model(tool, request={"x": value}),
        lambda run: run.approval("Go?", {"x": value}),
    ):
        with pytest.raises(InvalidJournalError, match="its address in memory") as caught:
            drive(form, journal, "r", step)
        assert str(caught.value.details["path"]).startswith("$.")
        assert caught.value.details["reason"] == "has_address"
    assert (tool.calls, journal.events("r")) == ([], [])


def test_text_with_an_address_is_text_and_a_value_with_a_text_of_its_own_is_known_again(
    form: Form, journal: RunJournal
) -> None:
    args = {"text": "crashed at 0xdeadbeef", "id": uuid.UUID(int=7), "kinds": {KIND_TOOL_CALL}}

    async def loop(run: Any) -> Any:
        # A result is what it was recorded as, whatever that is.
        return await run.tool("t", args, lambda **_: object())

    with pytest.raises(Killed):
        drive(form, journal, "r", lambda run: killed_after(loop(run)))
    assert "object object at" in drive(form, journal, "r", loop)


def test_a_result_that_cannot_be_recorded_says_that_the_tool_has_run(form: Form, journal: RunJournal) -> None:
    tool = Tool({1: "one key", "1": "as another one"})
    with pytest.raises(InvalidJournalError, match="has run and its result cannot be recorded"):
        drive(form, journal, "r", lambda run: run.tool("t", {}, tool))
    assert [step.tool for step in journal.uncertain("r")] == ["t"]
    with pytest.raises(UncertainEffectError, match="its result cannot be recorded"):
        drive(form, journal, "r", lambda run: run.tool("t", {}, tool))


def test_an_async_function_in_the_sync_form_is_refused(journal: RunJournal) -> None:
    async def tool() -> int:
        return 1

    with pytest.raises(InvalidJournalError, match="AsyncDurableRun"), DurableRun(journal, "r") as run:
        _ = run.model(tool)


@pytest.mark.parametrize("name", ["", None, 7])
def test_a_tool_has_a_name(form: Form, journal: RunJournal, name: Any) -> None:
    with pytest.raises(InvalidJournalError):
        drive(form, journal, "r", lambda run: run.tool(name, {}, Tool()))


def test_a_drive_that_has_ended_takes_no_step(form: Form, journal: RunJournal) -> None:
    kept: list[Any] = []

    async def loop(run: Any) -> None:
        kept.append(run)

    drive(form, journal, "r", loop)
    with pytest.raises(JournalConflictError, match="has ended"):
        asyncio.run(kept[0].iteration(0))


def test_steps_begin_a_drive_by_themselves(journal: RunJournal) -> None:
    run = DurableRun(journal, "r")
    assert run.tool("t", {}, Tool(1)) == 1
    assert journal.interrupted_runs() == []
    run.release()
    assert journal.interrupted_runs() == ["r"]


# Resumes


def test_resumes_are_counted_and_bounded_and_other_runs_go_on(form: Form, any_journal: RunJournal) -> None:
    tool = Tool()
    for _ in range(4):
        interrupt(form, any_journal, "r", lambda run: run.iteration(0))

    async def loop(run: Any) -> None:
        await run.iteration(0)
        await run.tool("t", {}, tool)

    with pytest.raises(ResumeBudgetExhaustedError) as caught:
        drive(form, any_journal, "r", loop, max_resumes=3)
    assert (tool.calls, caught.value.details) == ([], {"run_id": "r", "resumes": 3, "max_resumes": 3})
    drive(form, any_journal, "other", loop, max_resumes=3)
    assert any_journal.interrupted_runs() == ["r"]
    drive(form, any_journal, "r", loop, max_resumes=4)
    assert len(tool.calls) == 2


def test_twenty_resumes_are_the_default(form: Form, journal: RunJournal) -> None:
    for _ in range(21):
        interrupt(form, journal, "r", lambda run: run.iteration(0))
    with pytest.raises(ResumeBudgetExhaustedError):
        drive(form, journal, "r", lambda run: run.iteration(0))


def test_resuming_what_was_recorded_without_a_driver_counts(form: Form, journal: RunJournal) -> None:
    journal.open_run("r")
    from turn_journal_runtime.run_journal import KIND_ITERATION, JournalEvent

    journal.append(JournalEvent("r", 0, KIND_ITERATION, {"index": 0}))
    with pytest.raises(ResumeBudgetExhaustedError):
        drive(form, journal, "r", lambda run: run.iteration(0), max_resumes=0)


def test_a_resume_counts_whatever_the_drive_before_it_ended_with(form: Form, journal: RunJournal) -> None:
    """Only one that waited for a decision, and was not driven since, is no recovery."""

    async def asking(run: Any, dies: bool = True) -> None:
        await run.approval("Go?")
        if dies:
            raise Killed

    with pytest.raises(TurnSuspended):
        drive(form, journal, "r", asking, max_resumes=0)
    journal.approve("r", 0, "yes", by="me")
    with pytest.raises(Killed):
        drive(form, journal, "r", asking, max_resumes=0)
    with pytest.raises(ResumeBudgetExhaustedError):
        drive(form, journal, "r", asking, max_resumes=0)

    with pytest.raises(TurnSuspended):
        drive(form, journal, "killed", asking, max_resumes=0)
    journal.approve("killed", 0, "yes", by="me")
    run = DurableRun(journal, "killed", max_resumes=0)
    assert run.approval("Go?") == "yes"
    del run  # as by SIGKILL: it could say nothing
    gc.collect()
    with pytest.raises(ResumeBudgetExhaustedError):
        drive(form, journal, "killed", asking, max_resumes=0)

    interrupt(form, journal, "s", lambda run: run.iteration(0))
    with pytest.raises(ReplayDivergenceError):
        drive(form, journal, "s", lambda run: run.iteration(1), max_resumes=1)
    with pytest.raises(ResumeBudgetExhaustedError):
        drive(form, journal, "s", lambda run: run.iteration(0), max_resumes=1)


# Redaction


def test_redaction_spares_the_loop_and_the_tool_and_replay_still_matches(form: Form, path: Path) -> None:
    def redact(payload: Any) -> Any:
        if isinstance(payload, dict):
            return {key: "***" if key == "token" else redact(value) for key, value in payload.items()}
        return [redact(item) for item in payload] if isinstance(payload, list) else payload

    tool = Tool({"token": "out-s3cret", "n": 1})

    async def loop(run: Any) -> list[Any]:
        return [
            await run.tool("t", {"token": "in-s3cret", "n": 1}, tool),
            await run.model(Tool({"token": "model-s3cret"}), request={"token": "key-s3cret", "prompt": "p"}),
        ]

    with RunJournal(path.with_name("redacted.db"), redact=redact) as journal:
        interrupt(form, journal, "r", loop)
        assert tool.calls == [{"token": "in-s3cret", "n": 1}]
        assert tool.keys == ["r:0:t"]
        assert drive(form, journal, "r", loop) == [{"token": "***", "n": 1}, {"token": "***"}]
        assert len(tool.calls) == 1
    assert not [file for file in path.parent.iterdir() if file.is_file() and b"s3cret" in file.read_bytes()]


@pytest.mark.parametrize("put", [{}, {"result": "***"}])
@pytest.mark.parametrize(
    ("name", "given", "step"),
    [
        ("now", {}, lambda run: run.now()),
        ("random", {}, lambda run: run.random()),
        ("uuid", {}, lambda run: run.uuid()),
        ("sleep", {"seconds": 3600.0}, lambda run: run.sleep(3600)),
        ("sleep_until", {"until": 5.0}, lambda run: run.sleep_until(5)),
    ],
)
def test_a_value_that_redact_would_change_is_refused_and_one_that_is_not_on_record_is_no_value(
    form: Form, path: Path, name: str, given: dict[str, Any], step: Any, put: dict[str, Any]
) -> None:
    def redact(payload: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in payload.items() if key != "result"} | (put if "result" in payload else {})

    with RunJournal(path, redact=redact) as journal, RunJournal(path) as other:
        with pytest.raises(InvalidJournalError, match="leave the `result` of now, random, uuid and sleeps"):
            drive(form, journal, "r", step)
        assert journal.events("r") == []
        # What was recorded before that was refused.
        for result in ({}, {"result": None}, {"result": True}):
            other.append(JournalEvent("r", 0, KIND_TOOL_RESULT, {"name": name, **given, **result}))
            with pytest.raises(JournalCorruptError, match=rf"no value at step 0 \({name}\)") as caught:
                drive(form, journal, "r", step)
            assert caught.value.details == {"run_id": "r", "seq": 0, "kind": KIND_TOOL_RESULT}


def steps_of_all_kinds() -> Any:
    async def fails() -> None:
        raise ValueError("no")

    async def loop(run: Any) -> list[Any]:
        with suppress(Exception):
            await run.tool("fail", {}, fails)
        return [
            await run.tool("t", {"n": 1}, Tool(1)),
            await run.model(Tool("m"), request={"prompt": "p"}),
            await run.approval("Go?", {"n": 1}),
            await run.iteration(3),
            await run.verification("v", True),
            await run.now(),
            await run.random(),
            await run.uuid(),
            await run.sleep(0),
            await run.sleep_until(5),
        ]

    return loop


@pytest.mark.parametrize(
    "taken", ["", "message", "error_type", "name", "args", "question", "binds", "request", "index"]
)
def test_a_redact_may_take_keys_out_and_add_some(form: Form, path: Path, taken: str) -> None:
    def redact(payload: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in payload.items() if key != taken} | {"by": "us"}

    loop = steps_of_all_kinds()
    with RunJournal(path, redact=redact) as journal:
        with pytest.raises(TurnSuspended):
            drive(form, journal, "r", loop)
        journal.approve("r", 3, "yes", by="ann")
        assert drive(form, journal, "r", loop)[:3] == [1, "m", "yes"]
        assert drive(form, journal, "r", loop)[2] == "yes"
        assert all("by" in event.payload for event in journal.events("r"))
