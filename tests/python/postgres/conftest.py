"""Databases that are ready for turns."""

from __future__ import annotations

import pytest
from tests.python.cli.conftest import command

from turn_journal_runtime.bridge import default_client

__all__ = ["command", "root"]


@pytest.fixture
def root(postgres_url: str) -> str:
    """The URL of an empty root of this test."""
    default_client().call("store.migrate", {"runtime_root": postgres_url})
    return postgres_url
