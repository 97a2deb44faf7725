"""Calls on a living process: late and odd answers, noise, full pipes, many callers; for threads and tasks alike."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import threading
import time
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.fakes import fake_core, logged

from turn_journal_runtime.bridge import AsyncRuntimeClient, RuntimeClient, supervisor
from turn_journal_runtime.bridge.calls import BlockingCall, Mailbox
from turn_journal_runtime.bridge.connection import Connection
from turn_journal_runtime.bridge.failures import closed
from turn_journal_runtime.bridge.pumps import PollPump, ThreadPump
from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalNotFoundError,
    ProtocolError,
    RuntimeTimeoutError,
    RuntimeUnavailableError,
    TurnJournalError,
)
from turn_journal_runtime.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Eventually

    from turn_journal_runtime.bridge.calls import Outcome

pytestmark = pytest.mark.process

#: Answers with the number it was asked with, after as many milliseconds as it was asked to wait.
ECHO = """
serve({ "runtime.info": (request) => {
  const { n, wait, text } = request.params
  const reply = () => answer(request, { ...info, pid: n ?? 0, name: text ?? "" })
  wait === undefined ? reply() : setTimeout(reply, wait)
} })
"""
#: Keeps what it is to answer late until the next call, whose answer it sends after those.
LATE = """
const kept = []
serve({ "runtime.info": (request) => {
  kept.push(request)
  if (!request.params.late) kept.splice(0).forEach((one) => answer(one, { ...info, pid: one.params.n }))
} })
"""
INSPECT = {"journal": {}, "goal_id": "g", "agent_id": "a", "turn_key": "k"}


def echo(client: RuntimeClient, number: int, **more: Any) -> int:
    """Asks for a number; the answer to another call would have another one."""
    timeout = more.pop("timeout", None)
    answer: int = client.call("runtime.info", {"n": number, **more}, timeout=timeout)["pid"]
    return answer


def echo_in_vain(client: RuntimeClient) -> None:
    with pytest.raises(RuntimeUnavailableError):
        echo(client, 1)


@pytest.fixture(params=[PollPump, ThreadPump])
def pump(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Both ways to move bytes: callers read for themselves, or a thread reads for all, as on Windows."""
    monkeypatch.setattr(supervisor, "make_pump", request.param)
    return request.param


@pytest.mark.usefixtures("pump")
def test_a_late_answer_is_dropped_and_the_client_stays_usable(tmp_path: Path) -> None:
    with RuntimeClient(core=fake_core(tmp_path, LATE)) as client:
        echo(client, 0)
        pid = client.pid
        for number in range(1, 20):
            if number % 3 == 0:
                with pytest.raises(RuntimeTimeoutError, match="is not known"):
                    echo(client, number, late=True, timeout=0.02)
            else:
                assert echo(client, number) == number
        assert client.pid == pid


