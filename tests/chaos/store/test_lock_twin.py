"""The core and `filelock.ReadWriteLock` exclude each other on a turn's lock file, and the kernel frees it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from filelock import ReadWriteLock, Timeout
from tests.chaos.store.core import AGENT, GOAL, TURN, Core, Refused, journal, path_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.chaos


@pytest.fixture
def turn(core: Core, root: Path) -> Path:
    """A turn that was written once."""
    core.call("write", path=str(path_of(root)), journal=journal(0))
    return path_of(root)


@pytest.fixture
def hasty(node: str, bundle: Path) -> Iterator[Core]:
    """A core that waits for no lock for long."""
    core = Core(node, bundle, {"TURN_JOURNAL_LOCK_TIMEOUT": "0.3"})
    yield core
    core.close()


def lock_of(turn: Path) -> ReadWriteLock:
    return ReadWriteLock(turn.with_suffix(".lock"), is_singleton=False)


def inspect(core: Core, turn: Path) -> str:
    answer = core.call("inspect_stored", runtime_root=str(turn.parents[3]), goal_id=GOAL, agent_id=AGENT, turn_key=TURN)
    return str(answer["journal_status"])


def test_a_writer_in_python_keeps_the_core_out_and_is_named(hasty: Core, turn: Path) -> None:
    lock = lock_of(turn)
    with lock.write_lock():
        for call in (
            lambda: hasty.call("write", path=str(turn), journal=journal(1)),
            lambda: hasty.call("read", path=str(turn)),
            lambda: inspect(hasty, turn),
        ):
            with pytest.raises(Refused) as refused:
                call()
            assert refused.value.kind == "turn_busy"
            assert refused.value.details["holder"]["pid"] == os.getpid()
            assert f"process {os.getpid()}" in str(refused.value)
    lock.close()
    assert hasty.call("write", path=str(turn), journal=journal(1))["appended"]


def test_a_reader_in_python_lets_the_core_read_and_not_write(hasty: Core, turn: Path) -> None:
    lock = lock_of(turn)
    with lock.read_lock():
        assert inspect(hasty, turn) == "in_progress"
        with pytest.raises(Refused, match="held by process"):
            hasty.call("write", path=str(turn), journal=journal(1))
        assert inspect(hasty, turn) == "in_progress", "a writer that gave up holds nobody up"
    lock.close()
    assert hasty.call("write", path=str(turn), journal=journal(1))["appended"]


def test_a_core_that_waits_goes_on_when_the_lock_is_free(core: Core, turn: Path) -> None:
    lock = lock_of(turn)
    with lock.write_lock():
        core.send("write", {"path": str(turn), "journal": journal(1)})
        core.send("list", {"runtime_root": str(turn.parents[3])})
        assert "turns" in core.next()["result"], "what needs no lock is not held up"
    lock.close()
    assert core.next()["result"]["appended"]


def test_the_core_keeps_python_out_until_it_is_killed(node: str, bundle: Path, turn: Path) -> None:
    holder = Core(node, bundle, {"TURN_JOURNAL_FAULT": "snapshot.rename:before:stop"})
    holder.send("write", {"path": str(turn), "journal": journal(1)})
    process = psutil.Process(holder.process.pid)
    deadline = time.monotonic() + 20
    while process.status() != psutil.STATUS_STOPPED:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    lock = lock_of(turn)
    for acquire in (lock.acquire_read, lock.acquire_write):
        with pytest.raises(Timeout):
            acquire(timeout=0.1)
    holder.process.send_signal(signal.SIGKILL)
    holder.process.wait(60)
    holder.close()
    lock.acquire_write(blocking=False)
    lock.release()
    lock.close()


def test_a_writer_in_python_that_is_killed_frees_the_core_at_once(hasty: Core, turn: Path) -> None:
    program = (
        "import sys, time; from filelock import ReadWriteLock; lock = ReadWriteLock(sys.argv[1]);"
        "lock.acquire_write(); print('held', flush=True); time.sleep(600)"
    )
    holder = subprocess.Popen([sys.executable, "-c", program, turn.with_suffix(".lock")], stdout=subprocess.PIPE)
    assert holder.stdout is not None
    assert holder.stdout.readline() == b"held\n"
    with pytest.raises(Refused, match=f"process {holder.pid}"):
        inspect(hasty, turn)
    holder.kill()
    holder.wait(60)
    holder.stdout.close()
    assert inspect(hasty, turn) == "in_progress"


def test_a_lock_file_that_is_replaced_is_locked_anew(core: Core, turn: Path) -> None:
    """The lock is on the file, and others open the name: a holder of a file that is gone excludes nobody."""
    turn.with_suffix(".lock").unlink()
    assert core.call("write", path=str(turn), journal=journal(1))["appended"]
    lock = lock_of(turn)
    with lock.write_lock():
        core.send("write", {"path": str(turn), "journal": journal(2)})
        core.send("list", {"runtime_root": str(turn.parents[3])})
        assert "turns" in core.next()["result"]
    lock.close()
    assert core.next()["result"]["appended"]
