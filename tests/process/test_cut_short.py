"""What is cut between two steps: a reader by Ctrl-C, a start, a close by a fork, the pump by a finalizer.

The moment is chosen: the step raises what the signal would have raised. `test_parents` has the ones nobody chose.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.fakes import fake_core, is_alive

from turn_journal_runtime.bridge import AsyncRuntimeClient, RuntimeClient, child, connection, supervisor
from turn_journal_runtime.bridge.calls import BlockingCall
from turn_journal_runtime.bridge.connection import Connection
from turn_journal_runtime.bridge.pumps import PollPump, ThreadPump
from turn_journal_runtime.bridge.runtime import Runtime
from turn_journal_runtime.errors import RuntimeUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.conftest import Eventually

pytestmark = pytest.mark.process

#: Answers with the number it was asked with, after as many milliseconds as it was asked to wait.
ECHO = """
serve({ "runtime.info": (request) => {
  const { n, wait } = request.params
  setTimeout(() => answer(request, { ...info, pid: n }), wait ?? 0)
} })
"""


def echo(client: RuntimeClient, number: int, *, wait: int = 0, timeout: float = 20) -> int:
    answer: int = client.call("runtime.info", {"n": number, "wait": wait}, timeout=timeout)["pid"]
    return answer


def connected(client: RuntimeClient) -> Connection:
    """The connection of its process."""
    found = client._link.supervisor()._connection
    assert found is not None
    return found


def interrupted_once(step: Callable[..., Any]) -> Callable[..., Any]:
    """The step, cut off by Ctrl-C before its first time in this thread."""
    here, cuts = threading.get_ident(), [KeyboardInterrupt]

    def cut(*arguments: Any, **options: Any) -> Any:
        if cuts and threading.get_ident() == here:
            raise cuts.pop()
        return step(*arguments, **options)

    return cut


def test_what_an_interrupted_reader_has_read_for_another_thread_is_handed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing more comes over the pipe that would have somebody look at it."""
    took: list[float] = []

    def ask() -> None:
        began = time.monotonic()
        assert echo(client, 2, wait=500) == 2
        took.append(time.monotonic() - began)

    with RuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
        echo(client, 0)
        monkeypatch.setattr(Connection, "_hand_out", interrupted_once(Connection._hand_out))
        other = threading.Timer(0.2, ask)
        other.start()
        with pytest.raises(KeyboardInterrupt):
            echo(client, 1, wait=15_000)
        other.join()
        assert took[0] < 10


