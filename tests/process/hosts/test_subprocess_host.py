"""Programs of every kind as hosts: the right failure, in bounded time and memory, and no process left."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.hosts.harness import DEADLINES, PROGRAM, is_gone, make_request

from turn_journal_runtime.errors import InvalidJournalError
from turn_journal_runtime.hosts import SubprocessHost
from turn_journal_runtime.hosts.process import Ending, ProgramRun
from turn_journal_runtime.turns.host import HostFailedError, HostRequest

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Eventually

pytestmark = pytest.mark.process


def host(mode: str, *arguments: str, timeout: float = 30.0, **settings: Any) -> SubprocessHost:
    return SubprocessHost([sys.executable, "-S", str(PROGRAM), mode, *arguments], timeout=timeout, **settings)


def failure(subject: SubprocessHost, request: HostRequest | None = None) -> HostFailedError:
    with pytest.raises(HostFailedError) as raised:
        subject.execute(request or make_request())
    return raised.value


def pids(notes: Path) -> list[int]:
    return [int(line) for line in notes.read_text().split()] if notes.exists() else []


@pytest.mark.parametrize("mode", ["answer", "deaf", "flood_stderr"])
def test_one_json_object_is_the_result(mode: str) -> None:
    assert host(mode).execute(make_request()) == {"result_kind": "validated_progress", "n": 1}


def test_the_request_is_one_line_of_json_and_names_the_session() -> None:
    session = {"action": "resume", "id": "s-1"}
    result = host("echo").resume("s-1", make_request(session=session, input={"text": "line\nbreak ü"}))
    assert result["request"]["session"] == session
    assert result["request"]["input"] == {"text": "line\nbreak ü"}
    assert result["request"]["effect_id"] == "goal:agent:todo:turn-1"


@pytest.mark.parametrize("value", [{1, 2}, object(), "\ud800", 2**70])
def test_an_input_that_no_program_can_be_given_is_the_callers_mistake(value: Any) -> None:
    with pytest.raises(InvalidJournalError):
        host("answer").execute(make_request(input=value))


@pytest.mark.parametrize(
    ("mode", "kind"),
    [
        ("twice", "contract_rejected"),
        ("half", "contract_rejected"),
        ("number", "contract_rejected"),
        ("nan", "contract_rejected"),
        ("double_key", "contract_rejected"),
        ("bytes", "contract_rejected"),
        ("silent", "contract_rejected"),
        ("flood_stdout", "contract_rejected"),
        ("exit", "unknown"),
        ("answer_and_exit", "unknown"),
        ("signal", "transport_lost"),
        ("fails_oddly", "unknown"),
    ],
)
def test_each_ending_has_its_kind(mode: str, kind: str) -> None:
    error = failure(host(mode))
    assert (error.kind, error.resumable) == (kind, False)


@pytest.mark.parametrize(
    ("mode", "told"),
    [("exit", "ended with exit code 3"), ("twice", "not one JSON object"), ("silent", "wrote 0 bytes")],
)
def test_a_failure_says_how_the_program_ended_and_where_to_look(mode: str, told: str) -> None:
    error = failure(host(mode))
    assert told in error.message
    assert "a log of its own" in error.message


def test_a_broken_pipe_is_a_lost_transport() -> None:
    with pytest.raises(HostFailedError) as raised:
        host("hang_up").execute(make_request(input="x" * 1_000_000))
    assert raised.value.kind == "transport_lost"


def test_a_host_reports_its_own_failure_and_session() -> None:
    error = failure(host("fails"))
    assert (error.kind, error.resumable) == ("rate_limited", True)


@pytest.mark.timeout(60)  # the programs run for ever
@pytest.mark.parametrize("mode", ["late", "late_answer", "stubborn"])
def test_the_deadline_ends_every_program(mode: str) -> None:
    began = time.monotonic()
    assert failure(host(mode, timeout=0.5)).kind == "executor_timeout"
    # A second for those who do not listen, and no more.
    assert time.monotonic() - began < 30


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")
def test_a_program_ignores_no_signal_because_python_does() -> None:
    say = """printf '{"result_kind": "told", "ignored": "%s"}' $(grep SigIgn /proc/self/status | cut -f2)"""
    ignored = int(SubprocessHost(["/bin/sh", "-c", say]).execute(make_request())["ignored"], 16)
    assert [number.name for number in (signal.SIGPIPE, signal.SIGXFSZ) if ignored >> (number - 1) & 1] == []


def test_a_program_that_cannot_be_started_says_so_without_its_path() -> None:
    error = failure(SubprocessHost(["/nonexistent/secret-program"]))
    assert (error.kind, error.details["errno"]) == ("unknown", 2)
    assert "secret" not in str(error)
    assert not SubprocessHost(["/nonexistent/secret-program"]).healthcheck()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts descriptors by /proc")
@pytest.mark.parametrize("pipes", [1, 2, 3, 6])
def test_a_program_that_is_not_started_leaves_no_descriptors(pipes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither what no system can start, nor one for which there is no room."""
    before = set(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError, match="null"):
        SubprocessHost(["/bin/true", "a\0b"]).execute(make_request())
    made: list[tuple[int, int]] = []
    pipe = os.pipe

    def scarce() -> tuple[int, int]:
        if len(made) == pipes:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        made.append(pipe())
        return made[-1]

    monkeypatch.setattr(os, "pipe", scarce)
    error = failure(host("answer"))
    monkeypatch.undo()
    assert error.details["errno"] == errno.EMFILE
    assert set(os.listdir("/proc/self/fd")) <= before


