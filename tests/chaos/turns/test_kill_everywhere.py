"""A whole turn is killed by SIGKILL everywhere and driven again until it ends: each effect is done exactly once."""

from __future__ import annotations

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest
from tests.chaos.turns.drivers import DriverServer
from tests.chaos.turns.turn_program import PROVIDERS, Points, World

from turn_journal_runtime.bridge import default_client
from turn_journal_runtime.turns import TurnRecoveryBlockedError
from turn_journal_runtime.turns.lease import is_driven

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.chaos

SOAK = os.environ.get("TURN_JOURNAL_SOAK") == "1"
SEED = int(os.environ.get("TURN_JOURNAL_SEED", random.SystemRandom().randrange(2**32)))
#: Kills at random instants, over the providers.
RANDOM_KILLS = 300 if SOAK else 15
WORKERS = 2


@pytest.fixture(scope="module")
def servers() -> Iterator[SimpleQueue[DriverServer]]:
    started = [DriverServer() for _ in range(WORKERS)]
    free: SimpleQueue[DriverServer] = SimpleQueue()
    for server in started:
        free.put(server)
    yield free
    for server in started:
        server.close()


@pytest.fixture(scope="module")
def points(servers: SimpleQueue[DriverServer], tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The places of a turn that nobody kills."""
    root = tmp_path_factory.mktemp("whole")
    server = servers.get()
    try:
        killed, outcome = server.drive({"root": str(root)})
    finally:
        servers.put(server)
    assert (killed, outcome["status"]) == (False, "committed")
    assert_done_once(root, "readback", kills=0)
    return list(outcome["points"])


@pytest.mark.timeout(900)
def test_a_turn_is_killed_at_every_boundary(
    servers: SimpleQueue[DriverServer], points: list[str], tmp_path: Path
) -> None:
    assert {"before writeback", "after writeback", "before spend", "after scheduler", "in validation"} <= set(points)
    # Before the first effect is prepared, the kind of its provider makes no difference.
    first_effect = 1 if SOAK else points.index("before writeback")
    cases = [
        (provider, at)
        for provider in PROVIDERS
        for at in range(1 if provider == PROVIDERS[0] else first_effect, len(points) + 1)
    ]

    def run(case: tuple[str, int]) -> int:
        provider, at = case
        root = tmp_path / f"{provider}-{at}"
        root.mkdir()
        server = servers.get()
        try:
            killed, _ = server.drive({"root": str(root), "provider": provider, "kill_at": at})
        finally:
            servers.put(server)
        assert killed, f"{case} was not killed"
        assert_recovered(root, provider, kills=1, where=f"{provider}, at {points[at - 1]}")
        return 1

    with ThreadPoolExecutor(WORKERS) as pool:
        print(f"\nkilled at {sum(pool.map(run, cases))} boundaries: {len(points)} places, {len(PROVIDERS)} providers")


@pytest.mark.timeout(900)
def test_a_turn_is_killed_at_random_instants_until_it_ends(
    servers: SimpleQueue[DriverServer], points: list[str], tmp_path: Path
) -> None:
    print(f"\nTURN_JOURNAL_SEED={SEED}")
    chance = random.Random(SEED)
    cases = [(number, PROVIDERS[number % len(PROVIDERS)], chance.getrandbits(64)) for number in range(RANDOM_KILLS)]

    def run(case: tuple[int, str, int]) -> int:
        number, provider, seed = case
        instant = random.Random(seed)
        root = tmp_path / str(number)
        root.mkdir()
        server = servers.get()
        kills = 0
        try:
            # Killed up to three times, mostly in the middle of the work, then left to its end.
            for _ in range(instant.randrange(1, 4)):
                killed, _ = server.drive(
                    {"root": str(root), "provider": provider}, kill_after=instant.uniform(0.05, 0.6)
                )
                kills += killed
        finally:
            servers.put(server)
        assert_recovered(root, provider, kills, where=f"seed {SEED}, case {number} ({provider})")
        return kills

    with ThreadPoolExecutor(WORKERS) as pool:
        print(f"killed {sum(pool.map(run, cases))} times at random instants of {len(cases)} turns")


def assert_recovered(root: Path, provider: str, kills: int, where: str) -> None:
    """Drives the turn to its end in this process, and looks at what was done outside."""
    world = World(root, Points(), provider)
    try:
        result = world.drive(max_recoveries=10)
    except TurnRecoveryBlockedError as blocked:
        # Nobody can tell whether the effect happened: it is left alone until somebody can.
        reason = blocked.decision["reason"]
        done = [len(table.rows()) for table in world.tables.values()]
        result = World(root, Points(), "readback").drive(max_recoveries=10)
    else:
        reason, done = "", [0]
    with naming(where):
        assert (reason, provider if reason else "") in (("", ""), ("prepared_effect_unknown", "neither"))
        assert max(done) <= 1
        assert result.ok
        assert_done_once(root, provider, kills)


@contextmanager
def naming(where: str) -> Iterator[None]:
    """Says which case it is that failed."""
    try:
        yield
    except AssertionError as error:
        error.add_note(where)
        raise


def assert_done_once(root: Path, provider: str, kills: int) -> None:
    world = World(root, Points(), provider)
    (path,) = (root / "goals" / "goal" / "turns").glob("*.json")
    journal = json.loads(path.read_bytes())
    assert journal["status"] == "committed"
    assert journal["host_result"] == {"result_kind": "validated_completion", "total": 6, "words": "done"}
    for name, table in world.tables.items():
        rows = table.rows()
        assert len(rows) == 1, f"{name} was done {len(rows)} times"
        assert rows[0] == (f"{_effect_id(journal)}#{_STEPS[name]}", json.dumps(journal["host_result"]))
    # The tools ran once; a model may have been asked once more for each kill, the answer being in flight.
    assert world.noted("tools") == ["0", "1", "2"]
    assert 2 <= len(world.noted("models")) <= 2 + kills
    # Each start was recorded before it was made.
    assert len(world.noted("starts")) <= journal["host_attempt_count"] <= 1 + kills
    audit = journal.get("recovery_audit")
    if audit is not None:
        assert audit["planned"]["can_continue"]
        assert audit["actual"]["status"] == "finished"
        assert audit["actual"]["completed_phases"] == journal["completed_phases"]
        assert 1 <= audit["recovery_count"] <= kills
    assert not is_driven(path)
    verified = default_client().call("turn_journal.verify", {"runtime_root": str(root)})
    assert verified["ok"], verified


_STEPS = {"writeback": "durable_writeback", "spend": "quota_spend", "scheduler": "terminal_closeout"}


def _effect_id(journal: dict[str, object]) -> str:
    plan: object = journal["plan"]
    for key in ("transaction", "settlement_plan", "identity", "effect_id"):
        assert isinstance(plan, dict)
        plan = plan[key]
    return str(plan)
