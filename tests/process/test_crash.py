"""A process that dies: what callers see, what is tried again, and when it is given up."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest
from tests.process.fakes import fake_core, is_alive, logged, pick

from turn_journal_runtime.bridge import RuntimeClient
from turn_journal_runtime.bridge.supervisor import RestartPolicy
from turn_journal_runtime.errors import RuntimeCrashedError, RuntimeUnavailableError, TurnJournalError

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Eventually

pytestmark = pytest.mark.process

#: Dies with the first call it gets, and not again.
DIES_ONCE = """
const mark = import.meta.filename + ".died"
serve(existsSync(mark) ? {} : { "runtime.info": () => { writeFileSync(mark, ""); process.exit(3) } })
"""
DIES_ALWAYS = 'serve({ "runtime.info": () => { console.error("out of luck"); process.exit(3) } })'
FAST = RestartPolicy(first_delay=0.01, max_delay=0.02)


def test_a_process_that_died_between_calls_is_replaced_without_a_word() -> None:
    with RuntimeClient() as client:
        client.info()
        first = client.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        client.info()
        assert client.pid not in (None, first)


def test_a_process_that_dies_while_nobody_calls_is_reaped(eventually: Eventually) -> None:
    with RuntimeClient() as client:
        client.info()
        pid = client.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        eventually(lambda: not os.path.exists(f"/proc/{pid}"))


def test_its_pipes_are_closed_only_when_nobody_uses_them(eventually: Eventually) -> None:
    """Their numbers mean something else from then on: a caller would write into another file."""
    with RuntimeClient() as client:
        client.info()
        connection, pid, writer = client._link.supervisor()._connection, client.pid, object()
        assert connection is not None
        assert pid is not None
        eventually(lambda: connection.writing.take(writer))
        os.kill(pid, signal.SIGKILL)
        time.sleep(0.5)
        assert connection.child.stdin >= 0
        connection.writing.give_back(writer)
        eventually(lambda: connection.child.stdin == -1)


def test_a_call_in_flight_is_tried_once_more_on_a_fresh_process(tmp_path: Path) -> None:
    with RuntimeClient(core=fake_core(tmp_path, DIES_ONCE)) as client:
        assert client.info()["name"] == "fake"
    assert logged(tmp_path).count("runtime.info") == 2


def test_a_write_that_is_tried_again_says_since_when(tmp_path: Path) -> None:
    """The first one may have been written, and another's after it: then it must not be written once more."""
    program = """
    const mark = import.meta.filename + ".died"
    const died = existsSync(mark)
    serve({ "turn_journal.write": (request) => {
      log(JSON.stringify(request.params))
      if (!died) { writeFileSync(mark, ""); process.exit(3) }
      say({ id: request.id, error: { code: -32000, message: "seen" } })
    } })
    """
    before = int(time.time() * 1000)
    with RuntimeClient(core=fake_core(tmp_path, program)) as client, pytest.raises(TurnJournalError, match="seen"):
        client.call("turn_journal.write", {"path": "p", "journal": {}})
    first, second = [json.loads(line) for line in logged(tmp_path) if line.startswith("{")]
    assert first == {"path": "p", "journal": {}}
    since = second.pop("retry_since")
    assert second == first
    assert before - 50 <= since <= time.time() * 1000


def test_a_call_that_kills_twice_fails_with_how_it_ended_and_its_last_words(tmp_path: Path) -> None:
    with (
        RuntimeClient(core=fake_core(tmp_path, DIES_ALWAYS)) as client,
        pytest.raises(RuntimeCrashedError, match=r"exit code 3.*\n.*out of luck") as crashed,
    ):
        client.info()
    details = crashed.value.details
    assert pick(details, "exit_code", "signal", "stderr") == (3, None, ["out of luck"])
    assert crashed.value.is_retryable
    assert logged(tmp_path).count("runtime.info") == 2


def test_a_process_that_is_killed_names_the_signal(tmp_path: Path) -> None:
    program = 'serve({ "runtime.info": () => process.kill(process.pid, "SIGSEGV") })'
    with (
        RuntimeClient(core=fake_core(tmp_path, program)) as client,
        pytest.raises(RuntimeCrashedError, match="signal SIGSEGV") as crashed,
    ):
        client.info()
    assert pick(crashed.value.details, "exit_code", "signal") == (None, "SIGSEGV")


def test_shutdown_is_not_tried_again(tmp_path: Path) -> None:
    program = 'serve({ "runtime.shutdown": () => process.exit(4) })'
    with RuntimeClient(core=fake_core(tmp_path, program)) as client:
        client.info()
        with pytest.raises(RuntimeCrashedError, match="exit code 4"):
            client.call("runtime.shutdown", {})
        assert logged(tmp_path).count("runtime.shutdown") == 1


