"""What the calling process may do: be interrupted, fork, spawn, end, be killed. The core never outlives it."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.fakes import fake_core, is_alive, logged

from turn_journal_runtime.bridge import AsyncRuntimeClient, RuntimeClient, default_async_client, default_client
from turn_journal_runtime.bridge.runtime import Runtime
from turn_journal_runtime.errors import RuntimeUnavailableError

if TYPE_CHECKING:
    from tests.conftest import Eventually

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[2]
SOAK = os.environ.get("TURN_JOURNAL_SOAK") == "1"

ECHO = """
serve({ "runtime.info": (request) => {
  const { n, wait } = request.params
  const reply = () => answer(request, { ...info, pid: n })
  wait === undefined ? reply() : setTimeout(reply, wait)
} })
"""
#: Never answers, and takes its time when its input ends, as the core does with calls in flight.
HOLDS = 'serve({ "runtime.info": () => {}, end: () => setTimeout(() => process.exit(0), 4000) })'


def python(program: str, *arguments: str, **options: object) -> subprocess.Popen[str]:
    """Another interpreter that runs a program of this file."""
    process: subprocess.Popen[str] = subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        **options,  # type: ignore[call-overload]
    )
    return process


def finish(process: subprocess.Popen[str], seconds: float = 60.0) -> str:
    """Waits for it, and shows what it said when it failed."""
    try:
        out, err = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT)
        out, err = process.communicate()
        pytest.fail(f"it did not end:\n{out}\n{err}")
    assert process.returncode == 0, f"{out}\n{err}"
    return out


# -- KeyboardInterrupt

INTERRUPTED = """
import random, signal, sys, threading
from turn_journal_runtime.bridge import RuntimeClient

core, rounds, others, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
chance = random.Random(seed)
client = RuntimeClient(core=core)
ask = lambda n: client.call("runtime.info", {"n": n}, timeout=20)["pid"]
wrong, stop = [], threading.Event()
ask(0)
pid = client.pid

def other(base):
    n = base
    while not stop.is_set():
        n += 1
        if ask(n) != n:
            wrong.append(n)

threads = [threading.Thread(target=other, args=(1_000_000 * (k + 1),)) for k in range(others)]
for thread in threads:
    thread.start()
interrupts = 0
signal.signal(signal.SIGALRM, signal.default_int_handler)
for round in range(rounds):
    try:
        # Somewhere within the next calls, at a moment that nobody chose.
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00002, 0.002))
        for n in range(10_000):
            if ask(n) != n:
                wrong.append(n)
    except KeyboardInterrupt:
        interrupts += 1
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
    if ask(round) != round:
        wrong.append(round)
stop.set()
for thread in threads:
    thread.join()
(supervisor,) = client._link._made.values()
connection = supervisor._connection
assert interrupts == rounds, interrupts
assert not wrong, wrong[:5]
assert client.pid == pid, "the process was replaced"
assert not connection.pending and not connection._outbox, (connection.pending, connection._outbox)
client.close()
print("usable")
"""


@pytest.mark.parametrize("others", [0, 3])
def test_a_keyboard_interrupt_at_any_moment_leaves_the_client_usable(others: int, tmp_path: Path) -> None:
    seed = int(os.environ.get("TURN_JOURNAL_SEED", random.randrange(2**32)))
    print(f"TURN_JOURNAL_SEED={seed}")
    rounds = 20_000 if SOAK else 1_500 if others == 0 else 500
    process = python(INTERRUPTED, fake_core(tmp_path, ECHO), str(rounds), str(others), str(seed))
    assert finish(process, 3_000 if SOAK else 100).strip() == "usable"


WAITS = """
import signal, sys
from turn_journal_runtime.bridge import RuntimeClient

client = RuntimeClient(core=sys.argv[1])
print("asks", flush=True)
try:
    client.call("runtime.info", {"n": 1, "wait": 30_000})
except KeyboardInterrupt:
    print("interrupted", flush=True)
