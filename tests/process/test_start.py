"""The start: deadline, greeting, environment, many starters at once."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.fakes import fake_core, is_alive, logged, pick
from tests.process.hosts.harness import DEADLINES

from turn_journal_runtime.bridge import RuntimeClient, default_async_client, default_client
from turn_journal_runtime.errors import ProtocolError, RuntimeTimeoutError, RuntimeUnavailableError
from turn_journal_runtime.settings import Settings

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Eventually

pytestmark = pytest.mark.process


def test_info_shows_the_node_and_where_it_was_found() -> None:
    with RuntimeClient() as client:
        info = client.info()
    assert pick(info["node"], "source", "version") == ("wheel", info["node"]["version"])
    assert os.access(info["node"]["path"], os.X_OK)
    assert info["protocol"] == 1


def test_nothing_is_started_before_the_first_call() -> None:
    with RuntimeClient() as client:
        assert client.pid is None


def test_a_process_that_is_not_ready_in_time_is_ended(tmp_path: Path) -> None:
    core = fake_core(tmp_path, 'console.error("still thinking"); log(String(process.pid)); setInterval(() => {}, 1000)')
    for deadline in DEADLINES:
        with RuntimeClient(core=core, settings=Settings(start_timeout=deadline)) as client:
            with pytest.raises(RuntimeUnavailableError, match=f"not ready within {deadline:g} s") as failed:
                client.info()
            assert pick({**failed.value.details, "kind": failed.value.kind}, "kind", "signal") == (
                "runtime_start_failed",
                "SIGKILL",
            )
        if logged(tmp_path):
            assert failed.value.details["stderr"] == ["still thinking"]
            assert not is_alive(int(logged(tmp_path)[0]))
            return
    pytest.fail("the process never came to think")


def test_a_call_whose_time_is_up_while_the_process_starts_was_not_sent(tmp_path: Path) -> None:
    with RuntimeClient(core=fake_core(tmp_path, "setTimeout(serve, 1000)")) as client:
        with pytest.raises(RuntimeTimeoutError, match="nothing was sent") as late:
            client.call("runtime.info", {}, timeout=0.1)
        assert late.value.details == {"method": "runtime.info", "timeout": 0.1, "sent": False}
        assert client.info()["name"] == "fake"


@pytest.mark.parametrize(
    ("program", "kind", "words"),
    [
        ("ready({ protocol: 2 })", "protocol_mismatch", "upgrade the Python package"),
        ("ready({ protocol: 0 })", "protocol_mismatch", "upgrade the core"),
        ('ready({ schemas: "other" })', "schemas_mismatch", "built with other schemas"),
        ("ready({ pid: null })", "response_invalid", r"`type` at \$\.pid"),
    ],
)
def test_a_core_that_does_not_fit_is_refused_and_ended(program: str, kind: str, words: str, tmp_path: Path) -> None:
    with (
        RuntimeClient(
            core=fake_core(tmp_path, f"log(String(process.pid)); {program}; setInterval(() => {{}}, 1000)")
        ) as client,
        pytest.raises(ProtocolError, match=words) as refused,
    ):
        client.info()
    assert refused.value.kind == kind
    assert not is_alive(int(logged(tmp_path)[0]))


def test_what_a_ready_core_says_besides_is_ignored(tmp_path: Path) -> None:
    with RuntimeClient(core=fake_core(tmp_path, "serve(); say({ method: 'runtime.news', params: {} })")) as client:
        assert client.info()["name"] == "fake"


def test_a_program_that_is_no_core_fails_with_its_own_words(tmp_path: Path) -> None:
    with (
        RuntimeClient(core=fake_core(tmp_path, 'console.error("no such option"); process.exit(9)')) as client,
        pytest.raises(RuntimeUnavailableError, match="no such option") as failed,
    ):
        client.info()
    assert pick(failed.value.details, "exit_code", "signal", "stderr") == (9, None, ["no such option"])


def test_node_gets_nothing_of_the_callers_that_changes_how_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (
        "NODE_OPTIONS",
        "NODE_PATH",
        "NODE_V8_COVERAGE",
        "NODE_REPL_EXTERNAL_MODULE",
        "LD_LIBRARY_PATH",
        "SECRET",
    ):
        monkeypatch.setenv(name, "--require /nowhere/at-all.js")
    monkeypatch.setenv("TURN_JOURNAL_SIGNING_KEY", "given")
    program = (
        'serve({ "runtime.info": (request) => answer(request, { ...info, name: Object.keys(process.env).join() }) })'
    )
    with RuntimeClient(core=fake_core(tmp_path, program)) as client:
        seen = set(client.info()["name"].split(","))
    assert "TURN_JOURNAL_SIGNING_KEY" in seen
    assert not seen & {"NODE_OPTIONS", "NODE_PATH", "NODE_V8_COVERAGE", "NODE_REPL_EXTERNAL_MODULE", "SECRET"}
    assert "LD_LIBRARY_PATH" not in seen


def test_the_limits_of_the_settings_reach_the_core(tmp_path: Path) -> None:
    program = (
        'serve({ "runtime.info": (request) => answer(request, { ...info, name: process.env.TURN_JOURNAL_MAX_DEPTH }) })'
    )
    with RuntimeClient(core=fake_core(tmp_path, program), settings=Settings(max_depth=7)) as client:
        assert client.info()["name"] == "7"


def test_the_core_has_a_process_group_of_its_own() -> None:
    with RuntimeClient() as client:
        client.info()
        pid = client.pid
        assert pid is not None
        assert (os.getpgid(pid), os.getpgid(pid) != os.getpgid(0)) == (pid, True)


def test_threads_that_start_at_once_share_one_process(tmp_path: Path) -> None:
    core = fake_core(tmp_path, "log(`pid ${process.pid}`); setTimeout(serve, 300)")
    with RuntimeClient(core=core) as client:
        seen: list[Any] = []
        threads = [threading.Thread(target=lambda: seen.append(client.info()["pid"])) for _ in range(20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert seen == [client.pid] * 20
    assert [line for line in logged(tmp_path) if line.startswith("pid")] == [f"pid {seen[0]}"]


def test_closing_while_the_process_starts_answers_what_was_asked_and_ends_it(
    tmp_path: Path, eventually: Eventually
) -> None:
    client = RuntimeClient(core=fake_core(tmp_path, "log(String(process.pid)); setTimeout(serve, 500)"))
    names: list[str] = []
    caller = threading.Thread(target=lambda: names.append(client.info()["name"]))
    caller.start()
    eventually(lambda: logged(tmp_path))
    client.close()
    caller.join()
    assert names == ["fake"]
    assert not is_alive(int(logged(tmp_path)[0]))


def test_the_default_clients_share_one_process_and_come_back_after_close() -> None:
    default_client().info()
    first = default_client().pid
    assert default_async_client().pid == first
    default_client().close()
    assert not is_alive(first)
    default_client().info()
    assert default_client().pid not in (None, first)


EXHAUSTED = """
import gc, os, resource, sys, threading, time
from turn_journal_runtime.bridge import RuntimeClient
from turn_journal_runtime.errors import RuntimeUnavailableError

