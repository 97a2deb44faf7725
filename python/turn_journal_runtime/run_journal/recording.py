"""What the record keeps of a step, and how it gets there.

A step is a generator: it yields what it needs done (a `Call` of the caller's code, a `Write` of the record) and returns
its value. Specified in run-journal.md, section 4.
"""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from .driving import Driving
from .faults import name_of
from .payload import decode, differing_fields, digest, encode
from .steps import Attempt, kept_failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .drive import Drive

__all__ = ["Call", "Recording", "Step", "Write", "as_stored"]

T = TypeVar("T")


class Call(partial[Any]):
    """The caller's code is to be run, sync or async."""


class Write(partial[Any]):
    """The record, or a snapshot, is to be written."""


Step: TypeAlias = Generator[Call | Write, Any, T]


class Recording(Driving):
    """A drive that records: each payload once, and only what may be kept."""

    def _once(
        self, seq: int, drive: Drive, kind: str, payload: dict[str, Any], identity: tuple[str, ...]
    ) -> Step[dict[str, Any]]:
        """Records a payload, or returns the one on record when it has the same identity."""
        events = drive.record.get(seq, {})
        stored = events.get(kind)
        issued = {name: payload[name] for name in identity}
        if stored is None:
            self._expect_nothing(seq, drive, events, kind, issued)
            self._must_be_open(drive)
            value, text = self._recorded(payload)
            yield Write(drive.insert, seq, kind, text)
            return value
        recorded = self._read(seq, kind, stored)
        there, here = ({name: one.get(name) for name in identity} for one in (recorded, self._kept(issued)))
        fields = differing_fields(there, here)
        if fields:
            self._diverge(seq, events, {"kind": kind, **issued}, fields, f"{kind} {issued!r:.80}")
        return recorded

    def _failure(self, seq: int, drive: Drive, kind: str, error: Exception) -> Write:
        shown = self._kept({"error_type": name_of(error), "message": str(error).encode("utf-8", "replace").decode()})
        what, message = kept_failure(shown)
        next_seq: int | None = self._following(drive)
        if seq in self._beside:
            # What the loop issues until it asks, it does not issue because of this.
            self._unknown_failures.add(seq)
            next_seq = None
        return Write(drive.attempt, seq, Attempt(kind, "failed", what, message, next_seq))

    def _fingerprints(self, request: Any) -> dict[str, str]:
        if request is None:
            return {}
        kept = self._identity({"request": request}).get("request")
        fields = kept if isinstance(kept, dict) else {"request": kept}
        return {name: digest(value) for name, value in fields.items()}

    def _kept(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """A payload as the record has it: what may not be kept taken out, what is not JSON turned into text."""
        return self._recordable(payload)[1]

    def _identity(self, payload: Mapping[str, Any]) -> dict[str, Any]:
        """`_kept` of what a replay is compared with."""
        return self._recordable(payload, is_identity=True)[1]

    def _recordable(
        self, payload: Mapping[str, Any], *, is_identity: bool = False
    ) -> tuple[dict[str, Any], dict[str, Any]]:
        """A payload as the loop gets it, as a replay will give it, and as the record keeps it, which may be less."""
        text = encode(payload, is_identity=is_identity)
        value: dict[str, Any] = decode(text)
        return value, value if self._journal._redact is None else self._journal._redact(decode(text))

    def _recorded(self, payload: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
        """As `_recordable`, with what the record keeps as it is stored."""
        text = encode(payload)
        value: dict[str, Any] = decode(text)
        return value, text.decode() if self._journal._redact is None else as_stored(self._journal._redact(decode(text)))


def as_stored(payload: Mapping[str, Any]) -> str:
    """A payload as the text that a row holds."""
    return encode(payload).decode()
