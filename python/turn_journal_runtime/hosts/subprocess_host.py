"""A host that is any program: a JSON line in, a JSON object out."""

from __future__ import annotations

import json
import os
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakValueDictionary

import orjson

from ..errors import InvalidJournalError
from ..turns.host import HostFailedError, HostRequest, HostResult
from .process import Ending, ProgramRun, require_programs

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

#: A host result is at most this many bytes of JSON: session-recovery.md, section 3.
MAX_RESULT_BYTES: Final = 64 * 1024


class RunningPrograms:
    """The programs that an adapter runs at the moment, so that they can be ended from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: list[tuple[str, ProgramRun]] = []
        #: By their identity: a request may be interrupted while its thread has not come to its program yet.
        self._interrupted: WeakValueDictionary[int, HostRequest] = WeakValueDictionary()

    @contextmanager
    def running(self, request: HostRequest, run: ProgramRun) -> Iterator[ProgramRun]:
        entry = (request.turn_key, run)
        with self._lock:
            self._runs.append(entry)
            if id(request) in self._interrupted:
                run.cancel()
        try:
            yield run
        finally:
            with self._lock:
                self._runs.remove(entry)

    def cancel(self, request: HostRequest | None = None) -> None:
        """Ends the program of a request's turn, also one that is not started yet; or all that run."""
        with self._lock:
            if request is not None:
                self._interrupted[id(request)] = request
            runs = [run for key, run in self._runs if request is None or request.turn_key == key]
        for run in runs:
            run.cancel()


class SubprocessHost:
    """Runs a program for each turn: the request as one JSON line on its standard input, one JSON object on its output.

    The request has `goal_id`, `agent_id`, `todo_id`, `turn_key`, `effect_id` (the key for what it does outside),
    `attempt` (from 1), `turn_envelope`, `session` and `input` (the `host_input` of `run_turn`). The answer is a result,
    with `result_kind`, or a failure: `{"failure_kind": ..., "recovery_kind": "resume_session" or absent}`. A retry with
    a `session_binding_resolver` has what that finds in `session`, as `{"action": "resume", "id": ...}`. Nothing else
    may be on the standard output.

    The program has its own process group and is killed, with whatever it started, at its deadline, when the turn is
    cancelled, when it writes too much, when it has answered, and when this process dies. Its standard error is counted
    and dropped.

    Args:
        argv: The program and its arguments; no shell is involved.
        timeout: Seconds for one attempt.
        max_output_bytes: How much it may write to its standard output.
        cwd: Its working folder.
        env: Its environment; this process's when None.

    Specified in session-recovery.md, section 5.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        timeout: float = 600.0,
        max_output_bytes: int = MAX_RESULT_BYTES,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        require_programs()
        if isinstance(argv, str) or not argv:
            raise ValueError("argv is the program and its arguments, as a sequence: no shell is involved.")
        self._argv = [os.fspath(argument) for argument in argv]
        self._timeout = timeout
        self._max_output_bytes = max_output_bytes
        self._cwd = cwd
        self._env = env
        self._programs = RunningPrograms()

    def execute(self, request: HostRequest) -> HostResult:
        """Runs the program for this attempt; raises `HostFailedError`."""
        try:
            line = orjson.dumps(request.document()) + b"\n"
        except TypeError:
            raise InvalidJournalError(
                "The host's input is handed to a program and has to be JSON.", kind="invalid_request"
            ) from None
        output = bytearray()

        def keep(chunk: bytes) -> bool:
            output.extend(chunk)
            return len(output) <= self._max_output_bytes

        run = ProgramRun(
            self._argv,
            stdin=line,
            on_stdout=keep,
            timeout=self._timeout,
            cwd=self._cwd,
            env=self._env,
        )
        with self._programs.running(request, run):
            ending = run.run()
        return _answer(ending, bytes(output[: self._max_output_bytes]))

    def resume(self, session_id: str, request: HostRequest) -> HostResult:
        """Runs the program with a request that names the session to go on with."""
        del session_id  # it is the request's session.id
        return self.execute(request)

    def session_exists(self, session_id: str, request: HostRequest) -> bool:
        """True: the program itself knows its sessions, and answers `session_missing` for one it has not."""
        del session_id, request
        return True

    def healthcheck(self) -> bool:
        """Whether the program can be found."""
        import shutil

        search = None if self._env is None else self._env.get("PATH")
        return shutil.which(self._argv[0], path=search) is not None

    def interrupt(self, request: HostRequest) -> None:
        """Ends the program of that request, whose caller does not wait for it any more."""
        self._programs.cancel(request)

    def close(self) -> None:
        """Ends every program that still runs."""
        self._programs.cancel()


#: Why no error says what the program said.
_UNSEEN: Final = "Nothing that it wrote is kept: have it write a log of its own, or run it by hand with a request."


def _answer(ending: Ending, output: bytes) -> HostResult:
    """What the program said, or the failure that its ending is: session-recovery.md, section 5."""
    broken = failure_of(ending)
    if broken is not None:
        raise broken
    answers = _objects(output)
    reported = answers[0] if len(answers) == 1 else {}
    if "failure_kind" in reported:
        resumable = reported.get("recovery_kind") == "resume_session"
        kind = reported["failure_kind"]
        raise HostFailedError(kind=kind if isinstance(kind, str) else None, resumable=resumable)
    if ending.exit_code != 0:
        raise HostFailedError(
            f"The host's program ended with exit code {ending.exit_code}. {_UNSEEN}",
            kind="transport_lost" if ending.broken_pipe else "unknown",
            details={"exit_code": ending.exit_code, "stderr_bytes": ending.stderr_bytes},
        )
    if len(answers) != 1:
        raise HostFailedError(
            f"The host's program wrote {len(output)} bytes to its standard output, which are not one JSON object and "
            f"nothing else: what it logs belongs on its standard error. {_UNSEEN}",
            kind="transport_lost" if ending.broken_pipe else "contract_rejected",
            details={"stdout_bytes": len(output), "stderr_bytes": ending.stderr_bytes},
        )
    return reported


def failure_of(ending: Ending) -> HostFailedError | None:
    """The failure that an ending is by itself, whatever was written."""
    details: dict[str, Any] = {"survivors": ending.survivors} if ending.survivors else {}
    if ending.start_error is not None:
        return HostFailedError(
            "The host's program could not be started: install it, or correct argv.",
            kind="unknown",
            details={"errno": ending.start_error},
        )
    if ending.refused:
        return HostFailedError(kind="contract_rejected", details=details)
    if ending.timed_out:
        return HostFailedError(kind="executor_timeout", details=details)
    if ending.cancelled or ending.signal is not None:
        return HostFailedError(kind="transport_lost", details=details)
    return None


def _objects(output: bytes) -> list[dict[str, Any]]:
    """The JSON objects that the output consists of; none when it is anything else as well."""
    try:
        text = output.decode()
    except UnicodeDecodeError:
        return []
    decoder = json.JSONDecoder(object_pairs_hook=_distinct, parse_constant=_refuse)
    found: list[dict[str, Any]] = []
    position = 0
    while position < len(text):
        if text[position].isspace():
            position += 1
            continue
        try:
            value, position = decoder.raw_decode(text, position)
        except (ValueError, RecursionError):
            return []
        if not isinstance(value, dict):
            return []
        found.append(value)
    return found


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice")
    return found


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")
