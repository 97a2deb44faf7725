"""A command as a person types it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["typed_command"]


def typed_command(command: str, arguments: Sequence[str], options: str = "") -> str:
    """What to type; the options are quoted already, and begin with a space.

    Writers chose what turns and runs are called, and a shell runs what is pasted.
    """
    words = shlex.join(arguments)
    if any(argument.startswith("-") for argument in arguments):
        return f"turn-journal {command}{options} -- {words}"
    return f"turn-journal {command} {words}{options}"