with RuntimeClient() as client:
    client.info()  # what is imported is imported
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)

def limit(files):
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))

def open_now():
    limit(most)
    return set(os.listdir("/proc/self/fd"))

def refused():
    with RuntimeClient() as client:
        try:
            client.info()
        except RuntimeUnavailableError as error:
            assert error.kind == "runtime_unavailable", error.kind
            assert "raise its limits" in error.message, error.message
            return True
    return False

limit(64)
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
refusals = 0
before = open_now()
while True:
    limit(64)
    if not refused():
        break
    refusals += 1
    gc.collect()
    assert open_now() <= before, "descriptors leak"
    os.close(held.pop())
assert refusals > 3, refusals
limit(most)

start = threading.Thread.start
for unlucky in ("turn-journal-pump", "turn-journal-stderr"):
    def start_or_not(thread):
        if thread.name == unlucky:
            raise RuntimeError("can't start new thread")
        start(thread)
    threading.Thread.start = start_or_not
    before = open_now()
    assert refused()
    gc.collect()
    assert open_now() <= before, unlucky
print("told")
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts descriptors by /proc")
def test_a_caller_without_descriptors_or_threads_left_is_told_and_loses_no_more_of_them() -> None:
    done = subprocess.run([sys.executable, "-c", EXHAUSTED], capture_output=True, text=True, timeout=240, check=False)
    assert (done.stdout.strip(), done.returncode) == ("told", 0), done.stderr


@pytest.mark.parametrize("name", ["CALL_TIMEOUT", "START_TIMEOUT", "TURN_LEASE"])
@pytest.mark.parametrize("value", ["soon", "1e300", "-1", "inf"])
def test_a_setting_that_does_not_fit_is_named(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"TURN_JOURNAL_{name}", value)
    with RuntimeClient() as client, pytest.raises(RuntimeUnavailableError, match=f"TURN_JOURNAL_{name} ") as wrong:
        client.info()
    assert wrong.value.kind == "setting_invalid"


def test_settings_are_read_when_a_process_starts_and_not_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with RuntimeClient(core=fake_core(tmp_path, 'serve({ "runtime.info": () => {} })')) as client:
        monkeypatch.setenv("TURN_JOURNAL_CALL_TIMEOUT", "0.7")
        with pytest.raises(RuntimeTimeoutError) as late:
            client.info()
    assert late.value.details["timeout"] == 0.7


def test_how_long_a_call_may_take_is_read_at_each_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core = fake_core(tmp_path, 'serve({ "runtime.info": () => {} })')
    with RuntimeClient(core=core) as client, RuntimeClient(core=core, settings=Settings(call_timeout=0.2)) as fixed:
        for seconds in ("0.6", "0.3"):
            monkeypatch.setenv("TURN_JOURNAL_CALL_TIMEOUT", seconds)
            with pytest.raises(RuntimeTimeoutError) as late:
                client.info()
            assert late.value.details["timeout"] == float(seconds)
        with pytest.raises(RuntimeTimeoutError) as late:
            fixed.info()
        assert late.value.details["timeout"] == 0.2
        assert client.pid is not None
        monkeypatch.setenv("TURN_JOURNAL_CALL_TIMEOUT", "soon")
        with pytest.raises(RuntimeUnavailableError, match="TURN_JOURNAL_CALL_TIMEOUT"):
            client.info()


IMPORT = """
import subprocess, sys
subprocess.Popen = None  # whoever starts something at import fails here
import turn_journal_runtime
from turn_journal_runtime.bridge import default_client
heavy = {"asyncio", "orjson", "pydantic", "pydantic_settings", "jsonschema", "jsonschema_rs"} & set(sys.modules)
print(sorted(heavy))
"""


def test_the_bridge_is_light_to_import() -> None:
    program = IMPORT.replace("import turn_journal_runtime\n", "")
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_slow_start_is_not_charged_to_whoever_waits_for_it(tmp_path: Path) -> None:
    """Two budgets: the start's, and the call's, which may well be longer than what is left of the start's."""
    core = fake_core(tmp_path, "setTimeout(serve, 1200)")
    with RuntimeClient(core=core, settings=Settings(start_timeout=30.0)) as client:
        first = threading.Thread(target=client.info)
        first.start()
        time.sleep(0.8)
        assert client.call("runtime.info", {}, timeout=20.0)["name"] == "fake"
        first.join()
