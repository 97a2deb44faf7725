"""The lines of the table."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .timing import Times


class Line(NamedTuple):
    """What was measured, what it came to, and what it was to come to."""

    what: str
    times: Times | None = None
    figure: str = ""
    target: str = ""
    holds: bool | None = None

    @classmethod
    def beside(cls, what: str, times: Times, floor: Times, *, at_most: float) -> Line:
        """Times as a multiple of the floor's, by their medians."""
        factor = times.median / floor.median
        return cls(what, times, f"{factor:.2f} ×", f"at most {at_most:g} ×", factor <= at_most)


def milliseconds(seconds: float) -> str:
    """With three figures that mean something."""
    value = seconds * 1000
    return f"{value:.3f} ms" if value < 10 else f"{value:.1f} ms"
