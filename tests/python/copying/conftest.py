"""Databases that are ready for turns and runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.python.cli.conftest import command

from turn_journal_runtime.bridge import default_client
from turn_journal_runtime.run_journal import postgres

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["command"]


@pytest.fixture
def database(postgres_url: str) -> str:
    """A database with the tables of turns and runs."""
    default_client().call("store.migrate", {"runtime_root": postgres_url})
    postgres.migrate(postgres_url)
    return postgres_url


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Where a folder that is copied is to be."""
    return tmp_path / "source"
