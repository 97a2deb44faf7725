"""Host adapters: ways to run the agent program that does a turn's work."""

from .callable_host import CallableHost
from .claude import ClaudeCliHost
from .codex import CodexCliHost
from .subprocess_host import SubprocessHost

__all__ = ["CallableHost", "ClaudeCliHost", "CodexCliHost", "SubprocessHost"]