@pytest.mark.parametrize("mode", ["grandchild", "daemon"])
def test_a_grandchild_that_holds_the_pipe_neither_blocks_nor_survives(mode: str, tmp_path: Path) -> None:
    notes = tmp_path / "pids"
    # The deadline is far away: the answer is taken when the program ends, not when its pipes close.
    assert host(mode, str(notes), timeout=60).execute(make_request())["n"] == 1
    assert all(is_gone(pid) for pid in pids(notes))


def test_at_the_deadline_the_whole_family_is_gone(tmp_path: Path) -> None:
    for deadline in DEADLINES:
        notes = tmp_path / f"pids-{deadline}"
        assert failure(host("family", str(notes), timeout=deadline)).kind == "executor_timeout"
        assert all(is_gone(pid) for pid in pids(notes))
        if len(pids(notes)) == 3:
            return
    pytest.fail("the family never was complete")


@pytest.mark.parametrize("how", ["close", "interrupt"])
def test_a_cancelled_program_is_gone_when_execute_returns(how: str, tmp_path: Path, eventually: Eventually) -> None:
    notes = tmp_path / "pids"
    subject = host("family", str(notes), timeout=60)
    failures: list[HostFailedError] = []
    thread = threading.Thread(target=lambda: failures.append(failure(subject)))
    thread.start()
    eventually(lambda: len(pids(notes)) == 3)
    if how == "close":
        subject.close()
    else:
        subject.interrupt(make_request())
    thread.join(20)
    assert [error.kind for error in failures] == ["transport_lost"]
    assert all(is_gone(pid) for pid in pids(notes))


def test_a_program_whose_request_is_interrupted_before_it_begins_is_not_started(
    tmp_path: Path, eventually: Eventually
) -> None:
    """The thread that is to run it may wait for its turn, and its cancelled caller would wait for the whole program."""
    notes = tmp_path / "pids"
    subject = host("family", str(notes), timeout=60)
    request = make_request()
    subject.interrupt(request)
    with pytest.raises(HostFailedError) as raised:
        subject.execute(request)
    assert raised.value.kind == "transport_lost"
    assert pids(notes) == []
    # Another attempt is another request.
    assert host("answer").execute(make_request())["n"] == 1
    again = make_request()
    failures: list[HostFailedError] = []
    thread = threading.Thread(target=lambda: failures.append(failure(subject, again)))
    thread.start()
    eventually(lambda: pids(notes))
    subject.interrupt(again)
    thread.join(30)
    assert [error.kind for error in failures] == ["transport_lost"]


def test_output_without_end_takes_no_memory() -> None:
    tracemalloc.start()
    try:
        failure(host("flood_stdout"))
        host("flood_stderr").execute(make_request())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4 * 1024 * 1024, f"{peak} bytes were held at once"


PARENT = """
import os, sys, threading, time
sys.path.insert(0, {root!r})
from tests.process.hosts.harness import make_request
from turn_journal_runtime.errors import InvalidJournalError
from turn_journal_runtime.hosts import SubprocessHost
subject = SubprocessHost([sys.executable, "-S", {program!r}, "family", {notes!r}], timeout=600)
threading.Thread(target=subject.execute, args=(make_request(),)).start()
while not (os.path.exists({notes!r}) and open({notes!r}).read().count("\\n") == 3):
    time.sleep(0.02)
if {forking!r} and os.fork() == 0:
    # It holds every pipe of its parent, also the one whose end tells the guardian of its death.
    open({bystander!r}, "w").write(str(os.getpid()))
    time.sleep(600)
open({ready!r}, "w").close()
"""


@pytest.mark.parametrize("forking", [False, True])
def test_when_the_parent_is_killed_nothing_outlives_it(forking: bool, tmp_path: Path, eventually: Eventually) -> None:
    notes, ready, bystander = (tmp_path / name for name in ("pids", "ready", "bystander"))
    names = {"notes": str(notes), "ready": str(ready), "bystander": str(bystander)}
    code = PARENT.format(root=str(PROGRAM.parents[3]), program=str(PROGRAM), forking=forking, **names)
    parent = subprocess.Popen([sys.executable, "-c", code])
    try:
        eventually(lambda: ready.exists() and bool(pids(bystander)) == forking)
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        eventually(lambda: all(is_gone(pid) for pid in pids(notes)))
        assert len(pids(notes)) == 3
    finally:
        for pid in pids(bystander):
            os.kill(pid, signal.SIGKILL)


def test_a_program_that_is_cancelled_before_it_runs_is_not_started(tmp_path: Path) -> None:
    made = tmp_path / "made"
    run = ProgramRun(["touch", str(made)], stdin=b"", on_stdout=lambda _: True, timeout=30)
    run.cancel()
    assert run.run() == Ending(cancelled=True)
    time.sleep(0.2)
    assert not made.exists()


def test_a_killed_guardian_takes_the_program_with_it(tmp_path: Path, eventually: Eventually) -> None:
    import psutil

    notes = tmp_path / "pids"
    subject = host("family", str(notes), timeout=60)
    failures: list[HostFailedError] = []
    thread = threading.Thread(target=lambda: failures.append(failure(subject)))
    thread.start()
    eventually(lambda: len(pids(notes)) == 3)
    program = pids(notes)[2]
    guardian = psutil.Process(program).ppid()
    os.kill(guardian, signal.SIGKILL)
    thread.join(20)
    assert [error.kind for error in failures] == ["transport_lost"]
    # Its group goes with it, also who ignores SIGTERM; of who left the group only the guardian knew.
    eventually(lambda: is_gone(program) and is_gone(pids(notes)[0]))
    for pid in pids(notes):
        if not is_gone(pid):
            os.kill(pid, signal.SIGKILL)
