"""JSON that survives the trip: the fast look and the slow one agree, and the fault has its place."""

from __future__ import annotations

import datetime
import decimal
import enum
import json
import math
import uuid
from collections import OrderedDict, defaultdict
from typing import Any, NamedTuple

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turn_journal_runtime.errors import InvalidJournalError
from turn_journal_runtime.json_values import encode, encode_params


class Word(enum.StrEnum):
    A = "a"


class Number(enum.IntEnum):
    ONE = 1


class Pair(NamedTuple):
    left: int
    right: int


class Text(str):
    __slots__ = ()


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


REFUSED = {
    "tuple": ({"a": {"b": [0, (1, 2)]}}, "$.a.b[1]", "not_json"),
    "named tuple": ([Pair(1, 2)], "$[0]", "not_json"),
    "set": ({"a": {1}}, "$.a", "not_json"),
    "bytes": ({"a": b"x"}, "$.a", "not_json"),
    "date": ({"a": datetime.datetime.now(datetime.UTC)}, "$.a", "not_json"),
    "decimal": ({"a": decimal.Decimal(1)}, "$.a", "not_json"),
    "uuid": ({"a": uuid.UUID(int=0)}, "$.a", "not_json"),
    "enum": ({"a": Word.A}, "$.a", "not_json"),
    "int enum": ({"a": Number.ONE}, "$.a", "not_json"),
    "text subclass": ({"a": Text("x")}, "$.a", "not_json"),
    "dict subclass": ({"a": OrderedDict()}, "$.a", "not_json"),
    "default dict": (defaultdict(int), "$", "not_json"),
    "object": ({"a": object()}, "$.a", "not_json"),
    "int key": ({"a": {1: 2}}, "$.a[1]", "not_json"),
    "bool key": ({True: 2}, "$[<bool>]", "not_json"),
    "enum key": ({Word.A: 2}, "$[<Word>]", "not_json"),
    "nan": ({"plan": {"phases": [1.0, 2.0, math.nan]}}, "$.plan.phases[2]", "number_out_of_range"),
    "infinity": ({"a": -math.inf}, "$.a", "number_out_of_range"),
    "big integer": ({"a": 2**53}, "$.a", "number_out_of_range"),
    "big negative integer": ([-(2**53)], "$[0]", "number_out_of_range"),
    "lone surrogate": ({"a": ["x", "\ud800"]}, "$.a[1]", "invalid_text"),
    "lone surrogate key": ({"a": {"\udfff": 1}}, "$.a['\\udfff']", "invalid_text"),
    "odd key": ({'a "b"': {"ä": None, "c-d": b""}}, '$["a \\"b\\""]["c-d"]', "not_json"),
    "first of two": ({"a": math.nan, "b": b""}, "$.a", "number_out_of_range"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_not_survive_is_refused_with_its_place(name: str) -> None:
    value, path, reason = REFUSED[name]
    with pytest.raises(InvalidJournalError) as refused:
        encode(value)
    assert (refused.value.kind, refused.value.details) == (
        "journal_snapshot_invalid",
        {"parameter": "journal", "path": path, "reason": reason},
    )
    assert path in str(refused.value)


@pytest.mark.parametrize(
    "value", [2**53 - 1, -(2**53) + 1, 1e300, -0.0, 5e-324, "\U0010ffff", "\0", {"__proto__": 1}, []]
)
def test_the_edges_of_what_survives_are_accepted(value: Any) -> None:
    assert orjson.loads(encode({"a": value})) == {"a": value}


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**54), 2**54)
    | st.floats()
    | st.text(st.characters(exclude_categories=()), max_size=6)
    | st.sampled_from([(1,), {1}, b"x", Word.A, Number.ONE, uuid.UUID(int=1), Text("t")]),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4) | st.integers(0, 3), inner, max_size=4)
    ),
    max_leaves=10,
)


@given(VALUES)
def test_a_value_is_accepted_exactly_when_it_is_the_same_after_the_trip(value: Any) -> None:
    try:
        text = encode(value)
    except InvalidJournalError:
        assert not survives(value)
    else:
        assert survives(value)
        assert json.loads(text) == value


def survives(value: Any) -> bool:
    """The rule, said plainly."""
    if type(value) is dict:
        return all(type(key) is str and survives(key) and survives(item) for key, item in value.items())
    if type(value) is list:
        return all(map(survives, value))
    if type(value) is str:
        return not any(0xD800 <= ord(character) <= 0xDFFF for character in value)
    if type(value) is int:
        return abs(value) < 2**53
    return value is None or type(value) is bool or (type(value) is float and math.isfinite(value))


def test_depth_is_counted_from_the_journal_itself() -> None:
    encode(nested(128))
    encode_params({"journal": nested(128), "other": nested(128)})
    for value in (nested(129), {"a": nested(128)}, {"a": [1] * 500, "b": nested(128)}):
        with pytest.raises(InvalidJournalError) as refused:
            encode_params({"journal": value})
        assert (refused.value.kind, refused.value.details["max_depth"]) == ("journal_too_deep", 128)
    assert len(str(refused.value)) < 400


def test_many_containers_beside_each_other_are_not_deep() -> None:
    encode({"a": [[] for _ in range(10_000)]})


def test_what_contains_itself_is_too_deep() -> None:
    loop: list[Any] = []
    loop.append(loop)
    wide: dict[str, Any] = {}
    wide |= {"a": wide, "b": [wide, wide]}
    for value in (loop, wide):
        with pytest.raises(InvalidJournalError) as refused:
            encode(value)
        assert refused.value.kind == "journal_too_deep"


def test_what_is_shared_so_often_that_it_never_ends_is_too_large() -> None:
    value: list[Any] = ["leaf"]
    for _ in range(100):
        value = [value, value]
    with pytest.raises(InvalidJournalError) as refused:
        encode(value)
    assert refused.value.kind == "journal_too_large"


def test_size_is_counted_in_bytes_of_compact_json() -> None:
    assert len(encode({"a": "ä" * 10}, max_bytes=28)) == 28
    with pytest.raises(InvalidJournalError) as refused:
        encode({"a": "ä" * 10}, max_bytes=27)
    assert (refused.value.kind, refused.value.details["max_bytes"]) == ("journal_too_large", 27)


def test_each_parameter_has_the_limits_for_itself() -> None:
    encode_params({"journal": "x" * 90, "expected": "y" * 90}, max_bytes=100)
    with pytest.raises(InvalidJournalError) as refused:
        encode_params({"journal": "x", "expected": "y" * 99}, max_bytes=100)
    assert refused.value.details["parameter"] == "expected"


def test_a_fault_of_another_parameter_is_an_invalid_request() -> None:
    with pytest.raises(InvalidJournalError) as refused:
        encode_params({"journal": {}, "goal_id": 2**60})
    assert (refused.value.kind, refused.value.details["parameter"]) == ("invalid_request", "goal_id")


def test_messages_carry_no_contents() -> None:
    with pytest.raises(InvalidJournalError) as refused:
        encode({"a": {"s3cr3t-value": Text("s3cr3t")}})
    assert "s3cr3t'" not in str(refused.value)
    with pytest.raises(InvalidJournalError) as long:
        encode({"k" * 1000: b""})
    assert len(str(long.value)) < 300
