"""Long-lived conversations with a queue of turns."""

from .runtime import ChatRuntime, SubmittedTurn
from .store import ChatSession, ChatTurn, SessionNotFoundError, SessionStore

__all__ = ["ChatRuntime", "ChatSession", "ChatTurn", "SessionNotFoundError", "SessionStore", "SubmittedTurn"]
