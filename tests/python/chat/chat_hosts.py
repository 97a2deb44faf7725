"""A chat's host for tests: sessions on disk, every message answered once, what was done noted in a file."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from turn_journal_runtime.chat import ChatSession
    from turn_journal_runtime.turns import HostRequest


class NotingHost:
    """Keeps each session in a file: which turns began, were resumed, and what was answered.

    An agent with a memory of its own: it can be asked what it has answered, and goes on with what it has begun.
    """

    def __init__(self, session: ChatSession, folder: Path, pause: Callable[[], float] = lambda: 0.0) -> None:
        self.session = session
        self.folder = folder
        self.pause = pause
        self.closed = 0
        self.well = True

    def execute(self, request: HostRequest) -> dict[str, Any]:
        host_session = request.session.get("id") or f"session-of-{request.agent_id}"
        request.on_session(host_session)
        return self._work(host_session, request, "execute")

    def resume(self, session_id: str, request: HostRequest) -> dict[str, Any]:
        for note in notes_of(self.folder, session_id):
            if note["turn"] == request.turn_key and note["what"] == "answer":
                return dict(note["result"])
        return self._work(session_id, request, "resume")

    def session_exists(self, session_id: str, request: HostRequest) -> bool:
        return True

    def healthcheck(self) -> bool:
        return self.well

    def close(self) -> None:
        self.closed += 1

    def _work(self, host_session: str, request: HostRequest, what: str) -> dict[str, Any]:
        message = request.input["message"]
        self._note(host_session, request, what, message=message)
        time.sleep(self.pause())
        result = {"result_kind": "validated_progress", "answer": f"answer to {message}"}
        self._note(host_session, request, "answer", message=message, result=result)
        return result

    def _note(self, host_session: str, request: HostRequest, what: str, **more: Any) -> None:
        note = json.dumps({"what": what, "turn": request.turn_key, **more}) + "\n"
        path = self.folder / f"{host_session}.jsonl"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, note.encode())
        os.close(descriptor)


def notes_of(folder: Path, host_session: str) -> list[dict[str, Any]]:
    path = folder / f"{host_session}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
