"""Payloads as they are stored: exact, or refused with the place of the fault.

`encode` and `decode` are the hot ends of every step, so the common payload costs one walk and one call of orjson; what
orjson cannot write or read exactly (integers beyond 64 bits, non-finite numbers, values that are not JSON) takes the
slower exact way. `canonical` is RFC 8785, with integers of any size written in full. Specified in run-journal.md,
sections 1 and 5; ts/src/run/Payload.ts is its twin.
"""

from __future__ import annotations

import hashlib
import json
import marshal
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson
import rfc8785

from ..errors import InvalidJournalError

__all__ = [
    "MAX_DEPTH",
    "DamagedPayload",
    "canonical",
    "decode",
    "differing_fields",
    "digest",
    "encode",
    "encode_all",
    "same",
]

#: How deep the values of a payload may nest.
MAX_DEPTH: Final = 128


class DamagedPayload(ValueError):
    """What is stored is not JSON."""


def encode(payload: Mapping[str, Any], levels: int = MAX_DEPTH, *, is_identity: bool = False) -> bytes:
    """Compact JSON of a payload. Values that are not JSON become `str(value)`, NaN and the infinities too.

    A payload is mostly what has already happened, and is refused as the last resort: keys that are not text become it,
    as with `json.dumps`, and halves of surrogate pairs, which a provider's JSON may have, stay what they are.

    Args:
        payload: A mapping; what it holds may nest `levels` deep.
        is_identity: Whether another process must come to the same text.

    Raises:
        InvalidJournalError: The payload is no mapping, refers to itself, nests deeper than 128 levels, has a value that
            has no text or two keys with the same one, or is an identity and has a key that is not text or a value whose
            text has its address; `details["path"]` is the place.
    """
    if type(payload) is dict and _are_plain(payload.values(), levels):
        try:
            return orjson.dumps(payload)
        except TypeError:
            pass  # an integer beyond 64 bits, half of a surrogate pair, or a fault that the exact way names
    if not isinstance(payload, Mapping):
        raise _refused("$", "not_json", f"a payload is a mapping, not a {type(payload).__name__}")
    return _in_utf8(_exact(payload, "$", levels, (), is_identity))


def encode_all(payloads: list[Any]) -> list[str]:
    """`encode` of many payloads, as text.

    Raises:
        InvalidJournalError: As `encode`, for the first one that cannot be stored.
    """
    try:
        # marshal is C and takes the built-in types alone: what it and orjson both take is what `_are_plain` looks for,
        # but for NaN, which orjson writes as null, and for the depth.
        marshal.dumps(payloads)
        texts = [orjson.dumps(payload).decode() for payload in payloads]
    except (TypeError, ValueError):
        return [encode(payload).decode() for payload in payloads]
    if not {dict}.issuperset(map(type, payloads)):
        return [encode(payload).decode() for payload in payloads]
    if max(map(len, texts), default=0) > 2 * MAX_DEPTH or "null" in "".join(texts):
        for at, text in enumerate(texts):
            if "null" in text or text.count("{") + text.count("[") > MAX_DEPTH:
                texts[at] = encode(payloads[at]).decode()
    return texts


def decode(stored: bytes) -> Any:
    """The value that was encoded, integers of any size exactly.

    Raises:
        DamagedPayload: The bytes are not JSON.
    """
    if len(stored) < len(_LONG_NUMBER) or not _may_have_long_number(stored):
        try:
            return orjson.loads(stored)
        except orjson.JSONDecodeError:
            pass  # another writer's NaN or half a surrogate pair, or damage
    try:
        return _EXACT_DECODER.decode(stored.decode())
    except (ValueError, RecursionError) as error:
        raise DamagedPayload(str(error)) from None


def decode_all(stored: Sequence[bytes]) -> list[Any]:
    """`decode` of many.

    Raises:
        DamagedPayload: Any of them is not JSON.
    """
    values: list[Any] = []
    for start in range(0, len(stored), _TOGETHER):
        part = stored[start : start + _TOGETHER]
        # Small ones are looked through together.
        if sum(map(len, part)) < _TOGETHER_BYTES and not _may_have_long_number(b",".join(part)):
            try:
                values += list(map(orjson.loads, part))
                continue
            except orjson.JSONDecodeError:
                pass
        values += map(decode, part)
    return values


def _may_have_long_number(stored: bytes) -> bool:
    # orjson reads an integer beyond 64 bits as a float; such a one has at least 19 digits in a row.
    # Text is searched several times as fast as bytes.
    return _LONG_NUMBER in stored.translate(_DIGITS_TO_ZERO).decode("latin-1")


def canonical(value: Any) -> bytes:
    """RFC 8785 of a JSON value: the same bytes for equal values, in both languages."""
    try:
        text = orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        text = b""
    # orjson differs from RFC 8785 in the form of floats and in the order of keys beyond the basic plane.
    if text and not _NEEDS_CARE.search(text):
        return text
    return _in_utf8(_canonical(value))


def digest(value: Any) -> str:
    """The SHA-256 of a value's canonical form."""
    return "sha256:" + hashlib.sha256(canonical(value)).hexdigest()


def same(one: Any, other: Any) -> bool:
    """Whether two JSON values are equal, numbers by value and booleans never equal to numbers."""
    return canonical(one) == canonical(other)


def differing_fields(recorded: Any, issued: Any, path: str = "") -> list[str]:
    """The places where two JSON values differ, objects compared member by member: `["args.limit"]`."""
    if isinstance(recorded, dict) and isinstance(issued, dict):
        return [
            place
            for key in sorted(recorded.keys() | issued.keys())
            for place in (
                differing_fields(recorded[key], issued[key], _member(path, key))
                if key in recorded and key in issued
                else [_member(path, key)]
            )
        ]
    return [] if same(recorded, issued) else [path]


