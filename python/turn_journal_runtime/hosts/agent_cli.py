"""What the two command-line agents have in common: a prompt in, a stream of JSON events out, sessions on disk."""

from __future__ import annotations

import json
import os
import shutil
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ..turns.host import HostFailedError, HostRequest, HostResult
from .process import ProgramRun, require_programs
from .subprocess_host import RunningPrograms, failure_of

#: An event, such as the output of a tool, may be large; a stream without line ends is no event stream.
_MAX_LINE_BYTES: Final = 16 * 1024 * 1024
#: How much of the end of standard error is searched for the tools' own messages; none of it is kept.
_STDERR_TAIL_BYTES: Final = 16 * 1024
_CONTINUE: Final = "You were interrupted. Go on with the work of this turn from where you were, and do not repeat it."

Event = dict[str, Any]


@dataclass
class Observation:
    """What an agent's event stream has said so far."""

    session_id: str | None = None
    #: The agent's last message.
    message: str | None = None
    #: The turn is over, by the agent's own account.
    completed: bool = False
    #: A result that is a JSON object already.
    structured: dict[str, Any] | None = None
    failure_kind: str | None = None
    #: Texts that may name a failure.
    complaints: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Transcript:
    """What an agent's own record of a session says."""

    #: The folder that the session belongs to.
    work_dir: str | None
    #: The last prompt was this turn's.
    has_turn: bool
    #: The agent's last message, when it had ended its work.
    final_message: str | None


class AgentCli(ABC):
    """A command-line agent as a host.

    Args:
        program: The agent's program.
        options: Further arguments, before the session's and the prompt.
        cwd: The folder it works in; a session can be resumed in its own folder only.
        env: Its environment; this process's when None.
        timeout: Seconds for one attempt.
        prompt: Makes the prompt from a request; by default the request's input when that is a text, or its `prompt`,
            or its `message` (what a chat hands in).
        result: Makes the host result from the agent's last message; by default the message itself when it is a JSON
            object with `result_kind`, else `{"result_kind": "validated_progress", "message": <the message>}`.
    """

    def __init__(
        self,
        program: str | os.PathLike[str],
        options: Sequence[str],
        *,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str] | None,
        timeout: float,
        prompt: Callable[[HostRequest], str] | None,
        result: Callable[[str], HostResult] | None,
    ) -> None:
        require_programs()
        self._program = os.fspath(program)
        self._options = list(options)
        self._cwd = Path(os.path.realpath(cwd if cwd is not None else os.getcwd()))
        self._env = dict(os.environ if env is None else env)
        self._timeout = timeout
        self._prompt = prompt or default_prompt
        self._result = result or default_result
        self._programs = RunningPrograms()

    def execute(self, request: HostRequest) -> HostResult:
        """Starts a session, or goes on with the planned one, and returns the agent's result."""
        planned = request.session.get("id") if request.session.get("action") == "resume" else None
        session_id = planned if isinstance(planned, str) else None
        if session_id is not None and not self.session_exists(session_id, request):
            raise HostFailedError(kind="session_missing")
        return self._run(session_id, self._prompt(request), request)

    def resume(self, session_id: str, request: HostRequest) -> HostResult:
        """Takes the session's result for this turn when it has one; otherwise goes on with that same session."""
        transcript = self._proof(session_id, request)
        if transcript is None:
            raise HostFailedError(kind="session_missing")
        if transcript.has_turn and transcript.final_message is not None:
            return self._result(transcript.final_message)
        return self._run(session_id, _CONTINUE if transcript.has_turn else self._prompt(request), request)

    def session_exists(self, session_id: str, request: HostRequest) -> bool:
        """Whether the session's transcript is there and belongs to the folder that the agent works in."""
        return self._proof(session_id, request) is not None

    def healthcheck(self) -> bool:
        """Whether the agent's program can be found."""
        return shutil.which(self._program, path=self._env.get("PATH")) is not None

    def interrupt(self, request: HostRequest) -> None:
        """Ends the agent that works on that request, whose caller does not wait for it any more."""
        self._programs.cancel(request)

    def close(self) -> None:
        """Ends every agent that still runs."""
        self._programs.cancel()

    @abstractmethod
    def _arguments(self, session_id: str | None) -> list[str]:
        """The arguments after the program; the prompt comes through standard input."""

    @abstractmethod
    def _observe(self, event: Event, seen: Observation) -> None:
        """Takes one event in."""

    @abstractmethod
    def _classify(self, complaint: str) -> str | None:
        """The failure kind that a text of the agent names."""

    @abstractmethod
    def _transcripts(self, session_id: str) -> list[Path]:
        """The files that may be the session's, the likeliest first."""

    @abstractmethod
    def _read_transcript(self, lines: Iterator[Event], session_id: str, marker: str) -> Transcript:
        """Reads a transcript; `marker` is what this turn's prompt carries."""

    def _proof(self, session_id: str, request: HostRequest) -> Transcript | None:
        if not is_plain_id(session_id):
            return None
        # A session that was gone on with elsewhere, or a copied folder, leaves files of one name under several folders.
        for path in self._transcripts(session_id):
            try:
                with path.open("rb") as file:
                    transcript = self._read_transcript(_events(file), session_id, _marker(request))
            except OSError:
                continue
            if transcript.work_dir is not None and Path(os.path.realpath(transcript.work_dir)) == self._cwd:
                return transcript
        return None

    def _run(self, session_id: str | None, prompt: str, request: HostRequest) -> HostResult:
        seen = Observation()
        noted: str | None = session_id
        pending = bytearray()
        stderr_tail = bytearray()

        def take_line(line: bytes) -> None:
            nonlocal noted
            event = _event(line)
            if event is None:
                return
            self._observe(event, seen)
            # While a session is resumed, the stream may show ids that stand for no session: the known one stays.
            if noted is None and seen.session_id is not None and is_plain_id(seen.session_id):
                noted = seen.session_id
                request.on_session(noted)

        def on_stdout(chunk: bytes) -> bool:
            pending.extend(chunk)
            if b"\n" not in chunk:
                return len(pending) <= _MAX_LINE_BYTES
            *lines, rest = bytes(pending).split(b"\n")
            pending[:] = rest
            for line in lines:
                take_line(line)
            return len(pending) <= _MAX_LINE_BYTES

        def on_stderr(chunk: bytes) -> bool:
            stderr_tail.extend(chunk)
            del stderr_tail[:-_STDERR_TAIL_BYTES]
            return True

        run = ProgramRun(
            [self._program, *self._arguments(session_id)],
            stdin=f"{prompt}\n\n{_marker(request)}\n".encode(errors="replace"),
            on_stdout=on_stdout,
            on_stderr=on_stderr,
            timeout=self._timeout,
            cwd=self._cwd,
            # The agent's tools may hand the key on, so that what they do outside is done once.
            env={**self._env, "TURN_JOURNAL_TURN_KEY": request.turn_key, "TURN_JOURNAL_EFFECT_ID": request.effect_id},
        )
        with self._programs.running(request, run):
            ending = run.run()
        take_line(bytes(pending))

        if seen.completed and seen.failure_kind is None and (seen.structured is not None or seen.message is not None):
            # The agent has said that its turn is over: how its process ended afterwards changes nothing.
            return seen.structured if seen.structured is not None else self._result(seen.message or "")
        resumable = noted is not None
        broken = failure_of(ending)
        if broken is not None and (broken.kind == "executor_timeout" or seen.failure_kind is None):
            raise HostFailedError(broken.message, kind=broken.kind, details=broken.details, resumable=resumable)
        kind = seen.failure_kind or self._complaint_kind([stderr_tail.decode(errors="replace"), *seen.complaints])
        if kind is None:
            kind = "contract_rejected" if ending.exit_code == 0 else "unknown"
        raise HostFailedError(kind=kind, resumable=resumable and kind != "session_missing")

    def _complaint_kind(self, complaints: list[str]) -> str | None:
        kinds = (self._classify(complaint) for complaint in reversed(complaints) if complaint)
        return next((kind for kind in kinds if kind is not None), None)


