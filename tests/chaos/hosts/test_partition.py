"""A host is cut off in the middle of a turn: another takes over, and the first can write nothing when it is back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.chaos.hosts.networks import Network

from turn_journal_runtime import load_turn_journal, turn_history

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.chaos.hosts.fleet import Fleet, FleetWorker
    from tests.conftest import Eventually

pytestmark = pytest.mark.chaos

LEASE = 4.0
#: What a driver that is cut off waits for its database.
ENVIRONMENT = {"TURN_JOURNAL_POSTGRES_TIMEOUT": "2"}


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network(["a", "b"])
    yield made
    made.remove()


# The step in whose middle the host is cut off: of a tool's call the effect has happened, and nobody was told.
@pytest.mark.parametrize("step", ["model", "tool"])
@pytest.mark.parametrize("entry", ["drive", "drive_async"])
@pytest.mark.timeout(300)
def test_a_turn_of_a_host_that_is_cut_off_is_taken_over_and_its_effects_happen_once(
    step: str,
    entry: str,
    network: Network,
    fleet: Fleet,
    hire: Callable[..., FleetWorker],
    eventually: Eventually,
) -> None:
    url = network.forwarded(fleet.url)

    def on(host: str) -> FleetWorker:
        prefix = network.inside(host)
        return hire(host, "--every", "1", url=url, lease=LEASE, entry=entry, prefix=prefix, environment=ENVIRONMENT)

    (fleet.world / "hold").write_text(step)
    assert fleet.defer("todo")
    first = on("a")
    eventually(lambda: (fleet.world / "held").exists(), 60)
    other = on("b")
    eventually(other.has_started, 60)
    network.cut("a")
    eventually(lambda: " done " in other.said(), 90)
    place = fleet.place("todo")
    assert load_turn_journal(place)["status"] == "committed"
    transitions, effects = len(turn_history(place)), fleet.effects()
    assert " done " not in first.said()

    network.mend("a")
    (fleet.world / "go").touch()
    eventually(lambda: " lost " in first.said(), 60)
    assert "nother driver" in first.said()
    assert (len(turn_history(place)), fleet.effects()) == (transitions, effects)
    for worker in (first, other):
        code, answer = worker.stop()
        assert code == 0, worker.said()
        assert json.loads(answer)["events"] == ({"lost": 1} if worker is first else {"done": 1})
        assert "Traceback" not in worker.said()
    fleet.assert_each_effect_happened_once(1)