def _member(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key


_quoted: Final = json.JSONEncoder(ensure_ascii=False).encode
_DIGITS_TO_ZERO: Final = bytes.maketrans(b"123456789", b"000000000")
_LONG_NUMBER: Final = "0" * 19
_TOGETHER: Final = 256
_TOGETHER_BYTES: Final = 2**20
#: As Python writes an object that has no text of its own.
_ADDRESS: Final = re.compile(r" at 0x[0-9a-fA-F]+")
_NEEDS_CARE: Final = re.compile(rb"[0-9][.eE]|[\xf0-\xf4]")


def _are_plain(items: Iterable[Any], levels: int) -> bool:
    """Whether orjson writes these values as this module promises to, or refuses them. Hot: leaves cost no call."""
    for item in items:
        kind = type(item)
        if kind is str or kind is int or kind is bool or item is None:
            continue
        if kind is dict or kind is list:
            if levels <= 0 or not _are_plain(item.values() if kind is dict else item, levels - 1):
                return False
        # NaN and the infinities are not zero when they are taken from themselves.
        elif kind is not float or item - item != 0.0:
            return False
    return True


def _exact(value: Any, path: str, levels: int, parents: tuple[int, ...], is_identity: bool) -> str:
    """The JSON of a value, as orjson would write it, or the fault with its place."""
    if value is None or isinstance(value, bool):
        return _quoted(value)
    if isinstance(value, int):
        return _digits(int(value))
    if isinstance(value, float):
        # A subclass keeps its value, not its own text.
        return orjson.dumps(float(value) if math.isfinite(value) else float.__repr__(value)).decode()
    if isinstance(value, str):
        return _quoted(str.__str__(value))
    if not isinstance(value, (Mapping, list, tuple)):
        text = _text(value, path)
        if is_identity and _ADDRESS.search(text):
            raise _refused(
                path,
                "has_address",
                f"{text:.80}, whose text has its address in memory, which no replay would know again (give JSON, or a "
                "type with a `__str__` of its own)",
            )
        return _quoted(text)
    if id(value) in parents:
        raise _refused(path, "refers_to_itself", "a value that contains itself")
    if levels < 0:
        raise _refused(path, "too_deep", f"nested deeper than {MAX_DEPTH} levels", kind="journal_too_deep")
    parents = (*parents, id(value))
    if not isinstance(value, Mapping):
        items = [_exact(item, f"{path}[{at}]", levels - 1, parents, is_identity) for at, item in enumerate(list(value))]
        return f"[{','.join(items)}]"
    members: dict[str, str] = {}
    for key, item in list(value.items()):
        name = _key(key, path, is_identity)
        if name in members:
            raise _refused(path, "same_keys", f"two keys that are {name!a} as text")
        members[name] = _exact(item, f"{path}.{name}", levels - 1, parents, is_identity)
    return "{" + ",".join(f"{_quoted(name)}:{item}" for name, item in members.items()) + "}"


def _key(key: Any, path: str, is_identity: bool) -> str:
    if isinstance(key, str):
        return str.__str__(key)
    if is_identity:
        raise _refused(path, "not_text", f"the key {key!a}; keys are text")
    is_json = key is None or isinstance(key, (bool, int, float))
    return _exact(key, path, 0, (), is_identity).strip('"') if is_json else _text(key, path)


def _text(value: Any, path: str) -> str:
    try:
        return str(value)
    except Exception as error:
        what = f"a {type(value).__name__} whose text cannot be made ({type(error).__name__})"
        raise _refused(path, "has_no_text", what) from error


def _in_utf8(text: str) -> bytes:
    """JSON in UTF-8, where half of a surrogate pair has no form: it is escaped, as in `JSON.stringify`."""
    return text.encode(errors="backslashreplace")


def _refused(path: str, reason: str, text: str, kind: str = "invalid_request") -> InvalidJournalError:
    shown = path.encode(errors="replace").decode()
    return InvalidJournalError(
        f"The payload cannot be stored: {text}, at {shown[:200]}.", kind=kind, details={"path": shown, "reason": reason}
    )


# CPython limits `str(int)` and `int(str)` to 4,300 digits; longer ones are converted in parts.
_PART: Final = 4000


def _digits(number: int) -> str:
    if number < 0:
        return "-" + _digits(-number)
    if number.bit_length() <= 3 * _PART:
        return str(number)
    half = number.bit_length() * 30103 // 200000
    head, tail = divmod(number, 10**half)
    return _digits(head) + _digits(tail).zfill(half)


def _integer(text: str) -> int:
    if len(text) <= _PART:
        return int(text)
    if text.startswith("-"):
        return -_integer(text[1:])
    half = len(text) // 2
    power: int = 10**half
    return _integer(text[:-half]) * power + _integer(text[-half:])


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:40]} is too large")
    return value


# Other writers (Python's own json) leave these tokens; they read as what `encode` stores for such a number.
_CONSTANTS: Final = {"NaN": "nan", "Infinity": "inf", "-Infinity": "-inf"}
_EXACT_DECODER: Final = json.JSONDecoder(
    parse_int=_integer, parse_float=_finite, parse_constant=_CONSTANTS.__getitem__, strict=True
)


def _canonical(value: Any) -> str:
    if isinstance(value, dict):
        members = sorted(value.items(), key=lambda member: member[0].encode("utf-16-be", "surrogatepass"))
        return "{" + ",".join(f"{_canonical(key)}:{_canonical(item)}" for key, item in members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_canonical, value)) + "]"
    if isinstance(value, float):
        return rfc8785.dumps(value).decode()
    if isinstance(value, int) and not isinstance(value, bool):
        return _digits(value)
    return _quoted(value)
