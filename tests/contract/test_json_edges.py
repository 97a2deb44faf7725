"""JSON at its edges, from Python to the store and back, with the right value: runtime.md, section 4.

The texts that only a file can hold are contract cases (json-texts.json).
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

import pytest
from tests.contract.cases import journal_of, operation_id

from turn_journal_runtime.errors import InvalidJournalError, JournalCorruptError, TurnJournalError
from turn_journal_runtime.journal import (
    inspect_turn_journal,
    interpret_turn_journal_projection,
    load_turn_journal,
    turn_journal_path,
    write_turn_journal,
)
from turn_journal_runtime.json_values import MAX_DEPTH, MAX_JOURNAL_BYTES

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from turn_journal_runtime.bridge import RuntimeClient

PLAIN: dict[str, Any] = journal_of("plain")
QUESTION: dict[str, Any] = {"goal_id": "ship-it", "agent_id": "coder", "turn_key": "night-1"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return turn_journal_path(tmp_path, goal_id="ship-it", turn_key="night-1")


def nested(levels: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(levels - 1):
        value = [value]
    return value


def of_size(size: int) -> dict[str, Any]:
    """A journal of so many bytes as compact JSON."""
    empty = len(json.dumps(PLAIN | {"x": ""}, separators=(",", ":")))
    return PLAIN | {"x": "a" * (size - empty)}


KEPT: dict[str, tuple[Any, Any]] = {
    "2^53-1": (2**53 - 1, 2**53 - 1),
    "-(2^53-1)": (-(2**53) + 1, -(2**53) + 1),
    "2^53 as a float": (2.0**53, 2.0**53),
    "a whole float beyond every integer": (1e22, 1e22),
    "the greatest double": (1.7976931348623157e308, 1.7976931348623157e308),
    "the smallest double": (5e-324, 5e-324),
    "one tenth": (0.1, 0.1),
    "minus zero is zero": (-0.0, 0),
    "a whole float is an integer": (1.0, 1),
    "true is not one": (True, True),
    "U+0000": ("a\0b", "a\0b"),
    "a pictograph": ("😀", "😀"),
    "an empty key": ({"": 1}, {"": 1}),
    "keys beyond the basic plane": ({"😀": 1, "\ufb33": 2, "a": 3}, {"😀": 1, "\ufb33": 2, "a": 3}),
    "keys of JavaScript's objects": (
        {"__proto__": {"a": 1}, "constructor": {"prototype": 2}, "toString": None, "hasOwnProperty": 0},
        {"__proto__": {"a": 1}, "constructor": {"prototype": 2}, "toString": None, "hasOwnProperty": 0},
    ),
    "keys that are numbers": ({"10": 1, "9": 2, "-0": 3}, {"10": 1, "9": 2, "-0": 3}),
    "ten thousand keys": ({f"k{n}": n for n in range(10_000)}, {f"k{n}": n for n in range(10_000)}),
}


@pytest.mark.parametrize("name", KEPT)
def test_what_is_stored_comes_back(name: str, path: Path, client: RuntimeClient) -> None:
    sent, back = KEPT[name]
    written = write_turn_journal(path, PLAIN | {"x": sent}, client=client)
    found = load_turn_journal(path, client=client)["x"]
    assert found == back
    assert type(found) is type(back)
    assert json.dumps(found, sort_keys=True) == json.dumps(back, sort_keys=True)
    assert written["operation_id"] == operation_id(PLAIN | {"x": sent})


REFUSED: dict[str, tuple[Any, str, str]] = {
    "2^53": (2**53, "number_out_of_range", "$.x"),
    "-2^53": (-(2**53), "number_out_of_range", "$.x"),
    "an integer of four hundred digits": ([10**400], "number_out_of_range", "$.x[0]"),
    "NaN": ({"a": [math.nan]}, "number_out_of_range", "$.x.a[0]"),
    "an infinity": (math.inf, "number_out_of_range", "$.x"),
    "minus an infinity": (-math.inf, "number_out_of_range", "$.x"),
    "1e400": (float("1e400"), "number_out_of_range", "$.x"),
    "half a surrogate pair": ({"a b": "\ud800"}, "invalid_text", '$.x["a b"]'),
    "a pair as two halves": ("\ud83d\ude00", "invalid_text", "$.x"),
    "half a surrogate pair in a key": ({"\udc00": 1}, "invalid_text", "$.x['\\udc00']"),
    "a key that is a number": ({1: 2}, "not_json", "$.x[1]"),
    "a key that is None": ({None: 2}, "not_json", "$.x[<NoneType>]"),
    "a tuple": ((1, 2), "not_json", "$.x"),
    "a set": ([{1}], "not_json", "$.x[0]"),
    "bytes": (b"a", "not_json", "$.x"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_json_is_refused_with_its_place(name: str, path: Path, client: RuntimeClient) -> None:
    value, reason, place = REFUSED[name]
    for ask in _both(PLAIN | {"x": value}, path, client):
        with pytest.raises(InvalidJournalError) as refused:
            ask()
        assert refused.value.kind == "journal_snapshot_invalid"
        assert (refused.value.details["reason"], refused.value.details["path"]) == (reason, place)
    assert not path.exists()


def _both(journal: dict[str, Any], path: Path, client: RuntimeClient) -> list[Callable[[], Any]]:
    return [
        lambda: interpret_turn_journal_projection(journal, **QUESTION, client=client),
        lambda: write_turn_journal(path, journal, client=client),
    ]


def test_128_levels_and_not_129(path: Path, client: RuntimeClient) -> None:
    deep = PLAIN | {"x": nested(MAX_DEPTH - 1)}
    for ask in _both(deep, path, client):
        ask()
    assert load_turn_journal(path, client=client) == deep
    for ask in _both(PLAIN | {"x": nested(MAX_DEPTH)}, path, client):
        with pytest.raises(InvalidJournalError) as refused:
            ask()
        assert refused.value.kind == "journal_too_deep"
        assert refused.value.details["path"] == "$.x" + "[0]" * (MAX_DEPTH - 1)
    assert load_turn_journal(path, client=client) == deep


def test_129_levels_in_a_file_are_damage(path: Path, client: RuntimeClient) -> None:
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps(PLAIN | {"x": nested(MAX_DEPTH)}), "utf-8")
    with pytest.raises(JournalCorruptError) as damaged:
        load_turn_journal(path, client=client)
    assert damaged.value.details["reason"] == "too_deep"


def test_8_mib_and_not_one_byte_more(path: Path, client: RuntimeClient) -> None:
    large = of_size(MAX_JOURNAL_BYTES)
    for ask in _both(large, path, client):
        ask()
    assert load_turn_journal(path, client=client) == large
    for ask in _both(of_size(MAX_JOURNAL_BYTES + 1), path, client):
        with pytest.raises(InvalidJournalError) as refused:
            ask()
        assert refused.value.kind == "journal_too_large"
    assert load_turn_journal(path, client=client) == large


def test_one_byte_more_in_a_file_is_damage_and_white_space_is_not(path: Path, client: RuntimeClient) -> None:
    path.parent.mkdir(parents=True)
    text = json.dumps(of_size(MAX_JOURNAL_BYTES + 1), separators=(",", ":"))
    path.write_text(text, "utf-8")
    for ask in (
        lambda: load_turn_journal(path, client=client),
        lambda: inspect_turn_journal(path.parents[3], **QUESTION, client=client),
        lambda: write_turn_journal(path, PLAIN, client=client),
    ):
        with pytest.raises(JournalCorruptError) as damaged:
            ask()
        assert damaged.value.details["reason"] == "too_large"
        assert damaged.value.details["bytes"] == MAX_JOURNAL_BYTES + 1
    assert path.read_text("utf-8") == text
    path.write_text(json.dumps(of_size(MAX_JOURNAL_BYTES), indent=8), "utf-8")
    assert load_turn_journal(path, client=client) == of_size(MAX_JOURNAL_BYTES)


def test_bytes_are_counted_not_characters(path: Path, client: RuntimeClient) -> None:
    with pytest.raises(InvalidJournalError) as refused:
        write_turn_journal(path, PLAIN | {"x": "é" * (MAX_JOURNAL_BYTES // 2)}, client=client)
    assert refused.value.kind == "journal_too_large"
    write_turn_journal(path, PLAIN | {"x": "é" * (MAX_JOURNAL_BYTES // 2 - 1000)}, client=client)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "syntax"),
        (b"[]", "not_an_object"),
        (b"null", "not_an_object"),
        (b'"\xff"', "invalid_utf8"),
        (b'{"a":"\xed\xa0\x80"}', "invalid_utf8"),
        (b"\xef\xbb\xbf{}", "syntax"),
        (b"{}{}", "syntax"),
        (b"\0", "syntax"),
    ],
)
def test_a_file_that_is_no_journal_is_damage_and_stays(
    content: bytes, reason: str, path: Path, client: RuntimeClient
) -> None:
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    for ask in (lambda: load_turn_journal(path, client=client), lambda: write_turn_journal(path, PLAIN, client=client)):
        with pytest.raises(TurnJournalError) as damaged:
            ask()
        assert (damaged.value.kind, damaged.value.details["reason"]) == ("journal_corrupt", reason)
    assert path.read_bytes() == content