def test_all_calls_in_flight_survive_one_death(tmp_path: Path) -> None:
    with RuntimeClient(core=fake_core(tmp_path, DIES_ONCE)) as client:
        names: list[str] = []
        threads = [threading.Thread(target=lambda: names.append(client.info()["name"])) for _ in range(50)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert names == ["fake"] * 50


def test_a_process_that_closes_its_output_is_as_good_as_dead(tmp_path: Path) -> None:
    program = """
        import { closeSync } from "node:fs"
        serve({ "runtime.info": () => closeSync(1) })
        setInterval(() => {}, 1000)
    """
    with RuntimeClient(core=fake_core(tmp_path, program)) as client, pytest.raises(RuntimeCrashedError):
        client.info()


def test_a_process_that_stops_reading_is_ended(tmp_path: Path) -> None:
    program = """
        import { closeSync } from "node:fs"
        ready()
        closeSync(0)
        setInterval(() => {}, 1000)
    """
    with RuntimeClient(core=fake_core(tmp_path, program)) as client, pytest.raises(RuntimeCrashedError):
        client.info()


def test_a_death_is_noticed_while_its_child_still_holds_the_output(tmp_path: Path) -> None:
    program = """
        import { spawn } from "node:child_process"
        serve({ "runtime.info": () => {
          const options = { stdio: "inherit", detached: true }
          log(String(spawn(process.execPath, ["-e", "setTimeout(() => {}, 60000)"], options).pid))
          process.exit(5)
        } })
    """
    with (
        RuntimeClient(core=fake_core(tmp_path, program)) as client,
        pytest.raises(RuntimeCrashedError, match="exit code 5"),
    ):
        client.call("runtime.info", {}, timeout=45)
    for line in logged(tmp_path):
        if line.isdigit() and is_alive(int(line)):
            os.kill(int(line), signal.SIGKILL)


def test_a_crash_loop_ends_in_one_clear_error_and_is_tried_again_after_a_while(
    tmp_path: Path, eventually: Eventually
) -> None:
    restarts = FAST._replace(max_deaths=4, cool_down=4.0)
    with RuntimeClient(core=fake_core(tmp_path, DIES_ALWAYS), restarts=restarts) as client:
        for _ in range(2):
            with pytest.raises(RuntimeCrashedError):
                client.info()
        starts = logged(tmp_path).count("runtime.info")
        for _ in range(3):
            with pytest.raises(RuntimeUnavailableError, match=r"(?s)died 4 times in a row.*out of luck") as loop:
                client.info()
        assert pick(loop.value.details, "crashes", "exit_code", "stderr") == (4, 3, ["out of luck"])
        assert loop.value.kind == "runtime_crash_loop"
        assert loop.value.details["retry_after"] <= 4.0
        assert logged(tmp_path).count("runtime.info") == starts == 4

        def is_tried_again() -> bool:
            with pytest.raises((RuntimeUnavailableError, RuntimeCrashedError)):
                client.info()
            return logged(tmp_path).count("runtime.info") > starts

        eventually(is_tried_again)


def test_one_answer_ends_the_count_of_deaths(tmp_path: Path) -> None:
    program = 'serve({ "turn_journal.inspect": () => process.exit(3) })'
    with RuntimeClient(
        core=fake_core(tmp_path, program), restarts=FAST._replace(max_deaths=3, cool_down=60.0)
    ) as client:
        for _ in range(4):
            client.info()
            with pytest.raises(RuntimeCrashedError):
                client.call("turn_journal.inspect", {})
            client.info()


def test_a_failed_start_counts_as_a_death(tmp_path: Path) -> None:
    restarts = FAST._replace(max_deaths=2, cool_down=60.0)
    with RuntimeClient(core=fake_core(tmp_path, "process.exit(6)"), restarts=restarts) as client:
        kinds = []
        for _ in range(3):
            with pytest.raises(RuntimeUnavailableError) as failed:
                client.info()
            kinds.append(failed.value.kind)
    assert kinds == ["runtime_start_failed", "runtime_start_failed", "runtime_crash_loop"]


def test_the_delay_doubles_up_to_a_bound() -> None:
    policy = RestartPolicy(first_delay=0.1, max_delay=0.5)
    assert [policy.delay(deaths) for deaths in range(7)] == [0.0, 0.0, 0.1, 0.2, 0.4, 0.5, 0.5]


def test_the_last_lines_of_a_megabyte_are_kept(tmp_path: Path) -> None:
    program = """
        serve({ "runtime.info": () => {
          process.stderr.write(("x".repeat(99) + "\\n").repeat(10_000))
          process.stderr.write("the last words\\n", () => process.exit(7))
        } })
    """
    with (
        RuntimeClient(core=fake_core(tmp_path, program)) as client,
        pytest.raises(RuntimeCrashedError, match="the last words") as crashed,
    ):
        client.info()
    lines = crashed.value.details["stderr"]
    assert (lines[-1], len(lines) <= 20, len(str(crashed.value)) < 10_000) == ("the last words", True, True)
