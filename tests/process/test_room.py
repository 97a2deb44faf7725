"""Waiting for room when as many calls are open as may be: who left, or was told twice, costs nobody else a wait."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.fakes import fake_core, logged

from turn_journal_runtime.bridge import AsyncRuntimeClient, RuntimeClient
from turn_journal_runtime.bridge.connection import Connection
from turn_journal_runtime.bridge.pumps import PollPump
from turn_journal_runtime.errors import RuntimeTimeoutError
from turn_journal_runtime.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Eventually

pytestmark = pytest.mark.process

#: Answers after as many milliseconds as it was asked to wait, or when a file is there.
WAITS = """
serve({ "runtime.info": (request) => {
  const { wait, file } = request.params
  const look = () => existsSync(file) ? answer(request) : setTimeout(look, 10)
  file === undefined ? setTimeout(() => answer(request), wait ?? 0) : look()
} })
"""


def test_room_goes_to_a_thread_that_still_waits_for_it(tmp_path: Path, eventually: Eventually) -> None:
    def give_up() -> None:
        with pytest.raises(RuntimeTimeoutError, match="nothing was sent"):
            client.call("runtime.info", {}, timeout=0.3)

    go_on = tmp_path / "go on"
    with RuntimeClient(core=fake_core(tmp_path, WAITS), settings=Settings(max_queued=1)) as client:
        first = threading.Thread(target=client.call, args=("runtime.info", {"file": str(go_on)}))
        first.start()
        eventually(lambda: logged(tmp_path))
        impatient = [threading.Thread(target=give_up) for _ in range(10)]
        for thread in impatient:
            thread.start()
        for thread in impatient:
            thread.join()
        threading.Timer(0.2, go_on.touch).start()
        client.call("runtime.info", {}, timeout=20)
        first.join()


def test_room_goes_to_a_task_that_still_waits_for_it(tmp_path: Path) -> None:
    async def main() -> None:
        settings = Settings(max_queued=1)
        async with AsyncRuntimeClient(core=fake_core(tmp_path, WAITS), settings=settings) as client:
            ask = client.call
            await ask("runtime.info", {})
            first = asyncio.create_task(ask("runtime.info", {"wait": 1000}))
            await asyncio.sleep(0.1)
            with pytest.raises(RuntimeTimeoutError, match="nothing was sent"):
                await ask("runtime.info", {}, timeout=0.1)
            impatient = [asyncio.create_task(ask("runtime.info", {})) for _ in range(10)]
            await asyncio.sleep(0.1)
            patient = asyncio.create_task(ask("runtime.info", {}, timeout=20))
            await asyncio.sleep(0.1)
            for task in impatient:
                task.cancel()
            await first
            await patient

    asyncio.run(main())


class _Told:
    """A caller that waits for room, and notes how often it is told of some."""

    id = 0

    def __init__(self, interrupts: list[type[BaseException]] | None = None) -> None:
        self.times = 0
        self._interrupts = interrupts or []

    def put(self, _: Any) -> None:
        if self._interrupts:
            raise self._interrupts.pop()
        self.times += 1


def test_who_is_about_to_be_told_of_room_when_an_interrupt_comes_is_told_afterwards() -> None:
    connection = Connection(PollPump, max_queued=1)
    connection.pending[1] = _Told()
    first, second = _Told([KeyboardInterrupt]), _Told()
    connection._enqueue(first)
    connection._enqueue(second)
    del connection.pending[1]
    with pytest.raises(KeyboardInterrupt):
        connection._admit()
    connection._admit()
    assert (first.times, second.times) == (1, 0)


def test_who_found_room_twice_over_passes_it_on() -> None:
    """Two threads tell the first who waits, of two places: it sees to it that the second place is taken, too."""
    connection = Connection(PollPump, max_queued=2)
    waiting, next_one = _Told(), _Told()
    connection._queue[waiting] = connection._queue[next_one] = None
    waiting.put({})
    connection._stop_waiting(waiting)
    assert next_one.times == 1


def test_calls_that_outnumber_the_room_by_far_all_end(tmp_path: Path) -> None:
    began = time.monotonic()
    with RuntimeClient(core=fake_core(tmp_path, WAITS), settings=Settings(max_queued=2)) as client:
        threads = [
            threading.Thread(target=lambda: [client.call("runtime.info", {}, timeout=60) for _ in range(50)])
            for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert logged(tmp_path).count("runtime.info") == 600
    assert time.monotonic() - began < 55
