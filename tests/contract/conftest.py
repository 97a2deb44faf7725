"""One core for all contract tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from turn_journal_runtime.bridge import RuntimeClient

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="session")
def client() -> Iterator[RuntimeClient]:
    with RuntimeClient() as client:
        yield client
