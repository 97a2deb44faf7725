"""A worker whose database does not answer any more, and tells nobody so: it ends when it is told to, all the same."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import time
from typing import TYPE_CHECKING

import pytest
from tests.chaos.hosts.fleet import Fleet, FleetWorker
from tests.python.run_journal.proxy import Proxy
from tests.python.turns.roots import emptied

from turn_journal_runtime.worker.queue import open_queue

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import Eventually

pytestmark = pytest.mark.process


def test_a_queue_that_does_not_answer_is_opened_and_closed_at_once() -> None:
    """A worker that opens it hears of a signal meanwhile, and has not half a minute for it."""

    async def opened(port: int) -> float:
        began = time.monotonic()
        async with open_queue(f"postgresql://nobody@127.0.0.1:{port}/none").open_async():
            await asyncio.sleep(0.2)
        return time.monotonic() - began

    with socket.create_server(("127.0.0.1", 0)) as mute:
        assert asyncio.run(opened(mute.getsockname()[1])) < 4


def test_it_listens_to_signals_before_it_asks_the_database_anything(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        url = f"postgresql://nobody@127.0.0.1:{mute.getsockname()[1]}/none"
        patient = {"TURN_JOURNAL_POSTGRES_TIMEOUT": "100"}
        worker = FleetWorker(url, tmp_path, "worker", lease=6.0, environment=patient)
        try:
            mute.settimeout(60)
            with mute.accept()[0]:
                code, answer = worker.stop()  # nobody waits for the answer, which has a hundred seconds
        finally:
            worker.kill()
    assert (code, json.loads(answer)) == (0, {"ok": True, "events": {}, "left": 0})
    said = worker.said()
    assert (" stopping: SIGTERM" in said, " stopped: no turns" in said, " started" in said) == (True, True, False)


@pytest.mark.parametrize(("state", "code"), [("idle", 0), ("driving", 1), ("stopping", 1)])
def test_a_worker_that_is_cut_off_ends_soon_after_the_grace(
    state: str, code: int, database: str, tmp_path: Path, eventually: Eventually
) -> None:
    fleet = Fleet(database, tmp_path)
    if state != "idle":
        (tmp_path / "hold").write_text("tool")
        fleet.defer("held")
    with Proxy(database) as way:
        worker = FleetWorker(way.url, tmp_path, "worker", lease=6.0, arguments=["--every", "1", "--grace", "2"])
        try:
            eventually(worker.has_started, 60)
            if state == "idle":
                time.sleep(2)  # it looks for turns now
            else:
                eventually(lambda: (tmp_path / "held").exists(), 60)
            if state == "stopping":
                worker.send(signal.SIGTERM)
                eventually(lambda: " stopping: " in worker.said())
            way.cut_off()
            told = time.monotonic()
            if state != "stopping":
                worker.send(signal.SIGTERM)
            assert worker.wait()[0] == code, worker.said()
            # The grace, and of the turn, the queue, and what is left of both: six seconds, five, and one.
            assert time.monotonic() - told < 28, worker.said()
        finally:
            worker.kill()
            way.come_back()
    emptied(database)
