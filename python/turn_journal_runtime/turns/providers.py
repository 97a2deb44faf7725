"""What a turn does outside itself: writing back, spending, scheduling. session-recovery.md, section 3.

A provider gets the step's `effect_ref`, the idempotency key, which it hands to the outside system. After a crash the
question is whether the effect happened: `readback` answers it, or `idempotent` says that sending it again under the
same key is harmless. With neither, the turn blocks rather than repeats.
"""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, runtime_checkable

from ..errors import InvalidJournalError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

#: What is known of an effect: it happened, it did not, or nobody can tell.
Readback: TypeAlias = Literal["committed", "absent", "unknown"]

#: What a scheduler answers when the turn is to wait for `acknowledge_turn`.
ACTION_REQUIRED: Final = "action_required"

WRITEBACK: Final = "durable_writeback"
SPEND: Final = "quota_spend"
CLOSEOUT: Final = "terminal_closeout"


@runtime_checkable
class Provider(Protocol):
    """An outside effect. Both methods may be sync or async; `readback` and `idempotent` may be left out.

    A scheduler's `apply` may answer `"action_required"`; the turn then waits for `acknowledge_turn`. Its `readback` may
    answer that as well.
    """

    def apply(self, effect_ref: str, payload: Mapping[str, Any]) -> Any | Awaitable[Any]:
        """Does the effect once for that key. What it raises leaves the effect unknown."""
        ...


class Effect:
    """A step of the executor with its provider: a `Provider`, a plain callable `(effect_ref, payload)`, or none.

    Raises:
        InvalidJournalError: The provider has no `apply` and is not callable.
    """

    def __init__(self, step: str, provider: Provider | Callable[..., Any] | None) -> None:
        self.step = step
        self.idempotent: bool = getattr(provider, "idempotent", False) is True
        self.readback: Callable[[str], Any] | None = getattr(provider, "readback", None)
        apply = getattr(provider, "apply", provider)
        if apply is not None and not callable(apply):
            raise InvalidJournalError(
                f"The provider of {step} has an apply(effect_ref, payload) or is a callable of that form.",
                kind="invalid_request",
            )
        self.apply: Callable[[str, Mapping[str, Any]], Any] | None = apply


def readback_answer(step: str, answer: Any) -> str:
    """A readback's answer as text; anything that is none of the answers is `unknown`.

    The answers of a tool's readback (run-journal.md, section 3) count too: `Committed`, `Absent`, `Unknown`.
    """
    allowed = ("committed", "absent", ACTION_REQUIRED) if step == CLOSEOUT else ("committed", "absent")
    named = (
        answer if isinstance(answer, str) else (answer if inspect.isclass(answer) else type(answer)).__name__.lower()
    )
    return named if named in allowed else "unknown"
