"""Host adapters: ways to run the agent program that does a turn's work."""

from .subprocess_host import SubprocessHost

__all__ = ["SubprocessHost"]
