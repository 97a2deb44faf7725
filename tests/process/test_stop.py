"""The stop ladder, one test for each rung, and what closing means for calls."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest
from tests.process.fakes import fake_core, is_alive, logged

from turn_journal_runtime.bridge import RuntimeClient
from turn_journal_runtime.bridge.runtime import Patience
from turn_journal_runtime.errors import RuntimeUnavailableError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Eventually

pytestmark = pytest.mark.process

QUICK = 0.2
LONG = 30.0
PATIENCE = Patience(LONG, LONG + 1, LONG + 2, LONG + 3)

#: What a stand-in does, and what it notes of the rungs until it ends.
RUNGS = {
    "request": (
        "serve()",
        ["runtime.info", "runtime.shutdown"],
    ),
    "end of input": (
        'serve({ "runtime.shutdown": () => {} })',
        ["runtime.info", "runtime.shutdown", "end of input"],
    ),
    "terminate": (
        'process.on("SIGTERM", () => { log("SIGTERM"); process.exit(0) })\n'
        'serve({ "runtime.shutdown": () => {}, end: () => setInterval(() => {}, 1000) })',
        ["runtime.info", "runtime.shutdown", "end of input", "SIGTERM"],
    ),
    "kill": (
        'process.on("SIGTERM", () => log("SIGTERM"))\n'
        'serve({ "runtime.shutdown": () => {}, end: () => setInterval(() => {}, 1000) })',
        ["runtime.info", "runtime.shutdown", "end of input", "SIGTERM"],
    ),
}


@pytest.mark.parametrize("rung", RUNGS)
def test_each_rung_of_the_ladder_ends_a_process_that_the_ones_below_did_not(
    rung: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, eventually: Eventually
) -> None:
    program, expected = RUNGS[rung]
    waited: list[float] = []

    class Over(threading.Event):
        """Is out of patience with a rung that is to do nothing once the stand-in has noted it, however slow that is."""

        def wait(self, timeout: float | None = None) -> bool:
            assert timeout is not None
            waited.append(timeout)
            if len(waited) == list(RUNGS).index(rung) + 1:
                return super().wait(timeout)
            eventually(lambda: len(logged(tmp_path)) > len(waited))
            return self.is_set()

    client = RuntimeClient(core=fake_core(tmp_path, program), patience=PATIENCE)
    client.info()
    (runtime,) = client._link.supervisor()._runtimes
    monkeypatch.setattr(runtime, "_over", Over())
    pid = client.pid
    assert is_alive(pid)
    client.close()
    assert not is_alive(pid)
    assert logged(tmp_path) == expected
    assert waited == list(PATIENCE[: len(waited)])


def test_a_process_that_never_reads_is_ended_too(tmp_path: Path) -> None:
    client = RuntimeClient(
        core=fake_core(tmp_path, "ready(); setInterval(() => {}, 1000)"), patience=Patience(QUICK, QUICK)
    )
    with pytest.raises(Exception, match="No answer"):
        client.call("runtime.info", {"much": "x" * 300_000}, timeout=2)
    pid = client.pid
    client.close()
    assert not is_alive(pid)


def test_what_a_process_started_goes_with_it_when_it_is_killed(tmp_path: Path, eventually: Eventually) -> None:
    program = """
        import { spawn } from "node:child_process"
        const other = spawn(process.execPath, ["-e", "setInterval(() => {}, 1000)"], { stdio: "inherit" })
        process.on("SIGTERM", () => {})
        serve({
          "runtime.shutdown": () => {}, end: () => {},
          "runtime.info": (request) => answer(request, { ...info, pid: other.pid })
        })
    """
    client = RuntimeClient(core=fake_core(tmp_path, program), patience=Patience(QUICK, QUICK, QUICK, LONG))
    other = client.info()["pid"]
    client.close()
    eventually(lambda: not is_alive(other))


def test_closing_twice_is_no_error_and_later_calls_are_refused() -> None:
    client = RuntimeClient()
    client.info()
    pid = client.pid
    client.close()
    client.close()
    assert not is_alive(pid)
    with pytest.raises(RuntimeUnavailableError) as refused:
        client.info()
    assert refused.value.kind == "client_closed"


def test_a_client_that_was_never_used_closes_without_a_process() -> None:
    client = RuntimeClient()
    client.close()
    with pytest.raises(RuntimeUnavailableError, match="closed"):
        client.info()


def test_a_context_manager_closes() -> None:
    with RuntimeClient() as client:
        client.info()
        pid = client.pid
    assert not is_alive(pid)


def test_calls_in_flight_are_answered_before_the_process_ends(tmp_path: Path, eventually: Eventually) -> None:
    program = """
        const open = []
        serve({
          "runtime.info": (request) => open.push(request),
          "runtime.shutdown": (request) => {
            answer(request, { ok: true })
            open.forEach((request) => answer(request))
            process.exit(0)
          }
        })
    """
    client = RuntimeClient(core=fake_core(tmp_path, program))
    answers: list[str] = []
    threads = [threading.Thread(target=lambda: answers.append(client.info()["name"])) for _ in range(5)]
    for thread in threads:
        thread.start()
    eventually(lambda: logged(tmp_path).count("runtime.info") == 5)
    client.close()
    for thread in threads:
        thread.join()
    assert answers == ["fake"] * 5


def test_calls_in_flight_that_are_never_answered_fail_when_the_client_closes(
    tmp_path: Path, eventually: Eventually
) -> None:
    program = 'serve({ "runtime.info": () => {} })'
    client = RuntimeClient(core=fake_core(tmp_path, program))
    kinds: list[str] = []

    def call() -> None:
        try:
            client.info()
        except RuntimeUnavailableError as error:
            kinds.append(error.kind)

    threads = [threading.Thread(target=call) for _ in range(5)]
    for thread in threads:
        thread.start()
    eventually(lambda: logged(tmp_path).count("runtime.info") == 5)
    client.close()
    for thread in threads:
        thread.join()
    assert kinds == ["client_closed"] * 5


def test_a_client_that_nobody_holds_lets_its_process_go(eventually: Eventually) -> None:
    client = RuntimeClient()
    client.info()
    pid = client.pid
    del client
    eventually(lambda: not is_alive(pid))
