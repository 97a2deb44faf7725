"""The codec: whatever bytes come, in whatever pieces, it neither raises nor loses a message."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import orjson
from hypothesis import example, given
from hypothesis import strategies as st

from turn_journal_runtime.bridge.frames import LineBuffer, Noise, Notification, decode, encode_request, with_id

if TYPE_CHECKING:
    from turn_journal_runtime.bridge.frames import Message

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
)
ANSWERS = st.builds(
    lambda call_id, key, value: {"jsonrpc": "2.0", "id": call_id, key: value},
    st.integers(0, 2**53),
    st.sampled_from(["result", "error"]),
    JSON,
)


def cut(data: bytes, at: list[int]) -> list[bytes]:
    """The bytes in pieces, as a pipe may give them."""
    marks = sorted({0, len(data), *(position % (len(data) + 1) for position in at)})
    return [data[start:end] for start, end in itertools.pairwise(marks)]


def read(pieces: list[bytes]) -> list[Message]:
    """What a reader makes of the pieces."""
    buffer, messages = LineBuffer(), []
    for piece in pieces:
        buffer.chunks.append(piece)
        lines = buffer.lines()
        if lines:
            messages += [decode(line) for line in lines]
            buffer.discard()
    return messages


@given(st.lists(ANSWERS, max_size=6), st.lists(st.integers(0, 10_000), max_size=12))
def test_messages_survive_any_cut(answers: list[dict[str, Any]], at: list[int]) -> None:
    data = b"".join(orjson.dumps(answer) + b"\n" for answer in answers)
    assert read(cut(data, at)) == answers


@given(st.binary(max_size=300), st.lists(st.integers(0, 10_000), max_size=6))
@example(b"\n\n{}\n[]\n", [1])
@example(b'{"jsonrpc":"2.0","id":true,"result":1}\n{"jsonrpc":"2.0","id":1}\n', [])
@example(b"[" * 300 + b"\n", [7])
@example(b"\xed\xa0\x80\n\xff\xfe\n", [])
def test_random_bytes_are_noise_and_cost_no_message_beside_them(noise: bytes, at: list[int]) -> None:
    answer = {"jsonrpc": "2.0", "id": 7, "result": {}}
    line = orjson.dumps(answer) + b"\n"
    messages = read(cut(line + noise + b"\n" + line, at))
    assert [message for message in messages if message == answer][:1] == [answer]
    assert messages[-1] == answer


@given(JSON, st.lists(st.integers(0, 10_000), max_size=4))
def test_random_json_is_a_message_or_noise(value: Any, at: list[int]) -> None:
    for message in read(cut(orjson.dumps(value) + b"\n", at)):
        assert isinstance(message, (dict, Noise, Notification))
        if isinstance(message, dict):
            assert type(message["id"]) is int


@given(ANSWERS, st.data())
def test_an_answer_with_a_changed_byte_is_read_or_noise(answer: dict[str, Any], data: st.DataObject) -> None:
    line = bytearray(orjson.dumps(answer))
    line[data.draw(st.integers(0, len(line) - 1))] = data.draw(st.integers(0, 255))
    for part in bytes(line).split(b"\n"):
        message = decode(part)
        assert isinstance(message, Notification | Noise) or ("result" in message) != ("error" in message)


@given(st.text(max_size=40).filter(lambda text: '{"jsonrpc":"2.0"' not in text), ANSWERS)
def test_noise_without_an_end_of_line_does_not_hide_the_answer_behind_it(noise: str, answer: dict[str, Any]) -> None:
    assert decode(noise.replace("\n", " ").encode() + orjson.dumps(answer)) == answer


def test_an_answer_quoted_in_an_answer_is_not_taken_for_one() -> None:
    inner = orjson.dumps({"jsonrpc": "2.0", "id": 5, "result": "inner"}).decode()
    assert isinstance(decode(b'broken {"text": ' + orjson.dumps(inner)), Noise)


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=8), st.integers(0, 7))
def test_a_reader_that_is_interrupted_before_it_discards_sees_the_same_lines_again(
    pieces: list[bytes], interrupted: int
) -> None:
    buffer, lines = LineBuffer(), []
    for number, piece in enumerate(pieces):
        buffer.chunks.append(piece)
        found = buffer.lines()
        if number == interrupted:
            assert buffer.lines() == found
            continue
        lines += found
        if found:
            buffer.discard()
    lines += buffer.lines()
    assert lines == b"".join(pieces).split(b"\n")[: len(lines)]
    assert len(lines) == b"".join(pieces).count(b"\n")


def test_what_waits_for_the_end_of_its_line_is_measured() -> None:
    buffer = LineBuffer()
    buffer.chunks += [b"ab", b"cde"]
    assert (buffer.lines(), buffer.size) == ([], 5)
    buffer.chunks.append(b"f\ngh")
    assert buffer.lines() == [b"abcdef"]
    buffer.discard()
    assert buffer.size == 2


def test_a_request_is_one_line() -> None:
    line = with_id(3, encode_request("turn_journal.inspect", b'{"a":1}'))
    assert line == b'{"jsonrpc":"2.0","id":3,"method":"turn_journal.inspect","params":{"a":1}}\n'
    assert orjson.loads(line)["params"] == {"a": 1}


def test_what_the_core_says_unasked_is_a_notification() -> None:
    line = b'{"jsonrpc":"2.0","method":"runtime.ready","params":{"pid":1}}'
    assert decode(line) == Notification("runtime.ready", {"pid": 1})