def default_prompt(request: HostRequest) -> str:
    """The request's input as a prompt."""
    given = request.input
    if isinstance(given, Mapping):
        given = given.get("prompt", given.get("message"))
    if isinstance(given, str):
        return given
    return json.dumps(request.document(), ensure_ascii=False, default=str)


def default_result(message: str) -> HostResult:
    """The agent's last message as a host result."""
    try:
        value = json.loads(message)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, dict) and isinstance(value.get("result_kind"), str):
        return value
    return {"result_kind": "validated_progress", "message": message}


def is_plain_id(session_id: str) -> bool:
    """Whether a session id can stand in an argument and in a file's name as it is."""
    return (
        0 < len(session_id) <= 256 and session_id[0] != "-" and session_id.replace("-", "").replace("_", "").isalnum()
    )


def first_match(text: str, patterns: Sequence[tuple[str, str]]) -> str | None:
    """The kind of the first pattern, in lower case, that the text contains."""
    lowered = text.lower()
    return next((kind for pattern, kind in patterns if pattern in lowered), None)


def texts_of(content: Any) -> str:
    """The texts of a message's content, which is a text or a list of parts."""
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "\n".join(
        str(part["text"]) for part in parts if isinstance(part, dict) and isinstance(part.get("text"), str)
    )


def _marker(request: HostRequest) -> str:
    """What tells this turn's prompt from the others of its session."""
    return f"[turn {request.turn_key}]"


def _event(line: bytes) -> Event | None:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None  # a banner or a warning between the events
    return value if isinstance(value, dict) else None


def _events(file: Any) -> Iterator[Event]:
    while line := file.readline(_MAX_LINE_BYTES):
        event = _event(line)
        if event is not None:
            yield event