print(client.call("runtime.info", {"n": 2})["pid"])
client.close()
"""


def test_control_c_in_the_terminal_interrupts_the_call_and_not_the_core(tmp_path: Path, eventually: Eventually) -> None:
    """The signal goes to the whole group, as from a terminal; the core is in its own."""
    process = python(WAITS, fake_core(tmp_path, ECHO), start_new_session=True)
    eventually(lambda: logged(tmp_path))
    os.killpg(process.pid, signal.SIGINT)
    assert finish(process).split() == ["asks", "interrupted", "2"]


# -- signal handlers

HANDLED = """
import random, signal, sys
from turn_journal_runtime.bridge import RuntimeClient

core, rounds, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
chance = random.Random(seed)
client = RuntimeClient(core=core)
ask = lambda n: client.call("runtime.info", {"n": n}, timeout=20)["pid"]
wrong, handled = [], []

def handle(*_):
    number = -1 - len(handled)
    if ask(number) != number:
        wrong.append(number)
    handled.append(number)

ask(0)
signal.signal(signal.SIGALRM, handle)
for round in range(rounds):
    if round % 10 == 0:
        client.close()
        client = RuntimeClient(core=core)
    signal.setitimer(signal.ITIMER_REAL, chance.uniform(0.00002, 0.003))
    n = round * 1_000_000
    while len(handled) == round:
        n += 1
        if ask(n) != n:
            wrong.append(n)
assert not wrong, wrong[:5]
client.close()
print("usable")
"""


def test_a_handler_that_interrupts_a_call_at_any_moment_may_call_itself(tmp_path: Path) -> None:
    """The interrupted call reads for everybody, and goes on only after the handler."""
    seed = int(os.environ.get("TURN_JOURNAL_SEED", random.randrange(2**32)))
    print(f"TURN_JOURNAL_SEED={seed}")
    process = python(HANDLED, fake_core(tmp_path, ECHO), str(1_000 if SOAK else 50), str(seed))
    assert finish(process, 600 if SOAK else 100).strip() == "usable"


@pytest.mark.parametrize("does", ["call", "close"])
def test_a_handler_in_the_middle_of_a_start_neither_waits_for_it_nor_starts_it_twice(
    does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    handled: list[int] = []

    def interrupted(*arguments: Any, **options: Any) -> Runtime:
        if not handled:
            handled.append(0)
            if does == "close":
                client.close()
            else:
                handled.append(client.call("runtime.info", {"n": 5})["pid"])
        return Runtime(*arguments, **options)

    monkeypatch.setattr("turn_journal_runtime.bridge.supervisor.Runtime", interrupted)
    with RuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
        if does == "close":
            with pytest.raises(RuntimeUnavailableError) as closed:
                client.call("runtime.info", {"n": 6})
            assert closed.value.kind == "client_closed"
        else:
            assert client.call("runtime.info", {"n": 6})["pid"] == 6
            assert handled == [0, 5]


#: Answers a call when it is to end, as the core finishes what is in flight, and ends a while after it.
FINISHES = """
const asked = []
serve({
  "runtime.info": (request) => request.params.n === 5 ? asked.push(request) : answer(request),
  "runtime.shutdown": () => {},
  end: () => {
    asked.forEach((request) => answer(request, { ...info, pid: 5 }))
    setTimeout(() => process.exit(0), 2000)
  }
})
"""


def test_a_handler_in_the_middle_of_a_call_may_close_its_client_and_waits_for_nothing(
    tmp_path: Path, eventually: Eventually
) -> None:
    was_alive: list[bool] = []

    def close(*_: object) -> None:
        client.close()
        was_alive.append(is_alive(pid))

    previous = signal.signal(signal.SIGUSR1, close)
    try:
        client = RuntimeClient(core=fake_core(tmp_path, FINISHES))
        client.call("runtime.info", {"n": 1})
        pid = client.pid
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR1)).start()
        # Answered all the same.
        assert client.call("runtime.info", {"n": 5})["pid"] == 5
        assert was_alive == [True]
    finally:
        signal.signal(signal.SIGUSR1, previous)
        client.close()
    assert pid is not None
    eventually(lambda: not is_alive(pid))


# -- fork, spawn, threads, pickle


def test_after_a_fork_both_processes_have_a_core_of_their_own() -> None:
    with RuntimeClient() as client:
        client.info()
        ours = client.pid
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                before = client.pid
                theirs = client.info()["pid"]
                alone = before is None and theirs == client.pid
                client.close()
                os.write(writer, f"{theirs} {alone}".encode())
            finally:
                os._exit(0)
        os.close(writer)
        said = b"".join(iter(lambda: os.read(reader, 100), b"")).decode().split()
        os.close(reader)
        os.waitpid(child, 0)
        assert client.info()["pid"] == client.pid == ours
        assert said != []
        assert int(said[0]) != ours
        assert said[1] == "True"
        assert not is_alive(int(said[0]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_waits_until_the_pipes_of_a_process_that_is_being_started_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Or it would copy them unseen, and its copy would keep the core alive after its parent."""
    start, is_starting, go_on = subprocess.Popen, threading.Event(), threading.Event()

    def start_slowly(*arguments: object, **options: object) -> object:
        is_starting.set()
        go_on.wait(10)
        return start(*arguments, **options)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", start_slowly)
    with RuntimeClient() as client:
        caller = threading.Thread(target=client.info)
        caller.start()
        assert is_starting.wait(10)
        threading.Timer(0.3, go_on.set).start()
        child = os.fork()
        if child == 0:
            os._exit(0 if go_on.is_set() else 1)
        caller.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_forks_in_the_middle_of_calls_of_other_threads_are_safe(tmp_path: Path) -> None:
    with RuntimeClient(core=fake_core(tmp_path, ECHO)) as client:
        stop = threading.Event()
        wrong: list[int] = []

        def caller() -> None:
            n = 0
            while not stop.is_set():
                n += 1
                if client.call("runtime.info", {"n": n})["pid"] != n:
                    wrong.append(n)

        threads = [threading.Thread(target=caller) for _ in range(4)]
        for thread in threads:
            thread.start()
        codes = []
        for n in range(5):
            child = os.fork()
            if child == 0:
                code = 1
                try:
                    code = 0 if client.call("runtime.info", {"n": n}, timeout=20)["pid"] == n else 2
                    client.close()
                finally:
                    os._exit(code)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        stop.set()
        for thread in threads:
            thread.join()
    assert (codes, wrong) == ([0] * 5, [])


