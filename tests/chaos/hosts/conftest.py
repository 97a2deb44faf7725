"""A database, and workers that do not outlive their test."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from tests.chaos.hosts.fleet import Fleet, FleetWorker
from tests.python.turns.roots import migrated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.conftest import PostgresServer


@pytest.fixture
def fleet(postgres_server: PostgresServer, tmp_path: Path) -> Iterator[Fleet]:
    """A database with all tables, and a world in which nothing has happened."""
    with migrated(postgres_server.url) as url:
        yield Fleet(url, tmp_path)


@pytest.fixture
def hire(fleet: Fleet) -> Iterator[Callable[..., FleetWorker]]:
    """Starts workers, and ends those that are left."""
    hired: list[FleetWorker] = []

    def start(name: str, *arguments: str, lease: float = 3.0, url: str | None = None, **options: Any) -> FleetWorker:
        worker = FleetWorker(url or fleet.url, fleet.world, name, lease=lease, arguments=arguments, **options)
        hired.append(worker)
        return worker

    yield start
    for worker in hired:
        worker.kill()
