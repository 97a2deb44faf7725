"""The codec of the bridge: calls to lines and lines to messages. Pure; knows nothing of pipes or open calls.

One JSON-RPC 2.0 message a line, as in runtime.md, section 1.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import orjson

#: No longer line can come from the core: V8 builds no longer text.
MAX_LINE_BYTES: Final = 512 * 1024 * 1024

#: `{"jsonrpc": "2.0", "id": <int>, "result": ...}`, or with an `error` instead.
Answer: TypeAlias = dict[str, Any]


class Notification(NamedTuple):
    """Something the core says unasked."""

    method: str
    params: Any


class Noise(NamedTuple):
    """A line that is no message: something else in the core's process wrote to its standard output."""

    line: bytes


Message: TypeAlias = Answer | Notification | Noise


def encode_request(method: str, params: bytes) -> bytes:
    """A call without its id; `params` is JSON already."""
    return b'"method":"%b","params":%b}\n' % (method.encode(), params)


def with_id(call_id: int, request: bytes) -> bytes:
    """The line that asks."""
    return b'{"jsonrpc":"2.0","id":%d,%b' % (call_id, request)


def decode(line: bytes) -> Message:
    """Whatever one line holds; never raises."""
    try:
        message = orjson.loads(line)
    except ValueError:
        # Noise without an end of line stands before a message. Within JSON text these quotes would be escaped.
        start = line.find(b'{"jsonrpc":"2.0"')
        return decode(line[start:]) if start > 0 else Noise(line)
    if type(message) is dict and message.get("jsonrpc") == "2.0":
        if type(message.get("id")) is int:
            if ("result" in message) != ("error" in message):
                return message
        elif type(message.get("method")) is str and "id" not in message:
            return Notification(message["method"], message.get("params"))
    return Noise(line)


class LineBuffer:
    """Bytes as they come, cut into lines.

    `chunks` is filled from outside. `lines` only looks: what it returns stays until `discard`, so that a reader that is
    interrupted in between loses nothing, and the next one sees the same lines again.
    """

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        #: How many of the chunks are known to hold no end of a line.
        self._plain = 0
        self._rest = b""

    def lines(self) -> list[bytes]:
        """The complete lines so far, without their ends."""
        chunks = self.chunks
        for chunk in chunks[self._plain :]:
            if b"\n" in chunk:
                *lines, self._rest = (chunks[0] if len(chunks) == 1 else b"".join(chunks)).split(b"\n")
                return lines
        self._plain = len(chunks)
        return []

    def discard(self) -> None:
        """Forgets the lines that `lines` returned last, when there were any."""
        self._plain = 0
        self.chunks[:] = [self._rest] if self._rest else ()

    @property
    def size(self) -> int:
        """The bytes that wait for the end of their line."""
        return sum(map(len, self.chunks))
