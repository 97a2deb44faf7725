"""What the holder of a lease believes of it between two renewals. session-recovery.md, section 4."""

from __future__ import annotations

import os
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from turn_journal_runtime.errors import JournalConflictError, StoreUnavailableError
from turn_journal_runtime.settings import current
from turn_journal_runtime.turns.database_root import DatabaseRoot
from turn_journal_runtime.turns.heartbeat import HeldLease, now

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import Eventually

LOST = JournalConflictError("Somebody else has it.", kind="turn_lease_lost")


class Server:
    """Answers renewals as it is told, from the lease's own thread."""

    def __init__(self, answer: Callable[[], object] = dict) -> None:
        self.asked = 0
        self._answer = answer
        self.was_asked = threading.Event()

    def call(self, method: str, params: dict[str, Any], *, timeout: float) -> object:
        assert (method, params["number"], timeout > 0) == ("turn_lease.renew", 7, True)
        self.asked += 1
        self.was_asked.set()
        return self._answer()


@contextmanager
def held(server: Server, *, seconds: float = 60.0, asked: float = 0.0) -> Iterator[HeldLease]:
    lease = HeldLease(server, "turn", 7, seconds, now() - asked)  # type: ignore[arg-type] # all that it is asked for
    try:
        yield lease
    finally:
        lease._over.set()


def raised(error: Exception) -> Callable[[], object]:
    def answer() -> object:
        raise error

    return answer


def test_before_an_effect_the_database_is_asked_when_a_renewal_was_missed() -> None:
    with held(Server()) as lease:
        assert list(lease.confirm()) == []
        lease._until = now() + 19  # less than a third is left: it was to be renewed by now
        before = now()
        asking = lease.confirm()
        assert next(asking).method == "turn_lease.renew"  # type: ignore[union-attr]
        asked = now()
        time.sleep(0.01)
        with pytest.raises(StopIteration):
            asking.send({})
        assert before + 60 <= lease._until <= asked + 60  # from when it was asked for, as at first
        assert list(lease.confirm()) == []  # and once is enough


def test_an_answer_that_it_is_lost_holds_for_every_later_step() -> None:
    with held(Server(), asked=59) as lease:
        asking = lease.confirm()
        next(asking)
        with pytest.raises(JournalConflictError):
            asking.throw(LOST)
        with pytest.raises(JournalConflictError):
            lease.check()
        lease._until = now() + 60
        with pytest.raises(JournalConflictError):
            next(lease.confirm())
        with pytest.raises(JournalConflictError), lease.ending(None):
            pytest.fail("work on a turn that is lost")


def test_a_host_is_ended_when_the_lease_is_lost_and_when_it_has_run_out() -> None:
    for error in (LOST, StoreUnavailableError("away")):
        ended = threading.Event()
        with held(Server(raised(error)), seconds=0.3) as lease:
            with lease.ending(ended.set):
                assert ended.wait(30)
            with pytest.raises(JournalConflictError) as lost:
                lease.check()
            assert lost.value.kind == "turn_lease_lost"


def test_a_turn_without_a_host_to_end_is_not_given_up_while_the_database_is_away() -> None:
    server = Server(raised(StoreUnavailableError("away")))
    with held(server, seconds=0.15) as lease:
        for _ in range(4):  # well after it has run out
            server.was_asked.clear()
            assert server.was_asked.wait(30)
        lease.check()  # whether it is lost the next write tells


def test_what_is_refused_after_it_was_given_back_is_no_loss() -> None:
    answered = threading.Event()

    def refuse() -> object:
        assert answered.wait(30)
        raise LOST

    ended = threading.Event()
    server = Server(refuse)
    with held(server, seconds=0.3) as lease, lease.ending(ended.set):
        assert server.was_asked.wait(30)
        asking = lease.give_back()
        assert next(asking).method == "turn_lease.release"  # type: ignore[union-attr]
        answered.set()
        assert not ended.wait(0.3)
        lease.check()


def test_a_renewal_that_fails_ends_no_host_while_the_lease_is_in_time_and_the_next_one_prolongs_it(
    eventually: Eventually,
) -> None:
    def fail_once() -> object:
        if server.asked == 1:
            raise StoreUnavailableError("away")
        return {}

    ended, server = threading.Event(), Server(fail_once)
    begun = now()
    with held(server, seconds=6.0) as lease:
        with lease.ending(ended.set):
            eventually(lambda: server.asked == 2)
            eventually(lambda: lease._until > begun + 6.5)
            lease.check()
        lease._lose(LOST)  # when its work is over there is no host to end
        assert not ended.is_set()


def test_giving_back_says_nothing_of_a_turn_that_is_lost_and_raises_nothing_where_it_cannot_be_said() -> None:
    with held(Server()) as lease:
        asking = lease.give_back()
        next(asking)
        with pytest.raises(StopIteration):
            asking.throw(StoreUnavailableError("away"))
        lease._lose(LOST)
        assert list(lease.give_back()) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_forked_child_gives_back_nothing_that_its_parent_has() -> None:
    with held(Server()) as lease:
        child = os.fork()
        if child == 0:
            os._exit(len(list(lease.give_back())))
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert len(list(lease.give_back())) == 1


def test_a_lease_lasts_from_when_it_was_asked_for() -> None:
    """The database's time for it may have begun then: whoever counted from the answer would believe it too long."""
    root = DatabaseRoot("postgresql://host/db", Server())  # type: ignore[arg-type] # all that it is asked for
    asked = now()
    asking = root.acquire(root.path("goal", "turn"))
    next(asking)
    time.sleep(0.2)
    with pytest.raises(StopIteration) as answered:
        asking.send({"number": 7})
    lease = answered.value.value
    lease._over.set()
    assert lease._until - asked < current().turn_lease + 0.1
