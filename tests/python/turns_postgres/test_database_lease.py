"""One driver per turn on many hosts: a lease by the database's clock, kept while the turn is driven, and its loss."""

from __future__ import annotations

import asyncio
import os
import pickle
import subprocess
import sys
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.hosts.harness import PROGRAM
from tests.python.turns.world import AGENT, GOAL, RESULT, TODO, Ledger, ReadableLedger, ScriptedHost, Turn, rate_limited

from turn_journal_runtime import ChatRuntime, SessionStore
from turn_journal_runtime.bridge import AsyncRuntimeClient, RuntimeClient, default_async_client, default_client
from turn_journal_runtime.errors import JournalConflictError, StoreUnavailableError, TurnBusyError
from turn_journal_runtime.flow import run
from turn_journal_runtime.hosts import CallableHost, SubprocessHost
from turn_journal_runtime.turns import aio, recoverable_turns, run_turn
from turn_journal_runtime.turns.root import open_root

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Eventually

pytestmark = pytest.mark.process

#: Seconds that a lease lasts where its end is waited for, and where it is not to end: a busy machine may be late with
#: renewals.
LEASE, LONG_LEASE = 3.0, 60.0


@pytest.fixture(autouse=True)
def _leases(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    lease = LEASE if "short_leases" in request.fixturenames else LONG_LEASE
    monkeypatch.setenv("TURN_JOURNAL_TURN_LEASE", str(lease))
    monkeypatch.setenv("TURN_JOURNAL_RUN_LEASE", str(lease / 2))


@pytest.fixture
def short_leases() -> None:
    """For tests that wait until a lease has ended, or is renewed."""


@pytest.fixture(params=[False, True], ids=["sync", "async"])
def turn(request: pytest.FixtureRequest, database: str) -> Turn:
    return Turn(database, is_async=request.param)


def test_the_second_driver_is_told_of_the_first_and_of_the_end_of_its_lease(turn: Turn) -> None:
    told: list[TurnBusyError] = []

    def work(request: Any) -> dict[str, Any]:
        with pytest.raises(TurnBusyError) as raised:
            run_turn(turn.root, goal_id=GOAL, agent_id=AGENT, todo_id=TODO, host=ScriptedHost())
        told.append(raised.value)
        return dict(RESULT)

    assert turn.run(ScriptedHost(work)).ok
    details = told[0].details
    assert (details["pid"], details["number"]) == (os.getpid(), 1)
    assert details["since"] < details["until"] < details["since"] + LONG_LEASE + 60
    assert f"process {os.getpid()} on {details['host']}" in str(told[0])
    assert pickle.loads(pickle.dumps(told[0])).details == details  # noqa: S301
    assert not turn.is_driven


@pytest.mark.usefixtures("short_leases")
def test_a_lease_lasts_as_long_as_the_host_works_also_when_it_holds_up_the_event_loop(turn: Turn) -> None:
    def work(request: Any) -> dict[str, Any]:
        for _ in range(5):
            time.sleep(LEASE / 4)
            assert turn.is_driven
        return dict(RESULT)

    async def work_in_the_loop(context: Any) -> dict[str, Any]:
        return work(context)

    host = CallableHost(work_in_the_loop) if turn.is_async else ScriptedHost(work)
    assert turn.run(host).ok
    assert not turn.is_driven


@pytest.mark.usefixtures("short_leases")
def test_a_driver_that_dies_frees_the_turn_when_its_lease_ends(database: str, eventually: Eventually) -> None:
    code = (
        "import sys, time\n"
        "from turn_journal_runtime import CallableHost, run_turn\n"
        "def work(turn):\n    print('at work', flush=True)\n    time.sleep(60)\n"
        f"run_turn({database!r}, goal_id={GOAL!r}, agent_id={AGENT!r}, todo_id={TODO!r}, host=CallableHost(work))\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"at work\n"
        turn = Turn(database, is_async=False)
        assert turn.is_driven
        child.kill()
        child.wait()
    with pytest.raises(TurnBusyError) as raised:
        turn.run(ScriptedHost())
    assert raised.value.details["pid"] == child.pid
    assert recoverable_turns(database) == []
    eventually(lambda: recoverable_turns(database), LEASE + 30)
    assert turn.run(CallableHost(lambda context: dict(RESULT))).attempts == 2


def test_a_driver_that_lost_its_turn_is_told_at_its_next_write_and_does_nothing_more(turn: Turn) -> None:
    sent = ReadableLedger()

    def lose_the_turn(request: Any) -> dict[str, Any]:
        with turn.leased() as number:
            assert number == 2
        return dict(RESULT)

    with pytest.raises(JournalConflictError) as raised:
        turn.run(ScriptedHost(lose_the_turn), writeback=sent)
    assert (raised.value.kind, sent.applied) == ("turn_lease_lost", [])
    assert turn.journal["completed_phases"] == []
    assert turn.run(ScriptedHost(), writeback=sent).attempts == 2
    assert len(sent.applied) == 1


@pytest.mark.usefixtures("short_leases")
def test_a_program_whose_turn_was_taken_over_is_ended_and_leaves_no_failure(
    turn: Turn, tmp_path: Path, eventually: Eventually
) -> None:
    notes, raised = tmp_path / "pids", []
    host = SubprocessHost([sys.executable, "-S", str(PROGRAM), "family", str(notes)], timeout=60)

    def drive() -> None:
        try:
            turn.run(host)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    eventually(lambda: notes.exists() and len(notes.read_text().split()) == 3, 60)
    before = turn.journal
    begun = time.monotonic()
    with turn.leased():
        thread.join(60)
    # It is ended at the next renewal, and not when it would have answered.
    assert time.monotonic() - begun < 30
    assert [getattr(error, "kind", error) for error in raised] == ["turn_lease_lost"]
    assert turn.journal == before
    assert turn.run(ScriptedHost()).attempts == 2


class CutOff(RuntimeClient):
    """A client that does not reach the database, once it is told so."""

    def __init__(self) -> None:
        super().__init__()
        self.is_cut = False

    def call(self, method: str, params: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
        if self.is_cut:
            raise StoreUnavailableError("nobody there", kind="store_unavailable")
        return default_client().call(method, params, timeout=timeout)


@pytest.mark.usefixtures("short_leases")
def test_a_program_of_a_driver_that_is_cut_off_ends_when_the_lease_has_run_out(
    database: str, tmp_path: Path, eventually: Eventually
) -> None:
    notes, raised, client = tmp_path / "pids", [], CutOff()
    host = SubprocessHost([sys.executable, "-S", str(PROGRAM), "family", str(notes)], timeout=60)
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "todo_id": TODO}

    def drive() -> None:
        try:
            run_turn(database, **names, host=host, client=client)
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=drive)
    thread.start()
    eventually(lambda: notes.exists() and len(notes.read_text().split()) == 3, 60)
    client.is_cut = True
    thread.join(60)
    assert [getattr(error, "kind", error) for error in raised] == ["turn_lease_lost"]
    assert "could not be reached" in str(raised[0])
    assert Turn(database, is_async=False).run(ScriptedHost()).attempts == 2


@pytest.mark.usefixtures("short_leases")
def test_an_effect_waits_for_an_answer_when_the_lease_was_not_renewed_in_time(database: str) -> None:
    client, sent = CutOff(), Ledger()

    def cut(result: Any) -> bool:
        client.is_cut = True
        time.sleep(LEASE * 1.2)
        client.is_cut = False
        return True

    # Nobody took the turn meanwhile: it goes on.
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "todo_id": TODO}
    done = run_turn(database, **names, host=ScriptedHost(), validate=cut, writeback=sent, client=client)
    assert (done.ok, len(sent.applied)) == (True, 1)


