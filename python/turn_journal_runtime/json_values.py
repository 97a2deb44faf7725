"""JSON that survives the trip to the core and back unchanged, or is refused with the place of the fault.

One cheap walk over the value finds what the encoder would let through (tuples, subclasses, NaN, endless nesting); the
encoder finds the rest (keys, Unicode, big integers). Only when one of them objects is the value walked again, to say
where. Specified in runtime.md, section 4.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import orjson

from .errors import InvalidJournalError

__all__ = ["MAX_DEPTH", "MAX_JOURNAL_BYTES", "encode", "encode_params"]

#: Nesting allowed in a journal: the document itself is level 1.
MAX_DEPTH: Final = 128
#: Size allowed for a journal, as compact JSON in UTF-8 bytes.
MAX_JOURNAL_BYTES: Final = 8 * 1024 * 1024

_MAX_SAFE_INTEGER: Final = 2**53 - 1
_OPTIONS: Final = (
    orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_SUBCLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_DATACLASS
)


def encode(value: Any, max_bytes: int = MAX_JOURNAL_BYTES, max_depth: int = MAX_DEPTH) -> bytes:
    """Compact JSON of a journal: the same value when it is read again, in either language.

    Args:
        value: Built of dict, list, str, int, float, bool and None, and of nothing else.
        max_bytes: The most bytes the text may have.
        max_depth: The most containers that may stand in each other.

    Raises:
        InvalidJournalError: `journal_too_large`, `journal_too_deep`, or `journal_snapshot_invalid`, with the place of
            the offending value in `details["path"]` and its fault in `details["reason"]`.

    Specified in runtime.md, section 4.
    """
    return _encode("journal", value, max_bytes, max_depth)


def encode_params(params: dict[str, Any], max_bytes: int = MAX_JOURNAL_BYTES, max_depth: int = MAX_DEPTH) -> bytes:
    """Compact JSON of a method's parameters. Limits and paths are each parameter's own; faults of another one than
    `journal` are an `invalid_request`.

    Raises:
        InvalidJournalError: As `encode`; `details["parameter"]` names the one at fault.
    """
    try:
        text = _dump(params, max_bytes, max_depth + 1)
    except _Refused:
        text = b""
    if not text or len(text) > max_bytes:
        for name, value in params.items():
            _encode(name, value, max_bytes, max_depth)
    return text


def _encode(parameter: str, value: Any, max_bytes: int, max_depth: int) -> bytes:
    try:
        text = _dump(value, max_bytes, max_depth)
    except _Refused as refused:
        fault = _find(value, "$", max_depth, {}) or Fault("$", *refused.fault)
        raise _error(parameter, fault, max_bytes, max_depth) from None
    if len(text) > max_bytes:
        raise _error(parameter, Fault("$", "too_large", f"{len(text):,} bytes of JSON"), max_bytes, max_depth)
    return text


class Fault(NamedTuple):
    """What stands where, and why it is no JSON."""

    path: str
    reason: str
    text: str


class _Refused(Exception):
    def __init__(self, reason: str, text: str) -> None:
        super().__init__(text)
        self.fault = (reason, text)


def _dump(value: Any, max_bytes: int, max_depth: int) -> bytes:
    """The hottest Python code of a call: one walk refuses what the encoder would let through, the encoder the rest.

    Types are compared by identity, the frequent ones first, without a call for each value. Counting bounds the walk
    over containers that are shared so often, or stand in themselves, that it would never end.
    """
    count = depth = 0
    # Two bytes of JSON hold one value at most.
    most = max_bytes // 2 + 1
    level: list[Any] = [[value]]
    while level:
        if depth > max_depth:
            raise _Refused("too_deep", "more levels than allowed")
        depth += 1
        nested: list[Any] = []
        push = nested.append
        for container in level:
            count += len(container)
            if count > most:
                raise _Refused("too_large", "more values than the size allows")
            for item in container.values() if type(container) is dict else container:
                kind = type(item)
                if kind is str:
                    continue
                if kind is dict or kind is list:
                    push(item)
                # NaN and the infinities are not zero when they are taken from themselves.
                elif not (kind is int or kind is bool or item is None or (kind is float and item - item == 0.0)):
                    raise _Refused("not_json", "a value that is not JSON")
        level = nested
    try:
        return orjson.dumps(value, option=_OPTIONS)
    except (TypeError, ValueError) as error:
        raise _Refused("not_json", str(error)) from None


def _find(value: Any, path: str, levels: int, cleared: dict[int, int]) -> Fault | None:
    """The first fault in the order of the document.

    `cleared` has the containers that were found without one, and with how many levels below them: however often they
    are shared, each is looked at once for each level.
    """
    kind = type(value)
    if kind is dict or kind is list:
        if not levels:
            return Fault(path, "too_deep", "one level more than allowed")
        if cleared.get(id(value), levels + 1) <= levels:
            return None
        for key, item in value.items() if kind is dict else enumerate(value):
            place = path + _step(key)
            fault = (_key_fault(key, place) if kind is dict else None) or _find(item, place, levels - 1, cleared)
            if fault is not None:
                return fault
        cleared[id(value)] = levels
        return None
    if value is None or kind is bool:
        return None
    if kind is str:
        return None if _is_well_formed(value) else Fault(path, "invalid_text", "text that is not valid Unicode")
    if kind is int:
        safe = -_MAX_SAFE_INTEGER <= value <= _MAX_SAFE_INTEGER
        return None if safe else Fault(path, "number_out_of_range", "an integer beyond ±(2^53−1): send it as text")
    if kind is float:
        return None if value - value == 0.0 else Fault(path, "number_out_of_range", "NaN or an infinity")
    return Fault(path, "not_json", f"a value of type {kind.__name__}: use dict, list, str, int, float, bool or None")


def _key_fault(key: Any, path: str) -> Fault | None:
    if type(key) is not str:
        return Fault(path, "not_json", f"a key of type {type(key).__name__}: keys are str")
    return None if _is_well_formed(key) else Fault(path, "invalid_text", "a key that is not valid Unicode")


def _is_well_formed(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_SHOWN_KEY: Final = 80


def _step(key: Any) -> str:
    if type(key) is int:
        return f"[{key}]"
    if type(key) is not str:
        return f"[<{type(key).__name__}>]"
    if len(key) > _SHOWN_KEY:
        key = key[:_SHOWN_KEY] + "…"
    if _IDENTIFIER.fullmatch(key):
        return f".{key}"
    return f"[{orjson.dumps(key).decode()}]" if _is_well_formed(key) else f"[{key!a}]"


_SHOWN_PATH: Final = 200
_KINDS: Final = {"too_large": "journal_too_large", "too_deep": "journal_too_deep"}


def _error(parameter: str, fault: Fault, max_bytes: int, max_depth: int) -> InvalidJournalError:
    details: dict[str, Any] = {"parameter": parameter, "path": fault.path, "reason": fault.reason}
    place = fault.path if len(fault.path) <= _SHOWN_PATH else fault.path[:_SHOWN_PATH] + "…"
    if fault.reason == "too_large":
        details["max_bytes"] = max_bytes
        message = f"`{parameter}` has {fault.text}; at most {max_bytes:,} bytes are allowed: store bulk elsewhere."
    elif fault.reason == "too_deep":
        details["max_depth"] = max_depth
        message = f"`{parameter}` is nested deeper than {max_depth} levels at {place}: flatten it."
    else:
        message = f"`{parameter}` cannot be sent: {fault.text}, at {place}."
    default = "journal_snapshot_invalid" if parameter == "journal" else "invalid_request"
    return InvalidJournalError(message, kind=_KINDS.get(fault.reason, default), details=details)