def _inspect_in_worker(client: RuntimeClient) -> tuple[int, int]:
    info = client.info()
    client.close()
    return os.getpid(), info["pid"]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_workers_get_a_client_that_starts_its_own_core(method: str) -> None:
    with RuntimeClient() as client:
        client.info()
        with multiprocessing.get_context(method).Pool(2) as pool:
            workers = pool.map(_inspect_in_worker, [client] * 2)
            pool.close()
            pool.join()
        assert all(core != client.pid and worker != os.getpid() for worker, core in workers)


def test_a_copy_of_a_client_keeps_its_options_and_the_default_stays_the_default() -> None:
    client = RuntimeClient(node="/opt/node", core="/opt/core.mjs")
    copy = pickle.loads(pickle.dumps(client))  # noqa: S301
    assert (type(copy), copy._link.options, copy._link is client._link) == (RuntimeClient, client._link.options, False)
    assert type(pickle.loads(pickle.dumps(AsyncRuntimeClient()))) is AsyncRuntimeClient  # noqa: S301
    assert pickle.loads(pickle.dumps(default_client())) is default_client()  # noqa: S301
    assert pickle.loads(pickle.dumps(default_async_client())) is default_async_client()  # noqa: S301


# -- the end of the caller

EXITS = {
    "idle": """
import sys
from turn_journal_runtime.bridge import RuntimeClient
client = RuntimeClient(core=sys.argv[1])
client.info()
""",
    "threads in flight": """
import sys, threading, time
from turn_journal_runtime.bridge import RuntimeClient
client = RuntimeClient(core=sys.argv[1])
for _ in range(10):
    threading.Thread(target=lambda: client.call("runtime.info", {}), daemon=True).start()
while client.pid is None:
    time.sleep(0.01)
time.sleep(0.2)
""",
    "tasks in flight": """
import asyncio, sys
from turn_journal_runtime.bridge import AsyncRuntimeClient
async def main():
    client = AsyncRuntimeClient(core=sys.argv[1])
    tasks = [asyncio.create_task(client.call("runtime.info", {})) for _ in range(10)]
    while client.pid is None:
        await asyncio.sleep(0.01)
    await asyncio.sleep(0.2)
asyncio.run(main())
""",
    "a client that was dropped": """
import sys
from turn_journal_runtime.bridge import RuntimeClient
client = RuntimeClient(core=sys.argv[1])
client.info()
del client
""",
    "an error": """
import sys, time
from turn_journal_runtime.bridge import RuntimeClient
client = RuntimeClient(core=sys.argv[1])
try:
    client.call("runtime.info", {}, timeout=0.5)
except Exception:
    while client.pid is None:
        time.sleep(0.01)
sys.exit(0)
""",
}


