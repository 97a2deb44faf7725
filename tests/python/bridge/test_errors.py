"""One tree of errors, as a table."""

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

from turn_journal_runtime import errors
from turn_journal_runtime.bridge.failures import ERROR_CLASSES, error_of
from turn_journal_runtime.bridge.schemas import load
from turn_journal_runtime.errors import TurnJournalError

#: Class → its kind when none is given, whether the same call may be repeated, its bases beside the root.
TABLE: dict[str, tuple[str, bool, tuple[type, ...]]] = {
    "InvalidJournalError": ("journal_snapshot_invalid", False, (ValueError,)),
    "JournalConflictError": ("journal_transition_conflict", False, ()),
    "JournalNotFoundError": ("journal_not_found", False, ()),
    "JournalCorruptError": ("journal_corrupt", False, ()),
    "JournalStoreError": ("store_io_failed", False, ()),
    "StoreUnavailableError": ("store_unavailable", True, (errors.JournalStoreError,)),
    "TurnBusyError": ("turn_busy", True, ()),
    "RuntimeUnavailableError": ("runtime_unavailable", False, ()),
    "RuntimeTimeoutError": ("runtime_timeout", False, ()),
    "RuntimeCrashedError": ("runtime_crashed", True, ()),
    "ProtocolError": ("protocol_error", False, ()),
}


@pytest.mark.parametrize("name", TABLE)
def test_each_error_has_its_kind_its_details_and_its_place_in_the_tree(name: str) -> None:
    kind, is_retryable, bases = TABLE[name]
    error_class: type[TurnJournalError] = getattr(errors, name)
    error = error_class("what is wrong and what to do", details={"path": "$.a"})
    assert issubclass(error_class, TurnJournalError)
    assert all(issubclass(error_class, base) for base in bases)
    assert (error.kind, error.is_retryable, error.details, str(error)) == (
        kind,
        is_retryable,
        {"path": "$.a"},
        "what is wrong and what to do",
    )
    assert error_class("", kind="another").kind == "another"


@pytest.mark.parametrize("name", ["TurnJournalError", *TABLE])
def test_each_error_survives_pickle_and_copy(name: str) -> None:
    error = getattr(errors, name)("words", kind="a_kind", details={"a": [1, {"b": None}]})
    for other in (pickle.loads(pickle.dumps(error)), copy.deepcopy(error)):  # noqa: S301
        assert (type(other), str(other), other.kind, other.details) == (type(error), "words", "a_kind", error.details)


def test_the_docstring_draws_every_class_of_the_bridge() -> None:
    assert all(name in str(errors.__doc__) for name in TABLE)


@pytest.mark.parametrize("row", load("errors")["errors"], ids=lambda row: row["error"])
def test_every_error_of_the_core_has_a_class_here(row: dict[str, Any]) -> None:
    error_class = ERROR_CLASSES[row["error"]]
    for kind in row["kinds"]:
        wire = {"code": row["code"], "message": "m", "data": {"kind": kind, "error": row["error"], "details": {"a": 1}}}
        error = error_of(wire)
        assert (type(error), error.kind, error.details, str(error)) == (error_class, kind, {"a": 1}, "m")
    assert error_class.is_retryable == row["retryable"]
