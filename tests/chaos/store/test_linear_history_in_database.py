"""Clients of both languages in several processes write to the same turns in PostgreSQL, and are killed at random, and
so is the server: the history is one linear order in which every acknowledged write stands once, and none twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.chaos.store.many_clients import Shaking, Shape, many_clients
from tests.conftest import SOAK

from turn_journal_runtime.bridge import default_client

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import PostgresServer

pytestmark = pytest.mark.chaos

SHAPE = Shape(processes=2, clients=4, calls=200 if SOAK else 25, turns=8, kill_pace=80 if SOAK else 60)
#: Writes between two ends of the server.
RESTART_PACE = 250 if SOAK else 120


@pytest.mark.timeout(1800)
def test_one_linear_order_in_a_database(
    node: str, tmp_path: Path, postgres_server: PostgresServer, postgres_url: str
) -> None:
    default_client().call("store.migrate", {"runtime_root": postgres_url})
    shaking = Shaking(postgres_server.restart, RESTART_PACE)
    counts = many_clients(node, postgres_url, tmp_path, SHAPE, shaking)
    assert counts["killed"] > 2
    assert counts["shaken"] > 1
