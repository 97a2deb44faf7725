"""Drivers that the tests of a module share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.chaos.turns.drivers import DriverServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def server() -> Iterator[DriverServer]:
    started = DriverServer()
    yield started
    started.close()