@pytest.mark.usefixtures("pump")
def test_answers_in_any_order_reach_their_callers(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    with RuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
        wrong: list[tuple[int, int]] = []

        def caller(numbers: list[tuple[int, int]]) -> None:
            wrong.extend((n, got) for n, wait in numbers if (got := echo(client, n, wait=wait)) != n)

        plans = [[(who * 1000 + n, chance.randrange(4)) for n in range(20)] for who in range(16)]
        threads = [threading.Thread(target=caller, args=(plan,)) for plan in plans]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_an_answer_that_comes_twice_or_unasked_is_dropped(tmp_path: Path) -> None:
    program = """
        serve({ "runtime.info": (request) => {
          say({ id: 123456, result: {} })
          say({ id: "text", result: {} })
          say({ id: null, error: { code: -32700, message: "what?" } })
          answer(request, { ...info, pid: request.params.n })
          answer(request, { ...info, pid: -1 })
        } })
    """
    with RuntimeClient(core=fake_core(tmp_path, program)) as client:
        assert [echo(client, number) for number in range(50)] == list(range(50))


@pytest.mark.usefixtures("pump")
def test_noise_on_both_streams_does_not_touch_the_protocol(tmp_path: Path) -> None:
    program = """
        console.log("a banner before the greeting")
        serve({ "runtime.info": (request) => {
          console.log("a plugin says", "hello")
          process.stdout.write("{\\"jsonrpc\\":\\"2.0\\"}\\n[1,2]\\n\\n\\u0000\\n")
          console.warn("a warning")
          process.stderr.write("y".repeat(1_000_000) + "\\n")
          process.stdout.write("a progress bar without an end ")
          answer(request, { ...info, pid: request.params.n })
        } })
    """
    with RuntimeClient(core=fake_core(tmp_path, program)) as client:
        assert [echo(client, number) for number in range(5)] == list(range(5))


def test_a_flood_while_nobody_calls_does_not_stop_the_next_call(tmp_path: Path) -> None:
    program = """
        serve({ "turn_journal.inspect": (request) => {
          say({ id: request.id, error: { code: -32000, message: "later" } })
          process.stderr.write("e".repeat(1_000_000) + "\\n")
          process.stdout.write("o".repeat(1_000_000) + "\\n")
        } })
    """
    with RuntimeClient(core=fake_core(tmp_path, program)) as client:
        with pytest.raises(TurnJournalError, match="later"):
            client.call("turn_journal.inspect", INSPECT)
        assert client.info()["name"] == "fake"


@pytest.mark.usefixtures("pump")
@pytest.mark.parametrize("callers", [1, 4])
def test_full_pipes_in_both_directions_do_not_block_each_other(callers: int, tmp_path: Path) -> None:
    """The stand-in reads nothing until it has written more than a pipe holds, which its output takes in parts."""
    program = """
        import { writeSync } from "node:fs"
        const block = Buffer.alloc(300_000, "n")
        block[block.length - 1] = 10
        const shout = () => {
          for (let at = 0; at < block.length; ) {
            try { at += writeSync(1, block, at) } catch (error) { if (error.code !== "EAGAIN") throw error }
          }
        }
        serve({ "runtime.info": (request) => { shout(); answer(request, { ...info, pid: request.params.n }) } })
    """
    with RuntimeClient(core=fake_core(tmp_path, program)) as client:
        got: list[int] = []

        def call(first: int) -> None:
            got.extend(echo(client, first + n, text="t" * 600_000) for n in range(3))

        threads = [threading.Thread(target=call, args=(10 * who,)) for who in range(callers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert sorted(got) == sorted(10 * who + n for who in range(callers) for n in range(3))


def test_a_caller_whose_time_is_up_leaves_a_half_written_request_to_be_finished(tmp_path: Path) -> None:
    """The process is stopped in the middle of a request of more than a pipe holds, and continued later."""
    with RuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
        echo(client, 0)
        pid = client.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        with pytest.raises(RuntimeTimeoutError):
            echo(client, 1, text="t" * 1_000_000, timeout=0.3)
        with pytest.raises(RuntimeTimeoutError):
            echo(client, 2, timeout=0.3)
        os.kill(pid, signal.SIGCONT)
        assert [echo(client, number) for number in range(3, 9)] == list(range(3, 9))
        assert client.pid == pid


def test_more_open_calls_than_allowed_wait_for_room(tmp_path: Path, eventually: Eventually) -> None:
    core = fake_core(tmp_path, ECHO)
    with RuntimeClient(core=core, settings=Settings(max_queued=3)) as client:
        got: list[int] = []
        threads = [threading.Thread(target=lambda n=n: got.append(echo(client, n, wait=20))) for n in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(got) == list(range(20))


def test_waiting_for_room_ends_with_the_deadline(tmp_path: Path, eventually: Eventually) -> None:
    core = fake_core(tmp_path, 'serve({ "runtime.info": () => {} })')
    with RuntimeClient(core=core, settings=Settings(max_queued=1)) as client:
        first = threading.Thread(target=echo_in_vain, args=(client,))
        first.start()
        eventually(lambda: logged(tmp_path))
        with pytest.raises(RuntimeTimeoutError):
            echo(client, 2, timeout=0.1)
    first.join()
    assert logged(tmp_path).count("runtime.info") == 1


def test_an_answer_that_breaks_its_schema_is_named_without_its_contents(tmp_path: Path) -> None:
    program = 'serve({ "runtime.info": (request) => answer(request, { ...info, version: { secret: "s3cr3t" } }) })'
    with (
        RuntimeClient(core=fake_core(tmp_path, program)) as client,
        pytest.raises(ProtocolError, match=r"`type` at \$\.version") as broken,
    ):
        client.info()
    assert broken.value.details == {"schema": "runtime.info.result", "path": "$.version", "rule": "type"}
    assert "s3cr3t" not in str(broken.value)


def test_an_unknown_error_of_the_core_keeps_its_kind(tmp_path: Path) -> None:
    program = """
        serve({ "runtime.info": (request) => say({ id: request.id, error: {
          code: -32050, message: "new", data: { kind: "of_tomorrow", error: "Tomorrow", details: { a: 1 } }
        } }) })
    """
    with (
        RuntimeClient(core=fake_core(tmp_path, program)) as client,
        pytest.raises(TurnJournalError, match="new") as unknown,
    ):
        client.info()
    assert (type(unknown.value), unknown.value.kind, unknown.value.details) == (
        TurnJournalError,
        "of_tomorrow",
        {"a": 1},
    )


@pytest.mark.parametrize("odd", ['"text"', "null", "{}", "[]", "{ code: 1.5 }", '{ message: 1, data: [], code: "x" }'])
def test_an_error_that_is_none_is_still_an_error(odd: str, tmp_path: Path) -> None:
    program = f'serve({{ "runtime.info": (request) => say({{ id: request.id, error: {odd} }}) }})'
    with RuntimeClient(core=fake_core(tmp_path, program)) as client, pytest.raises(TurnJournalError):
        client.info()


def test_the_real_core_maps_its_errors(tmp_path: Path) -> None:
    with RuntimeClient() as client:
        with pytest.raises(JournalNotFoundError) as missing:
            client.call("turn_journal.read", {"path": str(tmp_path / "goals" / "g" / "turns" / "k.json")})
        with pytest.raises(InvalidJournalError) as wrong:
            client.call("turn_journal.read", {"path": 1})
        with pytest.raises(ProtocolError) as unknown:
            client.call("turn_journal.forget", {})
    assert (missing.value.kind, wrong.value.kind, unknown.value.kind) == (
        "journal_not_found",
        "invalid_params",
        "method_not_found",
    )


def test_bad_input_is_refused_before_anything_is_sent(tmp_path: Path) -> None:
    with RuntimeClient(core=fake_core(tmp_path, ECHO), settings=Settings(max_depth=3, max_journal_bytes=100)) as client:
        echo(client, 1)
        for journal, kind, path in (
            ({"a": [(1, 2)]}, "journal_snapshot_invalid", "$.a[0]"),
            ({"a": [[[]]]}, "journal_too_deep", "$.a[0][0]"),
            ({"a": "x" * 200}, "journal_too_large", "$"),
        ):
            with pytest.raises(InvalidJournalError) as refused:
                client.call("runtime.info", {"journal": journal})
            assert (refused.value.kind, refused.value.details["path"]) == (kind, path)
        for timeout in (0, -1, float("nan"), float("inf")):
            with pytest.raises(ValueError, match="timeout"):
                client.call("runtime.info", {}, timeout=timeout)
    assert logged(tmp_path).count("runtime.info") == 1


# -- asyncio


@pytest.fixture(params=["default", "thread pump"])
def run(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], Any]:
    """Runs a coroutine function in a fresh event loop, with either pump."""
    if request.param == "thread pump":
        monkeypatch.setattr(supervisor, "make_pump", ThreadPump)
    return lambda main: asyncio.run(main())


async def echo_async(client: AsyncRuntimeClient, number: int, **more: Any) -> int:
    timeout = more.pop("timeout", None)
    answer: int = (await client.call("runtime.info", {"n": number, **more}, timeout=timeout))["pid"]
    return answer


def test_tasks_get_their_own_answers(run: Callable[[Any], Any], tmp_path: Path) -> None:
    async def main() -> list[int]:
        async with AsyncRuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
            return list(await asyncio.gather(*(echo_async(client, n, wait=n % 7) for n in range(500))))

    assert run(main) == list(range(500))


def test_the_event_loop_goes_on_while_the_core_is_started_and_asked(tmp_path: Path) -> None:
    async def main() -> tuple[int, int]:
        turns = 0

        async def tick() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0)
                turns += 1

        ticking = asyncio.create_task(tick())
        async with AsyncRuntimeClient(core=fake_core(tmp_path, f"setTimeout(() => {{ {ECHO} }}, 300)")) as client:
            await echo_async(client, 1)
            at_start, turns = turns, 0
            await echo_async(client, 2, wait=200)
            ticking.cancel()
            return at_start, turns

    # A blocked loop turns a handful of times.
    assert min(asyncio.run(main())) > 100


def test_a_cancelled_call_leaves_nothing_behind(run: Callable[[Any], Any], tmp_path: Path) -> None:
    async def main() -> tuple[int, list[int], int]:
        async with AsyncRuntimeClient(core=fake_core(tmp_path, LATE)) as client:
            await echo_async(client, 0)
            tasks = [asyncio.create_task(echo_async(client, n, late=True)) for n in range(50)]
            await asyncio.sleep(0.02)
            for task in tasks[::2]:
                task.cancel()
            await echo_async(client, 99)
            done = await asyncio.gather(*tasks, return_exceptions=True)
            cancelled = sum(isinstance(one, asyncio.CancelledError) for one in done)
            connection = client._link.supervisor()._connection
            assert connection is not None
            return cancelled, [one for one in done if isinstance(one, int)], len(connection.pending)

    assert run(main) == (25, list(range(1, 50, 2)), 0)


def test_a_late_answer_to_a_task_is_dropped(run: Callable[[Any], Any], tmp_path: Path) -> None:
    async def main() -> int:
        async with AsyncRuntimeClient(core=fake_core(tmp_path, LATE)) as client:
            await echo_async(client, 0)
            with pytest.raises(RuntimeTimeoutError):
                await echo_async(client, 1, late=True, timeout=0.02)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await echo_async(client, 2, late=True)
            return await echo_async(client, 3)

    assert run(main) == 3


def test_tasks_wait_for_room_as_well(run: Callable[[Any], Any], tmp_path: Path) -> None:
    async def main() -> list[int]:
        settings = Settings(max_queued=4)
        async with AsyncRuntimeClient(core=fake_core(tmp_path, ECHO), settings=settings) as client:
            return list(await asyncio.gather(*(echo_async(client, n, wait=2) for n in range(100))))

    assert run(main) == list(range(100))


def test_big_requests_of_tasks_do_not_block_the_loop_or_each_other(run: Callable[[Any], Any], tmp_path: Path) -> None:
    async def main() -> list[int]:
        async with AsyncRuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
            calls = (echo_async(client, n, text="t" * 1_000_000) for n in range(20))
            return list(await asyncio.gather(*calls))

    assert run(main) == list(range(20))


def test_loops_in_several_threads_share_a_client_with_threads(tmp_path: Path) -> None:
    shared = RuntimeClient(core=fake_core(tmp_path, ECHO))
    shared_async = AsyncRuntimeClient._sharing(shared._link)
    wrong: list[int] = []

    def with_loop(base: int) -> None:
        async def main() -> None:
            for n in range(base, base + 50):
                wrong.extend(got for got in [await echo_async(shared_async, n)] if got != n)

        asyncio.run(main())

    def without(base: int) -> None:
        wrong.extend(got for n in range(base, base + 50) if (got := echo(shared, n)) != n)

    threads = [threading.Thread(target=with_loop if k % 2 else without, args=(k * 1000,)) for k in range(8)]
    with shared:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_a_sync_call_works_where_an_event_loop_runs(tmp_path: Path) -> None:
    async def main() -> int:
        with RuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
            return echo(client, 7)

    assert asyncio.run(main()) == 7


def test_an_answer_for_a_loop_that_is_closed_harms_nobody(tmp_path: Path) -> None:
    client = RuntimeClient(core=fake_core(tmp_path, ECHO))
    asynchronous = AsyncRuntimeClient._sharing(client._link)
    with client:
        echo(client, 0)
        loop = asyncio.new_event_loop()
        task = loop.create_task(echo_async(asynchronous, 1, wait=50))
        loop.run_until_complete(asyncio.sleep(0.01))
        task._log_destroy_pending = False  # type: ignore[attr-defined]
        loop.close()
        time.sleep(0.1)
        assert echo(client, 2) == 2
        del task
        gc.collect()


@pytest.mark.parametrize("state", ["lost", "closing"])
@pytest.mark.parametrize("form", ["thread", "task"])
def test_a_caller_who_comes_as_the_process_goes_is_told_at_once(state: str, form: str) -> None:
    """It got the connection while it lived; nobody answers what is asked on it now."""
    connection = Connection(PollPump, max_queued=10)
    if state == "lost":
        connection.end(closed())
    else:
        connection.closing = True

    async def ask() -> Outcome | None:
        return await connection.ask_async(b"", time.monotonic() + 60, asyncio.get_running_loop())

    began = time.monotonic()
    assert (asyncio.run(ask()) if form == "task" else connection.ask(b"", began + 60)) == closed()
    assert time.monotonic() - began < 10
    assert not connection.pending


def test_who_gives_up_leaves_room_for_those_who_wait(tmp_path: Path) -> None:
    core = fake_core(tmp_path, ECHO)
    with RuntimeClient(core=core, settings=Settings(max_queued=1)) as client:
        echo(client, 0)

        def give_up() -> None:
            with pytest.raises(RuntimeTimeoutError):
                client.call("runtime.info", {"n": 1, "wait": 60_000}, timeout=0.5)

        impatient = threading.Thread(target=give_up)
        impatient.start()
        time.sleep(0.2)
        began = time.monotonic()
        assert echo(client, 2) == 2
        assert time.monotonic() - began < 5
        impatient.join()


@pytest.mark.parametrize("form", ["thread", "task"])
def test_who_waits_for_room_is_told_that_the_process_is_gone(form: str) -> None:
    """Also when those who have the room never leave it, such as the tasks of a loop that was closed."""
    connection = Connection(PollPump, max_queued=1)
    connection.pending[0] = BlockingCall()

    async def ask() -> Outcome | None:
        return await connection.ask_async(b"", time.monotonic() + 60, asyncio.get_running_loop())

    began = time.monotonic()
    threading.Timer(0.2, connection.end, (closed(),)).start()
    assert (asyncio.run(ask()) if form == "task" else connection.ask(b"", began + 60)) == closed()
    assert time.monotonic() - began < 10


@pytest.mark.parametrize("seconds", [(0.2, 0.5, 0.8), (0.8, 0.5, 0.2)])
def test_each_task_stops_waiting_at_its_own_time(seconds: tuple[float, ...], tmp_path: Path) -> None:
    """A loop has one timer for all of them."""

    async def main() -> list[float]:
        async with AsyncRuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
            await echo_async(client, 0)
            began = time.monotonic()

            async def wait(patience: float) -> float:
                with pytest.raises(RuntimeTimeoutError):
                    await echo_async(client, 1, wait=60_000, timeout=patience)
                return time.monotonic() - began

            async with asyncio.timeout(10):
                return await asyncio.gather(*map(wait, seconds))

    waited = asyncio.run(main())
    assert [round(took - patience, 1) >= 0 for took, patience in zip(waited, seconds, strict=True)] == [True] * 3
    assert max(waited) < 5


def test_an_outcome_that_comes_as_the_loop_has_taken_the_last_one_rings_again() -> None:
    async def main() -> Outcome:
        loop = asyncio.get_running_loop()
        mailbox, first, second = Mailbox(loop), loop.create_future(), loop.create_future()
        late: list[tuple[Any, Any]] = [(second, {"n": 2})]

        class Outcomes(deque[Any]):
            def __bool__(self) -> bool:
                if not len(self) and late:
                    mailbox.put(*late.pop())
                    return False
                return len(self) > 0

        mailbox._outcomes = Outcomes()
        mailbox.put(first, {"n": 1})
        await first
        async with asyncio.timeout(5):
            answer: Outcome = await second
        return answer

    assert asyncio.run(main()) == {"n": 2}


def test_loops_that_are_over_are_not_kept(tmp_path: Path) -> None:
    """Each `asyncio.run` makes one."""
    client = AsyncRuntimeClient(core=fake_core(tmp_path, ECHO))
    with client.for_threads:
        loops = []

        async def ask(number: int) -> int:
            loops.append(weakref.ref(asyncio.get_running_loop()))
            return await echo_async(client, number)

        for number in range(10):
            assert asyncio.run(ask(number)) == number
        gc.collect()
        assert sum(loop() is not None for loop in loops) <= 1


def test_both_clients_have_the_same_methods() -> None:
    names = [{name for name in dir(kind) if not name.startswith("_")} for kind in (RuntimeClient, AsyncRuntimeClient)]
    assert names[0] == names[1] == {"call", "close", "for_threads", "info", "node", "pid"}
