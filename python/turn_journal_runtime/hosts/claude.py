"""The Claude Code command-line agent, head-less: `claude -p --output-format stream-json`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from .agent_cli import AgentCli, Event, Observation, Transcript, first_match, texts_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from ..turns.host import HostRequest, HostResult

#: `error` of an assistant event.
_ERRORS: Final = {
    "authentication_failed": "auth_failed",
    "oauth_org_not_allowed": "auth_failed",
    "billing_error": "quota_exhausted",
    "rate_limit": "rate_limited",
    "overloaded": "provider_overloaded",
    "server_error": "provider_overloaded",
    "max_output_tokens": "output_budget_exhausted",
}

#: `api_error_status` of a result event.
_STATUSES: Final = {
    401: "auth_failed",
    402: "quota_exhausted",
    403: "auth_failed",
    429: "rate_limited",
    500: "provider_overloaded",
    502: "provider_overloaded",
    503: "provider_overloaded",
    529: "provider_overloaded",
}

#: `subtype` of a result event.
_SUBTYPES: Final = {
    "error_max_turns": "output_budget_exhausted",
    "error_max_budget_usd": "output_budget_exhausted",
    "error_max_structured_output_retries": "contract_rejected",
}

#: The tool's own messages, in lower case, the narrower before the wider.
_COMPLAINTS: Final = (
    ("no conversation found with session id", "session_missing"),
    ("usage limit reached", "quota_exhausted"),
    ("hit your limit", "quota_exhausted"),
    ("hit your usage limit", "quota_exhausted"),
    ("credit balance is too low", "quota_exhausted"),
    ("invalid api key", "auth_failed"),
    ("please run /login", "auth_failed"),
    ("authentication_error", "auth_failed"),
    ("oauth token has expired", "auth_failed"),
    ("overloaded_error", "provider_overloaded"),
    ("api error: 529", "provider_overloaded"),
    ("api error: 500", "provider_overloaded"),
    ("rate_limit_error", "rate_limited"),
    ("api error: 429", "rate_limited"),
    ("output token maximum", "output_budget_exhausted"),
    ("connection error", "transport_lost"),
    ("request timed out", "transport_lost"),
)


class ClaudeCliHost(AgentCli):
    """Runs `claude -p --output-format stream-json --verbose`, with `--resume <id>` to go on with a session.

    A session is resumed by its id only, when its transcript under `$CLAUDE_CONFIG_DIR/projects` names that id and the
    folder that the agent works in. See `AgentCli` for the arguments.

    Specified in session-recovery.md, section 5.
    """

    def __init__(
        self,
        program: str | os.PathLike[str] = "claude",
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
        session = [] if session_id is None else ["--resume", session_id]
        return ["-p", "--output-format", "stream-json", "--verbose", *self._options, *session]

    def _observe(self, event: Event, seen: Observation) -> None:
        session_id = event.get("session_id")
        if isinstance(session_id, str):
            seen.session_id = session_id
        match event:
            case {"type": "assistant", "error": str(error), "message": {"content": content}}:
                seen.complaints.append(texts_of(content))
                seen.failure_kind = _ERRORS.get(error)
            case {"type": "assistant", "parent_tool_use_id": str()}:
                pass  # a subagent's message
            case {"type": "assistant", "message": {"content": content}}:
                seen.message = texts_of(content) or seen.message
                seen.failure_kind = None
            case {"type": "result"}:
                self._conclude(event, seen)

    def _conclude(self, event: Event, seen: Observation) -> None:
        # `subtype` says "success" also of an API error that ended the turn; `is_error` tells.
        if event.get("is_error") is False and event.get("subtype") == "success":
            seen.completed, seen.failure_kind = True, None
            structured = event.get("structured_output")
            seen.structured = structured if isinstance(structured, dict) and "result_kind" in structured else None
            if isinstance(event.get("result"), str):
                seen.message = event["result"]
            return
        errors = event.get("errors")
        told = [event.get("result"), *(errors if isinstance(errors, list) else [])]
        seen.complaints.extend(text for text in told if isinstance(text, str))
        by_text = next((kind for kind in map(self._classify, reversed(seen.complaints)) if kind is not None), None)
        status = event.get("api_error_status")
        by_status = _STATUSES.get(status) if isinstance(status, int) else None
        seen.failure_kind = _SUBTYPES.get(str(event.get("subtype"))) or by_text or seen.failure_kind or by_status

    def _classify(self, complaint: str) -> str | None:
        return first_match(complaint, _COMPLAINTS)

    def _transcripts(self, session_id: str) -> list[Path]:
        configured = self._env.get("CLAUDE_CONFIG_DIR")
        home = Path(configured) if configured else Path(self._env.get("HOME", os.path.expanduser("~"))) / ".claude"
        return sorted((home / "projects").glob(f"*/{session_id}.jsonl"))

    def _read_transcript(self, lines: Iterator[Event], session_id: str, marker: str) -> Transcript:
        work_dir: str | None = None
        has_turn = False
        final_message: str | None = None
        for line in lines:
            if line.get("sessionId") != session_id or line.get("isSidechain") is True:
                continue
            # Later records name the folder that the agent's shell has gone to; the first one's is the session's.
            if work_dir is None and isinstance(line.get("cwd"), str):
                work_dir = line["cwd"]
            match line:
                case {"type": "user", "message": {"content": content}} if texts_of(content):
                    has_turn, final_message = marker in texts_of(content), None
                case {"isApiErrorMessage": True}:
                    pass
                case {"type": "assistant", "message": {"stop_reason": "end_turn", "content": content}}:
                    final_message = texts_of(content) or final_message
        return Transcript(work_dir, has_turn, final_message)
