"""Which cores the two programs of a round trip run on.

Waking a program that sleeps on another core costs more than all that is measured here, and the system puts the same two
programs now on one core, now on two. So what is compared is put in the same place.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

TWO_CORES: Final = "a core each"
ONE_CORE: Final = "one core"


def placements() -> dict[str, tuple[int, int]]:
    """The cores of the caller and of the other program, by name; none where a program cannot be kept on a core."""
    if sys.platform != "linux":
        return {}
    first, *others = sorted(os.sched_getaffinity(0))
    two = {TWO_CORES: (first, others[0])} if others else {}
    return two | {ONE_CORE: (first, first)}


@contextlib.contextmanager
def placed(caller: int, other: int, *programs: int) -> Iterator[None]:
    """Keeps the calling thread on one core, and all threads of other programs on another or the same."""
    if sys.platform != "linux":
        raise NotImplementedError("programs are kept on cores on Linux only")
    threads = [0, *(int(name) for pid in programs for name in os.listdir(f"/proc/{pid}/task"))]
    before = os.sched_getaffinity(0)
    for thread in threads:
        os.sched_setaffinity(thread, {other if thread else caller})
    try:
        yield
    finally:
        for thread in threads:
            os.sched_setaffinity(thread, before)
