"""Times of single calls, the sides taking turns so that a busy moment hits all of them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Calls in a row before the next side has its turn; the first few of a row warm it up and do not count.
ROW = 50
WARM = 10


class Times(NamedTuple):
    """Seconds."""

    median: float
    p99: float

    @classmethod
    def of(cls, seconds: list[float]) -> Times:
        """The two figures of many times."""
        ordered = sorted(seconds)
        return cls(ordered[len(ordered) // 2], ordered[min(len(ordered) * 99 // 100, len(ordered) - 1)])


def alternate(
    sides: Mapping[str, Callable[[int], object]], rows: int, *, row: int = ROW, warm: int = WARM
) -> dict[str, Times]:
    """Calls each side in turn, `rows` rows of `row` calls; a call is given its number on its side."""
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    clock = time.perf_counter
    for start in range(0, rows * row, row):
        for name, call in sides.items():
            times = []
            for number in range(start, start + row):
                begin = clock()
                call(number)
                times.append(clock() - begin)
            seconds[name] += times[warm:]
    return {name: Times.of(times) for name, times in seconds.items()}
