"""Turns that are killed in the middle again and again, on several workers: all end, and each effect happens once."""

from __future__ import annotations

import random
import secrets
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.conftest import SOAK

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.chaos.hosts.fleet import Fleet, FleetWorker
    from tests.conftest import Eventually

pytestmark = pytest.mark.chaos

TURNS, WORKERS, CONCURRENCY = (200, 4, 8) if SOAK else (20, 2, 3)
#: Seconds that a tool takes before and after its effect.
PAUSE = 0.3 if SOAK else 0.1
#: Seconds between two kills.
BETWEEN = 1.0 if SOAK else 0.4
#: Kills in the everyday share: one for each worker, and one more.
KILLS = None if SOAK else WORKERS + 1


@pytest.mark.timeout(900)
def test_turns_of_workers_that_are_killed_all_end_and_do_nothing_twice(
    fleet: Fleet, hire: Callable[..., FleetWorker], eventually: Eventually
) -> None:
    seed = secrets.randbits(32)
    print(f"\nTURN_JOURNAL_SEED={seed}")
    chance = random.Random(seed)
    for number in range(TURNS):
        assert fleet.defer(f"todo-{number}")
    begun = time.monotonic()
    started = 0
    workers: list[FleetWorker] = []

    def start(at: int) -> None:
        nonlocal started
        started += 1
        arguments: list[Any] = ["--concurrency", str(CONCURRENCY), "--every", "1"]
        # Many are started in one test; what they have to wait for is their leases.
        workers[at:at] = [hire(f"worker-{started}", *arguments, lease=3.0, environment={"FLEET_PAUSE": str(PAUSE)})]

    for at in range(WORKERS):
        start(at)
    kills = 0
    in_the_middle: Counter[str] = Counter()
    eventually(lambda: fleet.committed() > 0, 60)
    while fleet.committed() < TURNS and (KILLS is None or kills < KILLS):
        time.sleep(BETWEEN)
        # Those that have nothing at hand yet are left to it: nothing would ever be done.
        at_work = [at for at, worker in enumerate(workers) if _open_turns(worker.said())]
        if at_work:
            at = chance.choice(at_work)
            worker = workers.pop(at)
            worker.kill()
            kills += 1
            in_the_middle += _open_turns(worker.said())
            start(at)
    eventually(lambda: fleet.committed() == TURNS, 600)
    seconds = time.monotonic() - begun
    assert kills > 0
    assert in_the_middle
    print(
        f"{TURNS} turns on {WORKERS} workers in {seconds:.1f} s: {kills} workers killed, {len(in_the_middle)} turns "
        f"{in_the_middle.total()} times in the middle"
    )
    for worker in workers:
        eventually(worker.has_started, 60)  # before, a signal ends any program
        code, _ = worker.stop()
        assert code == 0, worker.said()
    fleet.assert_each_effect_happened_once(TURNS)


def _open_turns(log: str) -> Counter[str]:
    """The turns that a worker had taken and not let go of."""
    told = Counter((event, name) for _, _, event, name, *_ in (line.split(maxsplit=4) for line in log.splitlines()))
    taken = Counter({name: count for (event, name), count in told.items() if event == "took"})
    return taken - Counter({name: count for (event, name), count in told.items() if event in ("done", "waits")})
