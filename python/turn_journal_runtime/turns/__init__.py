"""Turns: one goal's unit of work, driven through its phases and recovered wherever it was killed."""

from .due import DueTurn
from .giving_up import GivenUpTurn
from .host import HostAdapter, HostFailedError, HostRequest
from .outcome import Owed, TurnRecoveryBlockedError, TurnResult
from .parts import Refusal
from .providers import Provider
from .recovery import RecoverableTurn
from .turn import acknowledge_turn, give_up_turn, recoverable_turns, run_turn

__all__ = [
    "DueTurn",
    "GivenUpTurn",
    "HostAdapter",
    "HostFailedError",
    "HostRequest",
    "Owed",
    "Provider",
    "RecoverableTurn",
    "Refusal",
    "TurnRecoveryBlockedError",
    "TurnResult",
    "acknowledge_turn",
    "give_up_turn",
    "recoverable_turns",
    "run_turn",
]
