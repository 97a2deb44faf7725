"""Turns that are due, handed out to the workers of many hosts. Needs the extra `worker`.

The queue is procrastinate's. It may deliver twice, late or never: whether a turn may go on is decided by its journal
and its lease alone, and what the queue has lost is found in the store again.
"""

from ..errors import JournalStoreError

try:
    import procrastinate  # noqa: F401
except ImportError as _missing:
    raise JournalStoreError(
        "Handing out turns to many hosts needs the extra `worker`: pip install 'turn-journal-runtime[worker]'.",
        kind="store_unsupported",
        details={"extra": "worker"},
    ) from _missing

from .deferral import defer_turn
from .worker import Summary, run_worker

__all__ = ["Summary", "defer_turn", "run_worker"]
