"""One driver per turn: the lock, the number, and what a driver that lost its turn can still do."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import threading
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.turns.world import AGENT, GOAL, RESULT, TODO, Ledger, ScriptedHost, Turn

from turn_journal_runtime.address import turn_journal_path
from turn_journal_runtime.bridge import default_client
from turn_journal_runtime.errors import JournalConflictError, JournalCorruptError, JournalStoreError, TurnBusyError
from turn_journal_runtime.flow import run
from turn_journal_runtime.hosts import CallableHost
from turn_journal_runtime.turns import run_turn
from turn_journal_runtime.turns.acknowledgement import acknowledge_flow
from turn_journal_runtime.turns.folder_root import _Held
from turn_journal_runtime.turns.lease import acquire_lease, is_driven
from turn_journal_runtime.turns.root import open_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def journal_path(tmp_path: Path) -> Path:
    return turn_journal_path(tmp_path, goal_id=GOAL, turn_key="turn-1")


def test_the_second_driver_is_told_of_the_first(journal_path: Path) -> None:
    with acquire_lease(journal_path.parents[3], journal_path) as lease:
        assert (lease.number, is_driven(journal_path)) == (1, True)
        with pytest.raises(TurnBusyError) as raised:
            acquire_lease(journal_path.parents[3], journal_path)
        assert raised.value.details["pid"] == os.getpid()
        assert raised.value.details["since"] > 0
        assert str(os.getpid()) in str(raised.value)
        assert pickle.loads(pickle.dumps(raised.value)).details == raised.value.details  # noqa: S301
    assert not is_driven(journal_path)


def test_each_driver_has_a_greater_number_and_leaves_nothing_behind(journal_path: Path) -> None:
    for number in (1, 2, 3):
        with acquire_lease(journal_path.parents[3], journal_path) as lease:
            assert lease.number == number
    assert sorted(path.name for path in journal_path.parent.iterdir()) == ["turn-1.lease", "turn-1.lock"]
    assert {path.stat().st_mode & 0o777 for path in journal_path.parent.iterdir()} == {0o600}
    assert journal_path.parent.stat().st_mode & 0o777 == 0o700


def test_a_driver_that_dies_frees_the_turn_at_once(journal_path: Path) -> None:
    code = (
        "import os, sys, pathlib; from turn_journal_runtime.turns.lease import acquire_lease\n"
        f"lease = acquire_lease(*map(pathlib.Path, {[str(journal_path.parents[3]), str(journal_path)]!r}))\n"
        "print(lease.number, flush=True); sys.stdin.read()"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        with pytest.raises(TurnBusyError) as raised:
            acquire_lease(journal_path.parents[3], journal_path)
        assert raised.value.details["pid"] == child.pid
        child.kill()
        child.wait()
    with acquire_lease(journal_path.parents[3], journal_path) as lease:
        assert lease.number == 2
    assert not list(journal_path.parent.glob("*lease-*"))  # neither its own nor that of the dead


def test_only_one_of_many_threads_drives(journal_path: Path) -> None:
    numbers: list[int] = []
    busy: list[TurnBusyError] = []
    start = threading.Barrier(8)
    done = threading.Event()

    def drive() -> None:
        start.wait()
        try:
            lease = acquire_lease(journal_path.parents[3], journal_path)
        except TurnBusyError as error:
            busy.append(error)
            return
        numbers.append(lease.number)
        done.wait()
        lease.release()

    threads = [threading.Thread(target=drive) for _ in range(8)]
    for thread in threads:
        thread.start()
    while len(numbers) + len(busy) < 8:
        threads[0].join(0.01)
    done.set()
    for thread in threads:
        thread.join()
    assert (numbers, len(busy)) == ([1], 7)


def test_a_damaged_lease_file_is_refused_and_left_alone(journal_path: Path) -> None:
    acquire_lease(journal_path.parents[3], journal_path).release()
    record = journal_path.with_suffix(".lease")
    for damage in (b"", b"{", b"[]", b'{"number": 0}', b'{"number": true}'):
        record.write_bytes(damage)
        with pytest.raises(JournalCorruptError):
            acquire_lease(journal_path.parents[3], journal_path)
        assert record.read_bytes() == damage


def test_a_turn_that_was_taken_over_cannot_be_written_by_the_driver_that_lost_it(tmp_path: Path) -> None:
    turn = Turn(tmp_path, is_async=False)
    host_is_at_work, taken_over = threading.Event(), threading.Event()
    lost: list[BaseException] = []
    asked: list[str] = []

    def slow(context: Any) -> dict[str, Any]:
        host_is_at_work.set()
        assert taken_over.wait(60)
        return {**RESULT, "by": "the first"}

    def first() -> None:
        try:
            run_turn(
                tmp_path,
                goal_id=GOAL,
                agent_id=AGENT,
                todo_id=TODO,
                host=CallableHost(lambda context: slow(context)),
                writeback=lambda ref, payload: asked.append(ref),
            )
        except BaseException as error:
            lost.append(error)

    thread = threading.Thread(target=first)
    thread.start()
    assert host_is_at_work.wait(60)
    with pytest.raises(TurnBusyError):
        turn.run(ScriptedHost())
    second = turn.run(CallableHost(lambda context: {**RESULT, "by": "the second"}), take_over=True)
    stored = turn.path.read_bytes()
    taken_over.set()
    thread.join(60)
    assert (second.status, second.result) == ("committed", {**RESULT, "by": "the second"})
    # The run is lost first: the driver that lost it cannot even close it.
    assert isinstance(lost[0], TurnBusyError | JournalConflictError), lost
    assert (turn.path.read_bytes(), asked) == (stored, [])


def test_a_write_with_an_old_number_is_refused_by_the_core(tmp_path: Path) -> None:
    turn = Turn(tmp_path, is_async=False)
    taken: list[int] = []

    def lose_the_turn(request: Any) -> dict[str, Any]:
        with acquire_lease(tmp_path, turn.path, take_over=True) as lease:
            taken.append(lease.number)
        return dict(RESULT)

    with pytest.raises(JournalConflictError) as raised:
        turn.run(ScriptedHost(lose_the_turn))
    assert (raised.value.kind, taken) == ("turn_lease_lost", [2])
    assert json.loads(turn.path.with_suffix(".lease").read_text())["number"] == 2
    assert turn.journal["completed_phases"] == []
    assert turn.run(ScriptedHost()).attempts == 2


@pytest.mark.parametrize("where", ["goals", "goals/goal", "goals/goal/turns", "goals/goal/turn-sessions", "runs"])
def test_a_link_that_leaves_the_root_is_not_followed(where: str, tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    outside.mkdir()
    (root / where).parent.mkdir(parents=True, exist_ok=True)
    (root / where).symlink_to(outside)
    turn = Turn(root, is_async=False)

    def loop(context: Any, request: Any) -> dict[str, Any]:
        request.on_session("s-1")
        return dict(RESULT)

    with pytest.raises(JournalStoreError) as raised:
        turn.run(CallableHost(loop))
    assert raised.value.kind == "store_unsafe_path"
    assert not list(outside.iterdir())


def test_a_link_that_stays_in_the_root_is_fine(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "runs").symlink_to(tmp_path / "elsewhere")
    assert Turn(tmp_path, is_async=False).run(CallableHost(lambda context: dict(RESULT))).ok


def test_a_lock_that_cannot_be_taken_is_named(tmp_path: Path, journal_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(JournalStoreError, match=r"file.goals.*see that the runtime root is a folder"):
        Turn(tmp_path / "file", is_async=False).run(ScriptedHost())
    lease = acquire_lease(journal_path.parents[3], journal_path)
    lock = journal_path.with_suffix(".lock")
    lock.write_text("no lock " * 1000)
    for take in (partial(acquire_lease, journal_path.parents[3]), is_driven):
        with pytest.raises(JournalStoreError, match="does not serve as a lock") as raised:
            take(journal_path)
        assert (raised.value.kind, raised.value.details) == ("store_unsafe_path", {"path": str(lock)})
    lock.unlink()
    lease.release()


@pytest.mark.parametrize("suffix", [".lock", ".lease"])
def test_a_file_of_the_lease_that_is_a_link_out_of_the_root_is_not_followed(suffix: str, tmp_path: Path) -> None:
    path = turn_journal_path(tmp_path / "root", goal_id=GOAL, turn_key="turn-1")
    path.parent.mkdir(parents=True)
    path.with_suffix(suffix).symlink_to(tmp_path / "outside")
    with pytest.raises(JournalStoreError) as refused:
        acquire_lease(tmp_path / "root", path)
    assert refused.value.kind == "store_unsafe_path"
    assert not (tmp_path / "outside").exists()


def test_what_happens_to_the_files_of_a_lease_takes_no_turn_and_stops_no_release(journal_path: Path) -> None:
    lease = acquire_lease(journal_path.parents[3], journal_path)
    record = journal_path.with_suffix(".lease")
    said = record.read_bytes()
    record.write_text("damaged")
    assert not lease.is_lost()  # nobody is known to have taken it
    record.write_bytes(said)
    journal_path.with_suffix(".lease-1").unlink()
    lease.release()
    lease.release()
    assert acquire_lease(journal_path.parents[3], journal_path).number == 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("holds", ["lease-1", "lock"])
def test_a_child_that_was_forked_in_the_middle_of_a_turn_does_not_free_it(holds: str, journal_path: Path) -> None:
    """Nor does it drive it: neither while its parent does, nor while that one writes."""
    code = (
        "import os, pathlib, sys\n"
        "from filelock import ReadWriteLock\n"
        "from turn_journal_runtime.errors import TurnBusyError\n"
        "from turn_journal_runtime.turns.lease import acquire_lease, is_driven\n"
        f"root, path = map(pathlib.Path, {[str(journal_path.parents[3]), str(journal_path)]!r})\n"
        "with acquire_lease(root, path):\n"
        f"    if {holds == 'lock'}: ReadWriteLock(path.with_suffix('.lock'), is_singleton=False).acquire_write()\n"
        "    child = os.fork()\n"
        "    if child == 0:\n"
        "        assert is_driven(path)\n"
        "        try: acquire_lease(root, path)\n"
        "        except TurnBusyError: sys.exit()\n"
        "        sys.exit('it drives')\n"
        "    assert os.waitpid(child, 0)[1] == 0\n"
        f"    print({holds == 'lock'} or is_driven(path))\n"
        f"print({holds != 'lock'} and is_driven(path))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=240)
    assert (done.stdout.split(), done.returncode) == (["True", "False"], 0), done.stderr


def test_an_acknowledgement_carries_its_number_as_every_write_does(tmp_path: Path) -> None:
    turn = Turn(tmp_path, is_async=False)
    waits = turn.run(ScriptedHost(), scheduler=lambda ref, payload: "action_required")
    written: list[Any] = []

    class Noting:
        def call(self, method: str, params: dict[str, Any], **options: Any) -> Any:
            if method == "turn_journal.write":
                written.append(params["lease"])
            return default_client().call(method, params, **options)

    client: Any = Noting()
    root = open_root(turn.root, client)
    run(acknowledge_flow(root, goal_id=GOAL, agent_id=AGENT, turn_key=waits.turn_key), client)
    assert written == [2]


@pytest.mark.parametrize("looks", [0, 1, 2, 3])
def test_nothing_is_begun_outside_before_the_lease_was_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, looks: int
) -> None:
    """The host and each of the three effects; the turn is lost at the look before one of them."""
    turn, host, ledger = Turn(tmp_path, is_async=False), ScriptedHost(), Ledger()
    left = [None] * looks

    def confirm(_lease: object) -> Iterator[None]:
        if not left:
            raise JournalConflictError("lost", kind="turn_lease_lost")
        left.pop()
        yield from ()

    monkeypatch.setattr(_Held, "confirm", confirm)
    with pytest.raises(JournalConflictError, match="lost"):
        turn.run(host, writeback=ledger, spend=ledger, scheduler=ledger)
    assert len(host.executed) + len(ledger.applied) == looks