@pytest.mark.parametrize("how", EXITS)
def test_the_interpreter_ends_and_its_core_with_it(how: str, tmp_path: Path) -> None:
    # Takes its time, so that whoever does not wait for it is seen to leave it behind.
    served = "" if how in ("idle", "a client that was dropped") else '"runtime.info": () => {}, '
    program = f"log(`pid ${{process.pid}}`)\nserve({{ {served}end: () => setTimeout(() => process.exit(0), 500) }})"
    process = python(EXITS[how], fake_core(tmp_path, program))
    finish(process)
    assert not is_alive(_logged_pid(tmp_path))


IN_FLIGHT = """
import os, sys, threading, time
from turn_journal_runtime.bridge import RuntimeClient
from turn_journal_runtime.settings import Settings

# Whoever reads what is printed is not to wait for a program whose calls have failed.
threading.excepthook = lambda failed: (threading.__excepthook__(failed), os._exit(1))
client = RuntimeClient(core=sys.argv[1] or None, settings=Settings(start_timeout=60, call_timeout=60))
for _ in range(100):
    threading.Thread(target=lambda: client.call("runtime.info", {}), daemon=True).start()
while client.pid is None:
    time.sleep(0.01)
if sys.argv[2] == "forks" and os.fork() == 0:
    # Holds what it was born with, and not the ends of the pipes.
    time.sleep(60)
    os._exit(0)
print(client.pid, flush=True)
time.sleep(60)
"""
#: Within which the core has to see that its parent is gone, also on a busy machine; it has 5 s for what is in flight.
SEES_THE_END = 30.0


def pid_said_by(process: subprocess.Popen[str]) -> int:
    """The first line of a program: the process of its core."""
    assert process.stdout is not None
    assert process.stderr is not None
    line = process.stdout.readline()
    return int(line) if line else pytest.fail(process.stderr.read())


@pytest.mark.parametrize("forks", ["", "forks"])
def test_a_killed_parent_with_a_hundred_calls_in_flight_leaves_no_core(
    forks: str, tmp_path: Path, eventually: Eventually
) -> None:
    process = python(IN_FLIGHT, fake_core(tmp_path, HOLDS), forks, start_new_session=True)
    pid = pid_said_by(process)
    eventually(lambda: logged(tmp_path).count("runtime.info") == 100, seconds=SEES_THE_END)
    try:
        process.kill()
        process.wait()
        eventually(lambda: not is_alive(pid), seconds=SEES_THE_END)
    finally:
        if forks:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_the_real_core_goes_with_a_killed_parent(eventually: Eventually) -> None:
    program = IN_FLIGHT.replace(
        'lambda: client.call("runtime.info", {})', "lambda: [client.call('runtime.info', {}) for _ in iter(int, 1)]"
    )
    process = python(program, "", "")
    pid = pid_said_by(process)
    time.sleep(0.3)
    process.kill()
    process.communicate()
    eventually(lambda: not is_alive(pid), seconds=SEES_THE_END)


def _logged_pid(folder: Path) -> int:
    (line,) = [line for line in logged(folder) if line.startswith("pid ")]
    return int(line.removeprefix("pid "))
