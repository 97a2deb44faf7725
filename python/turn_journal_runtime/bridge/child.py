"""The core's process: started without a shell, in its own group, over pipes that this module owns.

The pipes are plain ones, so that nothing depends on an event loop. Specified in runtime.md, section 3.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ..forks import stands_still

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: What the core may see of the caller's environment: where things are, how text and time are shown, what libpq reads
#: beside the URL of a database, and its own settings. In particular nothing that changes how Node runs (NODE_OPTIONS,
#: NODE_PATH, debugger ports).
KEPT_VARIABLES: Final = frozenset(
    {
        *("PATH", "HOME", "LANG", "LANGUAGE", "LC_ALL", "LC_CTYPE", "LC_MESSAGES", "TZ", "TMPDIR", "TMP", "TEMP"),
        *("SYSTEMROOT", "SYSTEMDRIVE", "WINDIR", "COMSPEC", "USERPROFILE", "APPDATA", "LOCALAPPDATA"),
        *("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGPASSFILE", "PGAPPNAME", "PGCONNECT_TIMEOUT"),
        *("PGHOSTADDR", "PGOPTIONS", "PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY"),
    }
)
OWN_PREFIX: Final = "TURN_JOURNAL_"

_PIPES: Final = ("stdin", "stdout", "stderr")
_TAIL_BYTES: Final = 8 * 1024
_TAIL_LINES: Final = 20


class _Pipes:
    """The pipes of all children, which stand still while the process forks.

    The lock is held while some exist that the table of open children does not know yet: a fork in that moment would
    copy them unseen, and the copy would keep the child alive after its parent. And while one is closed: its number may
    be another file's by the time the fork lets go of it. It may be taken again by a signal handler that forks.
    """

    def __init__(self) -> None:
        self.lock: Final = threading.RLock()

    def _pause(self) -> None:
        self.lock.acquire()

    def _go_on(self) -> None:
        self.lock.release()


_pipes: Final = _Pipes()
stands_still(_pipes)
_children: set[Child] = set()


class Exit(NamedTuple):
    """How a process ended; one of the two is None."""

    code: int | None
    signal: str | None

    def __str__(self) -> str:
        return f"exit code {self.code}" if self.signal is None else f"signal {self.signal}"


def core_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that the core gets."""
    kept = {name: value for name, value in environment.items() if name.upper() in KEPT_VARIABLES}
    own = {name: value for name, value in environment.items() if name.upper().startswith(OWN_PREFIX)}
    return {**kept, **own}


class Child:
    """One running process and its three pipes.

    Raises:
        OSError: The program cannot be started; without a file name, when it is this process that lacks something.
        RuntimeError: There is no room for another thread.
    """

    stdin: int
    stdout: int
    stderr: int

    def __init__(self, command: Sequence[str], *, environment: Mapping[str, str], folder: str) -> None:
        self._noise = bytearray()
        self.stdin = self.stdout = self.stderr = -1
        theirs: list[int] = []
        with _pipes.lock:
            try:
                theirs_in, self.stdin = os.pipe()
                theirs.append(theirs_in)
                self.stdout, theirs_out = os.pipe()
                theirs.append(theirs_out)
                self.stderr, theirs_err = os.pipe()
                theirs.append(theirs_err)
                self._process = subprocess.Popen(
                    list(command),
                    stdin=theirs_in,
                    stdout=theirs_out,
                    stderr=theirs_err,
                    env=dict(environment),
                    cwd=folder,
                    **_own_group(),
                )
            except BaseException:
                self._close_pipes()
                raise
            finally:
                for descriptor in theirs:
                    os.close(descriptor)
            _children.add(self)
        self.pid: int = self._process.pid
        # For the life of the child, or it would block on what nobody reads.
        self._drain = threading.Thread(target=self._keep_tail, name="turn-journal-stderr", daemon=True)
        try:
            self._drain.start()
        except RuntimeError:
            self.kill()
            self._process.wait()
            self._close_pipes()
            _children.discard(self)
            raise

    def note(self, line: bytes) -> None:
        """Adds a line to what the child is remembered to have said."""
        self._remember(line + b"\n")

    def last_lines(self) -> list[str]:
        """The last lines the child wrote to its standard error, and noise of its standard output."""
        return bytes(self._noise).decode(errors="replace").splitlines()[-_TAIL_LINES:]

    def exited(self) -> bool:
        """Whether the process has ended; its pipes may live on in a process it started."""
        return self._process.poll() is not None

    def close_stdin(self) -> None:
        """Says that nothing more will come; the core then finishes what is in flight and ends."""
        self._close("stdin")

    def terminate(self) -> None:
        """Asks the process to end."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends the process and whatever it started."""
        if sys.platform == "win32" or self._process.returncode is not None:
            self._process.kill()
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, 9)

    def reap(self, patience: float) -> Exit:
        """Waits for the end of the process, kills it when that takes longer than `patience` seconds, and closes up."""
        try:
            code = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self._process.wait()
        self._drain.join(patience)
        self.close_stdin()
        self._close("stdout")
        _children.discard(self)
        return Exit(code, None) if code >= 0 else Exit(None, _signal_name(-code))

    def forget(self) -> None:
        """After a fork, in the new process: lets go of what belongs to the old one."""
        self._process.returncode = 0  # or subprocess would try to wait for a process that is not ours
        # One that the program has closed behind our back is gone already.
        for name in _PIPES:
            with contextlib.suppress(OSError):
                self._close(name)

    def _close_pipes(self) -> None:
        for name in _PIPES:
            self._close(name)

    def _close(self, name: str) -> None:
        with _pipes.lock:
            descriptor = getattr(self, name)
            setattr(self, name, -1)
            if descriptor >= 0:
                os.close(descriptor)

    def _keep_tail(self) -> None:
        while chunk := os.read(self.stderr, 65536):
            self._remember(chunk)
        self._close("stderr")

    def _remember(self, chunk: bytes) -> None:
        self._noise += chunk
        del self._noise[:-_TAIL_BYTES]


def _own_group() -> dict[str, Any]:
    """A Ctrl-C in the terminal is the caller's to handle, not the core's."""
    if sys.platform == "win32":
        return {"creationflags": subprocess.CREATE_NEW_PROCESS_GROUP | subprocess.CREATE_NO_WINDOW}
    return {"process_group": 0}


def _signal_name(number: int) -> str:
    import signal

    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _forget_all() -> None:
    for child in _children:
        child.forget()
    _children.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_all)
