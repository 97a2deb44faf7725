"""The Codex command-line agent, head-less: `codex exec --json`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .agent_cli import AgentCli, Event, Observation, Transcript, first_match, texts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..turns.host import HostRequest, HostResult

#: The tool's own messages, in lower case, the narrower before the wider.
_COMPLAINTS: Final = (
    ("no rollout found", "session_missing"),
    ("no thread with id", "session_missing"),
    ("session not found", "session_missing"),
    ("thread not found", "session_missing"),
    ("usage limit", "quota_exhausted"),
    ("quota exceeded", "quota_exhausted"),
    ("out of credits", "quota_exhausted"),
    ("insufficient_quota", "quota_exhausted"),
    ("to use codex with your chatgpt plan", "quota_exhausted"),
    ("401 unauthorized", "auth_failed"),
    ("403 forbidden", "auth_failed"),
    ("could not be refreshed", "auth_failed"),
    ("not logged in", "auth_failed"),
    ("invalid_api_key", "auth_failed"),
    ("429 too many requests", "rate_limited"),
    ("rate limit", "rate_limited"),
    ("rate_limit", "rate_limited"),
    ("at capacity", "provider_capacity"),
    ("experiencing high demand", "provider_overloaded"),
    ("overloaded", "provider_overloaded"),
    ("503 service unavailable", "provider_overloaded"),
    ("500 internal server error", "provider_overloaded"),
    ("max_output_tokens", "output_budget_exhausted"),
    ("stream disconnected before completion", "transport_lost"),
    ("error while reading the server response", "transport_lost"),
    ("connection failed", "transport_lost"),
    ("request timed out", "transport_lost"),
)


class CodexCliHost(AgentCli):
    """Runs `codex exec --json`, and `codex exec --json … resume <id>` to go on with a session.

    A session is resumed by its id only, when its rollout file under `$CODEX_HOME/sessions` names that id and the folder
    that the agent works in. See `AgentCli` for the arguments.

    Specified in session-recovery.md, section 5.
    """

    def __init__(
        self,
        program: str | os.PathLike[str] = "codex",
        options: Sequence[str] = (),
        *,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float = 3600.0,
        prompt: Callable[[HostRequest], str] | None = None,
        result: Callable[[str], HostResult] | None = None,
    ) -> None:
        super().__init__(program, options, cwd=cwd, env=env, timeout=timeout, prompt=prompt, result=result)

    def _arguments(self, session_id: str | None) -> list[str]:
        session = [] if session_id is None else ["resume", session_id]
        return ["exec", "--json", *self._options, *session, "-"]

    def _observe(self, event: Event, seen: Observation) -> None:
        match event:
            case {"type": "thread.started", "thread_id": str(thread_id)}:
                seen.session_id = thread_id
            case {"type": "item.completed", "item": {"type": "agent_message", "text": str(text)}}:
                seen.message = text
            case {"type": "turn.completed"}:
                seen.completed = True
                seen.complaints.clear()  # such as the reconnections on the way
            case {"type": "turn.failed", "error": {"message": str(message)}}:
                seen.completed = False
                seen.complaints.append(message)
                seen.failure_kind = self._classify(message)
            case {"type": "error", "message": str(message)}:
                seen.complaints.append(message)

    def _classify(self, complaint: str) -> str | None:
        return first_match(complaint, _COMPLAINTS)

    def _transcripts(self, session_id: str) -> list[Path]:
        home = self._env.get("CODEX_HOME")
        sessions = Path(home) if home else Path(self._env.get("HOME", os.path.expanduser("~"))) / ".codex"
        return sorted((sessions / "sessions").glob(f"*/*/*/rollout-*-{session_id}.jsonl"), reverse=True)

    def _read_transcript(self, lines: Iterator[Event], session_id: str, marker: str) -> Transcript:
        work_dir: str | None = None
        has_turn = False
        final_message: str | None = None
        for line in lines:
            match line:
                case {"type": "session_meta", "payload": {"id": str(named), "cwd": str(cwd)}} if named == session_id:
                    work_dir = cwd
                case {"type": "event_msg", "payload": {"type": "user_message", "message": str(text)}}:
                    has_turn, final_message = marker in text, None
                case {"type": "response_item", "payload": {"type": "message", "role": "user", "content": content}}:
                    has_turn, final_message = (has_turn or marker in texts_of(content)), None
                case {"type": "event_msg", "payload": {"type": "task_started"}}:
                    final_message = None
                case {"type": "event_msg", "payload": {"type": "task_complete", "last_agent_message": str(text)}}:
                    final_message = text
        return Transcript(work_dir, has_turn, final_message)
