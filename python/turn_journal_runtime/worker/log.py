"""What a worker says: a line for each event, for people, and its fields in the record's `turn_journal`."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["LOGGER", "say"]

#: The name of the logger: INFO, and WARNING for what needs somebody's eye.
LOGGER: Final = "turn_journal_runtime.worker"

_log: Final = logging.getLogger(LOGGER)
_WARNED: Final = frozenset({"failed", "blocked", "lost", "left", "unreachable", "stopped at once"})


def say(event: str, rest: str, fields: Mapping[str, Any] | None = None, *, error: BaseException | None = None) -> None:
    """Logs an event.

    Args:
        event: Its name, with which the line begins.
        rest: The rest of the line.
        fields: Such as `goal_id` and `turn_key`.
        error: What was raised, where it is for those who keep this package.
    """
    level = logging.WARNING if event in _WARNED else logging.INFO
    extra = {"turn_journal": {"event": "worker", "outcome": event, **(fields or {})}}
    _log.log(level, "%s%s", event, rest, exc_info=error, extra=extra)
