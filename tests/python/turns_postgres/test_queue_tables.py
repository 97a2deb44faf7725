"""The tables of the queue. session-recovery.md, section 3."""

from __future__ import annotations

import pytest

from turn_journal_runtime.errors import JournalStoreError
from turn_journal_runtime.worker.schema import migrate


def test_a_search_path_without_a_schema_is_said_to_be_so(postgres_url: str) -> None:
    with pytest.raises(JournalStoreError, match="CREATE SCHEMA") as caught:
        migrate(f"{postgres_url}?options=-csearch_path%3Dnowhere")
    assert caught.value.kind == "store_schema_missing"
