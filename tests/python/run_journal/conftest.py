"""Journals for the tests of the run journal."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from turn_journal_runtime.run_journal import RunJournal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "journal.db"


@pytest.fixture
def journal(path: Path) -> Iterator[RunJournal]:
    with RunJournal(path) as journal:
        yield journal