def test_of_many_that_ask_at_once_one_drives(database: str) -> None:
    started = threading.Barrier(6)
    results: list[Any] = []

    def work(request: Any) -> dict[str, Any]:
        time.sleep(0.5)
        return dict(RESULT)

    def drive() -> None:
        started.wait()
        try:
            results.append(Turn(database, is_async=False).run(ScriptedHost(work)).replayed)
        except TurnBusyError:
            results.append("busy")

    threads = [threading.Thread(target=drive) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results.count(False) == 1
    assert results.count("busy") + results.count(True) == 5


def test_a_cancelled_turn_is_free_at_once(database: str) -> None:
    turn = Turn(database, is_async=True)

    async def cancel() -> None:
        at_work = asyncio.Event()

        async def work(context: Any) -> dict[str, Any]:
            at_work.set()
            await asyncio.sleep(60)
            return dict(RESULT)

        task = asyncio.create_task(
            aio.run_turn(database, goal_id=GOAL, agent_id=AGENT, todo_id=TODO, host=CallableHost(work))
        )
        await at_work.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert not turn.is_driven
    assert turn.run(CallableHost(lambda context: dict(RESULT))).attempts == 2


class Unheard(AsyncRuntimeClient):
    """A client whose first acquisition of a lease is made, and never answered."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = asyncio.Event()

    async def call(self, method: str, params: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:  # noqa: ASYNC109
        answer = await default_async_client().call(method, params, timeout=timeout)
        if method == "turn_lease.acquire" and not self.asked.is_set():
            self.asked.set()
            await asyncio.sleep(60)
        return answer


def test_a_lease_whose_drive_is_cancelled_before_it_hears_of_it_is_free_at_once(
    database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURN_JOURNAL_TURN_LEASE", "60")
    turn = Turn(database, is_async=True)
    assert turn.run(ScriptedHost(rate_limited())).status == "failed"

    async def cancel() -> None:
        client = Unheard()
        names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "todo_id": TODO}
        task = asyncio.create_task(aio.run_turn(database, **names, host=ScriptedHost(), client=client))
        await client.asked.wait()
        assert turn.is_driven
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert not turn.is_driven


def test_a_session_is_known_to_every_host(database: str) -> None:
    bindings = open_root(database, default_client()).bindings
    client = default_client()
    assert run(bindings.read(GOAL, "line"), client) is None
    for session_id in ("s-1", "s-2"):
        bindings.write(GOAL, "line", {"session_id": session_id})
        assert run(bindings.read(GOAL, "line"), client) == {"session_id": session_id}
    assert run(bindings.read("another", "line"), client) is None
    run(bindings.remove(GOAL, "line"), client)
    assert run(bindings.read(GOAL, "line"), client) is None


def test_a_conversation_has_its_turns_in_the_database(database: str, tmp_path: Path) -> None:
    def answer(context: Any, request: Any) -> dict[str, Any]:
        request.on_session("s-1")
        return {**RESULT, "text": request.input["message"].upper(), "session": request.session["action"]}

    with (
        closing(SessionStore(tmp_path / "chat.db")) as store,
        ChatRuntime(store, lambda session: CallableHost(answer), runtime_root=database) as chat,
    ):
        session = chat.open_session(work_dir=str(tmp_path), objective="talk")
        said = [chat.submit_turn(session.session_id, text, text).wait(60).result or {} for text in ("a", "b")]
        # Who drives the conversation is noted beside the store, on this machine.
        assert list((tmp_path / "chat-sessions").iterdir())
    # The second turn knows the session that the first one had shown.
    assert [(one["text"], one["session"]) for one in said] == [("A", "start_new"), ("B", "resume")]
