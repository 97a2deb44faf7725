"""A turn's outside world for tests: providers that remember what they did, hosts that do what they are told."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.python.turns.roots import texts_in

from turn_journal_runtime import list_turn_journals, load_turn_journal, turn_history, turn_journal_path
from turn_journal_runtime.bridge import default_client
from turn_journal_runtime.flow import run
from turn_journal_runtime.turns import HostFailedError, HostRequest, TurnResult, aio, run_turn
from turn_journal_runtime.turns.root import open_root

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from turn_journal_runtime import RunJournal

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

    def __init__(self, root: Path | str, *, is_async: bool) -> None:
        self.root = root
        self.is_async = is_async
        self._root = open_root(root, default_client())

    def run(self, host: Any, **parts: Any) -> TurnResult:
        names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "todo_id": TODO} | {
            name: parts.pop(name) for name in ("goal_id", "agent_id", "todo_id") if name in parts
        }
        if not self.is_async:
            return run_turn(self.root, **names, host=host, **parts)
        return asyncio.run(aio.run_turn(self.root, **names, host=host, **parts))

    @property
    def path(self) -> Path:
        """Where the turn is in a folder."""
        assert isinstance(self.root, Path)
        (path,) = (self.root / "goals" / GOAL / "turns").glob("*.json")
        return path

    @property
    def place(self) -> Path | str:
        """Where the turn is."""
        if isinstance(self.root, Path):
            return self.path
        (turn,) = list_turn_journals(self.root, goal_id=GOAL)
        return turn_journal_path(self.root, goal_id=GOAL, turn_key=turn["turn_key"])

    @property
    def journal(self) -> dict[str, Any]:
        return load_turn_journal(self.place)

    @property
    def stored(self) -> str:
        """Everything that is stored of the turn and of others, as text."""
        if isinstance(self.root, str):
            return texts_in(self.root)
        files = [path for path in self.root.rglob("*") if path.is_file()]
        return "".join(path.read_bytes().decode(errors="replace") for path in files)

    @property
    def is_empty(self) -> bool:
        """Whether nothing was stored under the root, and nothing made there."""
        if isinstance(self.root, str):
            return not texts_in(self.root)
        return not self.root.exists() or not list(self.root.iterdir())

    @property
    def is_driven(self) -> bool:
        return run(self._root.is_driven(self.place), default_client())

    @contextmanager
    def leased(self) -> Iterator[int]:
        """Another driver that has the turn."""
        lease = run(self._root.acquire(self.place, take_over=True), default_client())
        try:
            yield lease.number
        finally:
            run(lease.give_back(), default_client())

    def runs(self) -> AbstractContextManager[RunJournal]:
        """The journal of the root's runs."""
        return self._root.runs()

    def history(self) -> list[tuple[str, int]]:
        """The status and the number of completed phases of each transition."""
        journals = [load_turn_journal(self.place, at=one["seq"]) for one in turn_history(self.place)]
        return [(journal["status"], len(journal["completed_phases"])) for journal in journals]

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
