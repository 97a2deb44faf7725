"""What is stored is what is read, or it is refused with its place. run-journal.md, sections 1 and 5."""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import sqlite3
import uuid
from collections import OrderedDict, UserDict, namedtuple
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest
import rfc8785
from hypothesis import given
from hypothesis import strategies as st

from turn_journal_runtime.errors import InvalidJournalError, JournalCorruptError
from turn_journal_runtime.run_journal import KIND_MODEL_DECISION, JournalEvent, RunJournal
from turn_journal_runtime.run_journal.payload import (
    MAX_DEPTH,
    DamagedPayload,
    canonical,
    decode,
    differing_fields,
    digest,
    encode,
    same,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def stored(journal: RunJournal, payload: Any) -> Any:
    journal.append(JournalEvent("r", 0, KIND_MODEL_DECISION, payload))
    (event,) = journal.events("r")
    return event.payload


def nested(depth: int, leaf: Any = 0) -> Any:
    value = leaf
    for _ in range(depth):
        value = [value]
    return value


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(10**40), max_value=10**40)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=20,
)


def typed(value: Any) -> Any:
    """A value with its types, in which 1, 1.0 and True are three things."""
    if isinstance(value, dict):
        return {key: typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [typed(item) for item in value]
    return (type(value), math.copysign(1, value) if isinstance(value, float) else None, value)


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_any_json_object_survives_exactly(payload: dict[str, Any]) -> None:
    assert typed(decode(encode(payload))) == typed(payload)


@pytest.mark.parametrize("digits", [19, 20, 309, 4300, 4301, 50_000])
@pytest.mark.parametrize("sign", [1, -1])
def test_integers_of_any_size_survive(journal: RunJournal, digits: int, sign: int) -> None:
    number = sign * (10**digits // 7)
    assert stored(journal, {"n": number, "near": [2**63, 2**64, -(2**63) - 1]})["n"] == number


def test_the_file_holds_the_digits(journal: RunJournal, path: Path) -> None:
    stored(journal, {"n": 2**64 + 1, "f": 1e20, "w": 5.0})
    with sqlite3.connect(path) as reader:
        (text,) = reader.execute("SELECT payload FROM journal").fetchone()
    reader.close()
    assert text == '{"n":18446744073709551617,"f":1e+20,"w":5.0}'


@pytest.mark.parametrize(
    "text", ["", "\0", "a\nb", '"\\', "ü€😀", "e\u0301 is not \u00e9", "\u2028", "__proto__", "x" * 1_000_000]
)
def test_text_survives_as_key_and_value(journal: RunJournal, text: str) -> None:
    assert stored(journal, {text: text, "list": [text]}) == {text: text, "list": [text]}


def test_ten_megabytes_survive(journal: RunJournal) -> None:
    payload = {"text": "ü" * 5_000_000, "items": [{"id": n, "name": f"item {n}"} for n in range(20_000)]}
    assert stored(journal, payload) == payload


def test_nesting_up_to_the_limit_survives(journal: RunJournal) -> None:
    payload = {"list": nested(MAX_DEPTH)}
    assert stored(journal, payload) == payload


class Colour(enum.Enum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Name(str):
    __slots__ = ()


Point = namedtuple("Point", "x y")


class Thing:
    def __repr__(self) -> str:
        return "Thing()"

    def __str__(self) -> str:
        return "a thing"


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (float("nan"), "nan"),
        (float("inf"), "inf"),
        (float("-inf"), "-inf"),
        (Thing(), "a thing"),
        (datetime.datetime(2024, 1, 2, 3, 4, 5), "2024-01-02 03:04:05"),
        (datetime.date(2024, 1, 2), "2024-01-02"),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (decimal.Decimal("1.50"), "1.50"),
        (Path("/a/b"), "/a/b"),
        (b"raw", "b'raw'"),
        ({3}, "{3}"),
        (Colour.RED, "Colour.RED"),
        (Level.HIGH, 3),
        (Name("ann"), "ann"),
        ((1, (2, 3)), [1, [2, 3]]),
        (Point(1, 2), [1, 2]),
        (OrderedDict(a=1), {"a": 1}),
        (MappingProxyType({"a": 1}), {"a": 1}),
        (ValueError("no"), "no"),
        ("half \ud83d", "half \ud83d"),
        ({"\udc00": b"\\"}, {"\udc00": r"b'\\'"}),
        ({1: "a", None: 2.5, False: 3, 0.5: 4, Level.HIGH: 5}, {"1": "a", "null": 2.5, "false": 3, "0.5": 4, "3": 5}),
        ({("x", 1): {uuid.UUID(int=1): []}}, {"('x', 1)": {"00000000-0000-0000-0000-000000000001": []}}),
        (None, None),
        (True, True),
    ],
    ids=repr,
)
def test_what_is_not_json_is_stored_as_its_text(journal: RunJournal, value: Any, expected: Any) -> None:
    found = stored(journal, {"top": value, "deep": [{"x": value}]})
    assert found == {"top": expected, "deep": [{"x": expected}]}
    assert type(found["top"]) is type(expected)


class Untold:
    def __str__(self) -> str:
        raise RuntimeError


def itself() -> dict[str, Any]:
    payload: dict[str, Any] = {"a": {}}
    payload["a"]["b"] = [payload]
    return payload


@pytest.mark.parametrize(
    ("make", "reason", "place"),
    [
        (lambda: {"a": [{1: "x", "1": "y"}]}, "same_keys", "$.a[0]"),
        (lambda: {"a": Untold()}, "has_no_text", "$.a"),
        (lambda: {"a": {Untold(): 1}}, "has_no_text", "$.a"),
        (itself, "refers_to_itself", "$.a.b[0]"),
        (lambda: {"a": nested(MAX_DEPTH + 1)}, "too_deep", "$.a" + "[0]" * (MAX_DEPTH)),
        (lambda: nested(1), "not_json", "$"),
        (lambda: "text", "not_json", "$"),
        (lambda: None, "not_json", "$"),
    ],
)
def test_what_cannot_be_stored_is_refused_with_its_place(
    journal: RunJournal, make: Callable[[], Any], reason: str, place: str
) -> None:
    with pytest.raises(InvalidJournalError) as caught:
        journal.append(JournalEvent("r", 0, KIND_MODEL_DECISION, make()))
    assert (caught.value.details["reason"], caught.value.details["path"]) == (reason, place)
    assert isinstance(caught.value, ValueError)
    assert journal.events("r") == []


def test_a_list_that_stands_twice_refers_to_nobody(journal: RunJournal) -> None:
    twice = [1, {"a": float("nan")}]
    assert stored(journal, {"x": twice, "y": [twice, twice]})["y"] == [[1, {"a": "nan"}]] * 2


@pytest.mark.parametrize("key", [1, None, ("x",)])
def test_what_is_compared_has_keys_of_text(key: Any) -> None:
    with pytest.raises(InvalidJournalError, match="keys are text"):
        encode({"args": {key: 1}}, is_identity=True)


@given(st.dictionaries(st.text(), json_values, max_size=5))
def test_what_takes_the_exact_way_is_written_as_any_other(payload: dict[str, Any]) -> None:
    exact = encode({"set": {3}, "value": payload})
    assert exact == b'{"set":"{3}","value":' + encode(payload) + b"}"


def test_a_mapping_is_a_payload(journal: RunJournal) -> None:
    assert stored(journal, UserDict({"a": 1})) == {"a": 1}


@pytest.mark.parametrize("text", ["", "{", '{"a":1}{"b":2}', "1e999", '{"a":1e400}', "nul", "[" * 100_000, "'a'"])
def test_damage_is_an_error_that_names_the_row(journal: RunJournal, path: Path, text: str) -> None:
    stored(journal, {"fine": 1})
    journal.append(JournalEvent("r", 7, KIND_MODEL_DECISION, {"fine": 2}))
    with sqlite3.connect(path) as writer:
        writer.execute("UPDATE journal SET payload = ? WHERE seq = 7", (text,))
    writer.close()
    for read in (journal.events, journal.replay_index):
        with pytest.raises(JournalCorruptError, match="run 'r', step 7, model_decision") as caught:
            read("r")
        assert caught.value.details == {"run_id": "r", "seq": 7, "kind": "model_decision"}


def test_bytes_that_are_no_utf8_are_damage(journal: RunJournal, path: Path) -> None:
    stored(journal, {"fine": 1})
    with sqlite3.connect(path) as writer:
        writer.execute("UPDATE journal SET payload = CAST(x'7b22ff223a317d' AS TEXT)")
    writer.close()
    with pytest.raises(JournalCorruptError, match="step 0"):
        journal.events("r")


def test_damaged_metadata_is_an_error_that_names_the_run(journal: RunJournal, path: Path) -> None:
    journal.open_run("r", metadata={"a": 1})
    with sqlite3.connect(path) as writer:
        writer.execute("UPDATE runs SET metadata = '{'")
    writer.close()
    with pytest.raises(JournalCorruptError, match="metadata of run 'r'"):
        journal.run_meta("r")


def test_redaction_runs_before_anything_is_stored(path: Path) -> None:
    def redact(payload: dict[str, Any]) -> dict[str, Any]:
        return {key: "***" if key in ("token", "task") else value for key, value in payload.items()}

    given_payload = {"token": "s3cret", "n": 1}
    with RunJournal(path, redact=redact) as journal:
        journal.open_run("r", agent="a", task="use s3cret", metadata={"m": 1})
        journal.append(JournalEvent("r", 0, KIND_MODEL_DECISION, given_payload))
        journal.append_many([JournalEvent("r", 1, KIND_MODEL_DECISION, given_payload)])
        run = journal.run_meta("r")
        assert run is not None
        assert (run.agent, run.task, run.metadata) == ("a", "***", {"m": 1})
        assert [event.payload for event in journal.events("r")] == [{"token": "***", "n": 1}] * 2
    assert given_payload == {"token": "s3cret", "n": 1}, "the caller's own is untouched"
    assert not [file for file in path.parent.iterdir() if file.is_file() and b"s3cret" in file.read_bytes()]


# The canonical form


def _in_double_range(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _in_double_range(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_in_double_range(item) for item in value]
    return value if not isinstance(value, int) or abs(value) < 2**53 else float(value)


@given(json_values.map(_in_double_range))
def test_canonical_is_rfc_8785(value: Any) -> None:
    assert canonical(value) == rfc8785.dumps(value)


@given(json_values)
def test_canonical_reads_back_as_an_equal_value(value: Any) -> None:
    assert same(decode(canonical({"v": value}))["v"], value)


def test_canonical_equality_is_of_values_and_never_of_types() -> None:
    assert same({"a": 1, "b": [1.0]}, {"b": [1], "a": 1.0})
    assert same(1e20, 10**20)
    assert not same(True, 1)
    assert not same(0, False)
    assert not same(2**53, 2**53 + 1)
    assert not same("1", 1)
    assert not same(None, {})
    assert digest({"b": 1, "a": 2}) == digest({"a": 2, "b": 1}) != digest({"a": 2})


def test_differing_fields_are_named_by_their_place() -> None:
    recorded = {"a": 1, "b": {"c": [1], "d": 2}, "gone": 0}
    issued = {"a": 1.0, "b": {"c": [2], "d": 2}, "new": 0}
    assert differing_fields(recorded, issued) == ["b.c", "gone", "new"]
    assert differing_fields(recorded, dict(recorded)) == []
    assert differing_fields([1], [2], "args") == ["args"]


@given(st.binary())
def test_any_bytes_decode_or_are_damage(text: bytes) -> None:
    with suppress(DamagedPayload):
        decode(text)
