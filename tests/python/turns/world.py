"""A turn's outside world for tests: providers that remember what they did, hosts that do what they are told."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from turn_journal_runtime.turns import HostFailedError, HostRequest, TurnResult, aio, run_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

GOAL, AGENT, TODO = "goal", "agent", "todo"
RESULT = {"result_kind": "validated_progress", "n": 1}


class KilledError(BaseException):
    """What a kill looks like from inside: nothing that follows it runs."""


class Ledger:
    """A provider without readback. `fails` is raised before the effect, `dies` after it."""

    def __init__(self, answer: Any = None) -> None:
        self.applied: list[str] = []
        self.asked: list[str] = []
        self.payloads: list[Mapping[str, Any]] = []
        self.answer = answer
        self.fails: BaseException | None = None
        self.dies: BaseException | None = None

    def apply(self, effect_ref: str, payload: Mapping[str, Any]) -> Any:
        if self.fails is not None:
            raise self.fails
        self.applied.append(effect_ref)
        self.payloads.append(payload)
        if self.dies is not None:
            raise self.dies
        return self.answer

    def heal(self) -> None:
        self.fails = self.dies = None


class ReadableLedger(Ledger):
    """A provider that can tell what it did, or says `answers` when that is set."""

    def __init__(self, answer: Any = None, answers: str | None = None) -> None:
        super().__init__(answer)
        self.answers = answers

    def readback(self, effect_ref: str) -> str:
        self.asked.append(effect_ref)
        return self.answers or ("committed" if effect_ref in self.applied else "absent")


class IdempotentLedger(Ledger):
    """A provider that may be sent the same key again."""

    idempotent = True


class ScriptedHost:
    """A host that does one thing per attempt: returns a result, raises an error, or calls a function."""

    def __init__(self, *script: Any) -> None:
        self.script = list(script)
        self.executed: list[HostRequest] = []
        self.resumed: list[tuple[str, HostRequest]] = []
        self.sessions: set[str] = set()

    def execute(self, request: HostRequest) -> Any:
        self.executed.append(request)
        return self._next(request)

    def resume(self, session_id: str, request: HostRequest) -> Any:
        self.resumed.append((session_id, request))
        return self._next(request)

    def session_exists(self, session_id: str, request: HostRequest) -> bool:
        return session_id in self.sessions

    def healthcheck(self) -> bool:
        return True

    def close(self) -> None:
        pass

    def _next(self, request: HostRequest) -> Any:
        step = self.script.pop(0) if self.script else RESULT
        if isinstance(step, BaseException):
            raise step
        return step(request) if callable(step) else dict(step)


class Turn:
    """One turn under a root, driven sync or async, by its own words."""

    def __init__(self, root: Path, *, is_async: bool) -> None:
        self.root = root
        self.is_async = is_async

    def run(self, host: Any, **parts: Any) -> TurnResult:
        names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "todo_id": TODO} | {
            name: parts.pop(name) for name in ("goal_id", "agent_id", "todo_id") if name in parts
        }
        if not self.is_async:
            return run_turn(self.root, **names, host=host, **parts)
        return asyncio.run(aio.run_turn(self.root, **names, host=host, **parts))

    @property
    def path(self) -> Path:
        (path,) = (self.root / "goals" / GOAL / "turns").glob("*.json")
        return path

    @property
    def journal(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.path.read_bytes())
        return found

    def history(self) -> list[tuple[str, int]]:
        """The status and the number of completed phases of each transition."""
        lines = self.path.with_suffix(".history.jsonl").read_text().split("\n")
        records = [json.loads(line) for line in lines if line.strip()]
        return [(record["status"], len(record["completed_phases"])) for record in records]

    def kill(self, host: Any, **parts: Any) -> None:
        """A drive that is killed by what one of its callables raises."""
        try:
            self.run(host, **parts)
        except KilledError:
            return
        raise AssertionError("the drive was not killed")


def with_session(session_id: str, then: Callable[[HostRequest], Any] | BaseException) -> Callable[[HostRequest], Any]:
    """A step of a host that shows its session first."""

    def step(request: HostRequest) -> Any:
        request.on_session(session_id)
        if isinstance(then, BaseException):
            raise then
        return then(request)

    return step


def rate_limited(*, resumable: bool = False) -> HostFailedError:
    return HostFailedError(kind="rate_limited", resumable=resumable)
