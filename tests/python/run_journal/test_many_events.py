"""Many events at once are stored as each of them alone would be. run-journal.md, section 1."""

from __future__ import annotations

import datetime
import enum
import gc
import sqlite3
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turn_journal_runtime.errors import InvalidJournalError, JournalCorruptError
from turn_journal_runtime.run_journal import (
    KIND_ITERATION,
    KIND_TOOL_CALL,
    KIND_TOOL_RESULT,
    JournalEvent,
    RunJournal,
)
from turn_journal_runtime.run_journal.payload import MAX_DEPTH, DamagedPayload, decode, decode_all, encode, encode_all

if TYPE_CHECKING:
    import random
    from collections.abc import Iterator
    from pathlib import Path


class Colour(enum.Enum):
    RED = "red"


class Word(str):
    __slots__ = ()


class Table(dict[str, Any]):
    pass


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


plain = [None, True, 0, 1, -1, 2**63, 2**64, 10**40, 0.5, 1e300, float("nan"), float("-inf"), "", "null", "ü€😀"]
not_json = [b"raw", {3}, 1j, Colour.RED, Word("w"), Table(a=1), uuid.UUID(int=1), datetime.date(2024, 1, 2), (1, (2,))]
deep_or_wrong = [
    *map(nested, range(MAX_DEPTH - 1, MAX_DEPTH + 2)),
    "x" * 300,
    [[]] * 200,
    {1: "a key"},
    {1: 0, "1": 0},
    "\ud83d",
    len,
]
leaves = st.sampled_from([*plain, *not_json, *deep_or_wrong])
objects = st.dictionaries(st.text(max_size=3), st.recursive(leaves, lambda inner: st.lists(inner, max_size=3)))


@given(st.lists(objects | leaves, max_size=6))
def test_payloads_are_written_together_as_each_is_alone(given_payloads: list[Any]) -> None:
    alone: list[str] | None = None
    with suppress(InvalidJournalError):
        alone = [encode(payload).decode() for payload in given_payloads]
    if alone is None:
        with pytest.raises(InvalidJournalError):
            encode_all(given_payloads)
    else:
        assert encode_all(given_payloads) == alone


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[RunJournal]:
    with RunJournal(tmp_path / "journal.db") as opened:
        yield opened


@pytest.mark.parametrize("count", [0, 1, 249, 250, 251, 600])
@pytest.mark.parametrize("runs", [1, 3])
@pytest.mark.parametrize("kinds", [(KIND_ITERATION,), (KIND_ITERATION, KIND_TOOL_CALL)], ids=["one kind", "two kinds"])
def test_batches_of_any_size_of_runs_and_kinds_are_stored_whole(
    journal: RunJournal, count: int, runs: int, kinds: tuple[str, ...]
) -> None:
    events = [JournalEvent(f"r{n % runs}", n, kinds[n % len(kinds)], {"index": n}, float(n)) for n in range(count)]
    journal.append_many(iter(events))
    for run in range(runs):
        assert journal.events(f"r{run}") == events[run::runs]


def test_the_order_within_a_step_and_the_last_payload_are_kept(journal: RunJournal) -> None:
    steps = [
        JournalEvent("r", seq, kind, {"n": n, "seq": seq})
        for seq in range(200)
        for n, kind in enumerate((KIND_TOOL_RESULT, KIND_TOOL_CALL, KIND_TOOL_RESULT))
    ]
    journal.append_many(steps)
    assert [(event.seq, event.kind, event.payload["n"]) for event in journal.events("r")] == [
        (seq, kind, n) for seq in range(200) for kind, n in ((KIND_TOOL_RESULT, 2), (KIND_TOOL_CALL, 1))
    ]


@pytest.mark.parametrize(
    "event",
    [
        JournalEvent("r", 300, "thought", {}),
        JournalEvent("r", 300, ["tool_call"], {}),  # type: ignore[arg-type]
        JournalEvent("r", -1, KIND_TOOL_CALL, {}),
        JournalEvent("r", 2**63, KIND_TOOL_CALL, {}),
        JournalEvent("r", True, KIND_TOOL_CALL, {}),
        JournalEvent("", 300, KIND_TOOL_CALL, {}),
        JournalEvent(7, 300, KIND_TOOL_CALL, {}),  # type: ignore[arg-type]
        JournalEvent("r", 300, KIND_TOOL_CALL, []),  # type: ignore[arg-type]
        JournalEvent("r", 300, KIND_TOOL_CALL, {"a": nested(MAX_DEPTH + 1)}),
    ],
    ids=lambda event: repr((event.run_id, event.seq, event.kind, event.payload)),
)
def test_one_event_that_cannot_be_stored_keeps_out_all(journal: RunJournal, event: JournalEvent) -> None:
    events = [JournalEvent("r", n, KIND_TOOL_CALL, {}) for n in range(300)]
    for at in (0, 150, 300):
        with pytest.raises(InvalidJournalError):
            journal.append_many([*events[:at], event, *events[at:]])
    with pytest.raises(InvalidJournalError):
        journal.append(event)
    assert journal.events("r") == []


def test_what_is_not_to_be_kept_is_taken_out_of_each(tmp_path: Path) -> None:
    with RunJournal(tmp_path / "journal.db", redact=lambda payload: payload | {"token": "…"}) as journal:
        journal.append_many([JournalEvent("r", n, KIND_TOOL_CALL, {"token": "secret", "n": n}) for n in range(300)])
        assert [event.payload for event in journal.events("r")] == [{"token": "…", "n": n} for n in range(300)]


simple = [b"{}", b'{"a":1}', b'{"f":1e20}', b'{"t":"%s"}' % (b"9" * 40), b'{"t":"%s"}' % (b"x" * 2**20)]
exact = [b'{"n":18446744073709551617}', b'{"n":-9223372036854775809}', b'{"a":NaN}', b'{"half":"\\ud83d"}']
damaged = [b'{"a":[1', b"2]}", b"", b"1,2", b"{"]


@given(st.lists(st.sampled_from(simple)) | st.lists(st.sampled_from([*simple, *exact]), max_size=600))
def test_payloads_are_read_together_as_each_is_alone(stored: list[bytes]) -> None:
    assert decode_all(stored) == list(map(decode, stored))


@given(st.lists(st.sampled_from([*simple, *exact])), st.lists(st.sampled_from(damaged), min_size=1), st.randoms())
def test_damage_is_found_among_many(sound: list[bytes], wrong: list[bytes], order: random.Random) -> None:
    stored = [*sound, *wrong]
    order.shuffle(stored)
    with pytest.raises(DamagedPayload):
        decode_all(stored)


@pytest.mark.parametrize("collects", [True, False], ids=["collecting", "not collecting"])
def test_reading_a_long_record_leaves_the_collector_as_it_was(journal: RunJournal, collects: bool) -> None:
    journal.append_many(JournalEvent("r", seq, KIND_ITERATION, {"index": seq}) for seq in range(12_000))
    was_collecting = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        assert len(journal.events("r")) == len(journal.replay_index("r")) == 12_000
        assert gc.isenabled() is collects
        with sqlite3.connect(journal.path) as database:
            database.execute("UPDATE journal SET payload = '{' WHERE seq = 11999")
        for read in (journal.events, journal.replay_index):
            with pytest.raises(JournalCorruptError, match="11999"):
                read("r")
            assert gc.isenabled() is collects
    finally:
        (gc.enable if was_collecting else gc.disable)()