@pytest.mark.parametrize("then", ["another caller reads", "the process dies"])
def test_it_is_handed_over_before_anything_else_is_read(
    then: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ask() -> None:
        with pytest.raises(RuntimeUnavailableError):  # the client is closed meanwhile
            echo(client, 1, wait=15_000)

    def wait_and_give_back(pump: PollPump, reads: bool, writes: bool) -> set[int]:
        events = wait(pump, reads, writes)
        here.reading.give_back(left)
        return events

    wait = PollPump._wait
    with RuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
        echo(client, 0)
        here = connected(client)
        left = BlockingCall()
        here.pending[-7] = left
        assert here.reading.take(left)
        here._lines.chunks.append(b'{"jsonrpc":"2.0","id":-7,"result":{}}\n')
        other = threading.Thread(target=ask)
        if then == "another caller reads":
            here.reading.give_back(left)
            other.start()
        else:
            monkeypatch.setattr(PollPump, "_wait", wait_and_give_back)
            assert client.pid is not None
            os.kill(client.pid, 9)
        assert left.get(timeout=10) == {"jsonrpc": "2.0", "id": -7, "result": {}}
    if other.ident is not None:
        other.join()


def test_a_loop_whose_waking_was_interrupted_is_woken_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    got: list[int] = []

    async def tasks() -> None:
        client = AsyncRuntimeClient._sharing(shared._link)
        for number, wait in ((5, 500), (6, 0)):
            got.append((await client.call("runtime.info", {"n": number, "wait": wait}, timeout=10))["pid"])

    with RuntimeClient(core=fake_core(tmp_path, ECHO)) as shared:
        echo(shared, 0)
        other = threading.Timer(0.2, lambda: asyncio.run(tasks()))
        other.start()
        wake = asyncio.BaseEventLoop.call_soon_threadsafe
        monkeypatch.setattr(asyncio.BaseEventLoop, "call_soon_threadsafe", interrupted_once(wake))
        with pytest.raises(KeyboardInterrupt):
            echo(shared, 1, wait=15_000)
        other.join()
    assert got == [5, 6]


@pytest.mark.parametrize(
    ("pump", "thread", "of", "step"),
    [
        (PollPump, "turn-journal-pump", connection, "decode"),
        (ThreadPump, "turn-journal-pump", connection, "decode"),
        (ThreadPump, "turn-journal-writer", Connection, "write"),
    ],
)
def test_a_finalizer_that_interrupts_the_pump_may_call_its_client(
    pump: Any, thread: str, of: Any, step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The garbage collector runs them in any thread; the pump moves the bytes of the one whose call it is."""
    take_step = getattr(of, step)
    got: list[int] = []

    def collect_first(*arguments: Any) -> Any:
        if threading.current_thread().name == thread and not got:
            got.append(0)
            got.append(echo(client, 9))
        return take_step(*arguments)

    async def ask() -> int:
        answer = await AsyncRuntimeClient._sharing(client._link).call("runtime.info", {"n": 5}, timeout=15)
        number: int = answer["pid"]
        return number

    monkeypatch.setattr(supervisor, "make_pump", pump)
    with RuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
        echo(client, 0)
        monkeypatch.setattr(of, step, collect_first)
        assert asyncio.run(ask()) == 5
    assert got == [0, 9]


def test_a_thread_with_the_number_of_one_that_is_gone_is_not_taken_for_the_pump(eventually: Eventually) -> None:
    """Numbers of threads are given again: it would start a process for each call."""
    with RuntimeClient() as client:
        pid = client.info()["pid"]
        here = connected(client)
        assert here.threads
        os.kill(pid, 9)
        eventually(lambda: not here.threads)


def test_a_start_that_is_interrupted_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    started: list[Runtime] = []
    start = Runtime.start

    def interrupted(runtime: Runtime) -> None:
        start(runtime)
        started.append(runtime)
        if len(started) == 1:
            eventually(lambda: runtime._child)
            raise KeyboardInterrupt

    monkeypatch.setattr(Runtime, "start", interrupted)
    with RuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
        with pytest.raises(KeyboardInterrupt):
            echo(client, 1)
        assert echo(client, 2) == 2
        first = started[0]._child
        assert first is not None
        eventually(lambda: not is_alive(first.pid))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_in_the_middle_of_a_close_waits_for_its_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new process would close the same number again, and fail on it, or close another file of that number."""
    close, is_closing, go_on = os.close, threading.Event(), threading.Event()

    def close_slowly(descriptor: int) -> None:
        close(descriptor)
        if descriptor == stdin:
            is_closing.set()
            go_on.wait(10)

    with RuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
        echo(client, 0)
        here = connected(client)
        stdin = here.child.stdin
        monkeypatch.setattr(os, "close", close_slowly)
        closing = threading.Thread(target=here.child.close_stdin)
        closing.start()
        assert is_closing.wait(10)
        threading.Timer(0.3, go_on.set).start()
        forked = os.fork()
        if forked == 0:
            os._exit(0 if go_on.is_set() and here.child.stdin == here.child.stdout == -1 else 1)
        closing.join()
        assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_after_a_fork_pipes_that_the_program_has_closed_itself_are_no_hindrance(tmp_path: Path) -> None:
    """As a program does that becomes a daemon: whoever is born after that can still start a core of its own."""
    process = child.Child(["sleep", "60"], environment={}, folder=str(tmp_path))
    stdout = process.stdout
    process.kill()
    process.reap(5)
    child._children.add(process)
    process.stdin = stdout  # nobody's by now
    try:
        forked = os.fork()
        if forked == 0:
            code = 1
            try:
                with RuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
                    code = 0 if not child._children and echo(client, 3) == 3 else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == 0
    finally:
        child._children.discard(process)
        process.stdin = -1


FORKED_WHILE_A_MODULE_IS_LOADED = """
import os, signal, sys, threading
from turn_journal_runtime import forks
forks._LIBRARIES |= {"slow"}
sys.path.insert(0, sys.argv[1])
sys.is_loading = threading.Event()
def load():
    import slow
thread = threading.Thread(target=load)
thread.start()
sys.is_loading.wait()
forked = os.fork()
if forked == 0:
    signal.alarm(60)
    load()
    os._exit(0)
thread.join()
print(os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_waits_for_what_a_first_call_in_another_thread_loads(tmp_path: Path) -> None:
    """In the new process nobody would ever end the loading, and its first call waited for it."""
    (tmp_path / "slow.py").write_text("import sys, time\nsys.is_loading.set()\ntime.sleep(0.5)\n")
    program = [sys.executable, "-W", "ignore", "-c", FORKED_WHILE_A_MODULE_IS_LOADED, str(tmp_path)]
    ended = subprocess.run(program, capture_output=True, text=True, check=True, timeout=240)
    assert (ended.stdout, ended.stderr) == ("0\n", "")
