"""Real hosts in whole turns: functions, programs and agents, their sessions, and a turn that is cancelled."""

from __future__ import annotations

import asyncio
import sys
import threading
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.hosts.fake_agent import SESSION
from tests.process.hosts.harness import PROGRAM, is_gone
from tests.process.hosts.test_agent_hosts import ANSWER, WORK, Bench
from tests.python.turns.world import AGENT, GOAL, RESULT, TODO, Turn

from turn_journal_runtime.hosts import CallableHost, SubprocessHost
from turn_journal_runtime.turns import HostAdapter, aio, give_up_turn

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Eventually


pytestmark = pytest.mark.process


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def turn(request: pytest.FixtureRequest, root: Path | str) -> Turn:
    return Turn(root, is_async=request.param)


def program(mode: str, *arguments: str, timeout: float = 60.0) -> SubprocessHost:
    return SubprocessHost([sys.executable, "-S", str(PROGRAM), mode, *arguments], timeout=timeout)


def test_a_program_does_a_turn(turn: Turn) -> None:
    done = turn.run(program("echo"), host_input={"prompt": "hello"})
    assert done.ok
    assert done.result is not None
    assert done.result["request"]["input"] == {"prompt": "hello"}
    assert done.result["request"]["turn_key"] == done.turn_key


def test_a_program_that_reports_its_session_gets_it_back(turn: Turn) -> None:
    failed = turn.run(program("fails"))
    assert (failed.failure_kind, "host_recovery" in turn.journal) == ("rate_limited", True)
    binding = {"schema_version": "loopx_turn_session_binding_v0", "goal_id": GOAL, "agent_id": AGENT, "todo_id": TODO}
    resolver = lambda envelope: {**binding, "session_id": "s-9"}  # noqa: E731
    done = turn.run(program("echo"), retry_failed=True, session_binding_resolver=resolver)
    assert done.result is not None
    assert done.result["request"]["session"]["id"] == "s-9"
    assert done.result["request"]["attempt"] == 2


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_an_agent_that_failed_is_resumed_in_its_session(agent: str, turn: Turn, tmp_path: Path) -> None:
    bench = Bench(agent, tmp_path / "bench")
    failed = turn.run(bench.host(*WORK, ["die"]), host_input="Do the work.")
    assert failed.failure_kind == "transport_lost"
    done = turn.run(bench.host(*WORK, ["message", ANSWER], ["complete"]), host_input="Do the work.", retry_failed=True)
    assert (done.status, done.result, done.attempts) == (
        "committed",
        {"result_kind": "validated_completion", "n": 7},
        2,
    )
    first, second = bench.asked()
    assert (SESSION in first["argv"], SESSION in second["argv"]) == (False, True)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_an_agent_that_had_answered_is_not_started_again(agent: str, turn: Turn, tmp_path: Path) -> None:
    bench = Bench(agent, tmp_path / "bench")

    class Unlucky:
        """The agent answers, and the driver dies before it hears of it."""

        def __init__(self, host: HostAdapter) -> None:
            self.host = host

        def __getattr__(self, name: str) -> Any:
            return getattr(self.host, name)

        def execute(self, request: Any) -> Any:
            self.host.execute(request)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        turn.run(Unlucky(bench.host(*WORK, ["message", ANSWER], ["complete"])), host_input="Do the work.")
    done = turn.run(bench.host(["die"]), host_input="Do the work.")
    assert (done.status, len(bench.asked())) == ("committed", 1)


@pytest.mark.parametrize("when", ["at its start", "in its middle"])
def test_a_cancelled_turn_ends_its_program_frees_its_lease_and_is_resumed(
    when: str, root: Path | str, tmp_path: Path
) -> None:
    turn = Turn(root, is_async=True)
    notes = tmp_path / "pids"

    async def cancel() -> None:
        host = program("family", str(notes))
        task = asyncio.create_task(aio.run_turn(turn.root, goal_id=GOAL, agent_id=AGENT, todo_id=TODO, host=host))
        pids = 3 if when == "in its middle" else 1
        while not notes.exists() or len(notes.read_text().split()) < pids:  # noqa: ASYNC110 - a file tells
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        # By now nothing works on the turn any more.
        assert all(is_gone(int(pid)) for pid in notes.read_text().split())
        assert not turn.is_driven

    asyncio.run(cancel())
    assert turn.run(CallableHost(lambda context: dict(RESULT))).attempts == 2


def test_a_program_whose_turn_was_given_up_is_ended_and_leaves_no_failure(
    turn: Turn, tmp_path: Path, eventually: Eventually
) -> None:
    notes, raised = tmp_path / "pids", []

    def drive() -> None:
        try:
            turn.run(program("family", str(notes), timeout=600))
        except BaseException as error:
            raised.append(error)

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TURN_JOURNAL_TURN_LEASE", "3")
        thread = threading.Thread(target=drive)
        thread.start()
        eventually(lambda: notes.exists() and len(notes.read_text().split()) == 3, 60)
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "todo_id": TODO}
    assert give_up_turn(turn.root, **names, reason="obsolete", by="anna", take_over=True).changed
    thread.join(60)  # long before it would have answered
    assert not thread.is_alive()
    assert all(is_gone(int(pid)) for pid in notes.read_text().split())
    assert [getattr(error, "kind", error) for error in raised] == ["turn_lease_lost"]
    assert (turn.journal["status"], turn.journal["reason"]) == ("failed", "obsolete")
    assert "host_failure" not in turn.journal


def test_a_cancelled_turn_waits_for_what_runs_in_a_thread(root: Path | str) -> None:
    turn = Turn(root, is_async=True)
    sent: list[str] = []

    async def cancel() -> None:
        loop, sending, go_on = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()

        def send(effect_ref: str, payload: Any) -> None:
            loop.call_soon_threadsafe(sending.set)
            asyncio.run_coroutine_threadsafe(go_on.wait(), loop).result(60)
            sent.append(effect_ref)

        host = CallableHost(lambda context: dict(RESULT))
        task = asyncio.create_task(
            aio.run_turn(turn.root, goal_id=GOAL, agent_id=AGENT, todo_id=TODO, host=host, writeback=send)
        )
        await sending.wait()
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()
        assert turn.is_driven
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(sent) == 1
        assert not turn.is_driven

    asyncio.run(cancel())


def test_a_function_may_take_the_request_as_well(turn: Turn) -> None:
    def with_request(context: Any, request: Any, *, more: int = 1) -> dict[str, Any]:
        return {**RESULT, "input": request.input, "run": context.run_id}

    class Agent:
        async def __call__(self, context: Any) -> dict[str, Any]:
            return {**RESULT, "run": context.run_id}

    done = turn.run(CallableHost(with_request), host_input="x")
    assert done.result == {**RESULT, "input": "x", "run": done.turn_key}
    other = turn.run(CallableHost(Agent()), todo_id="other")
    assert other.result == {**RESULT, "run": other.turn_key}
