"""One run of a program: its own process group, a deadline, bounded output, and nothing of it left at the end.

The program runs under `guardian`, a process of a few lines that kills it when this process dies, however it dies.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

_GUARDIAN: Final = str(Path(__file__).with_name("guardian.py"))
#: The guardian ends a program within its grace and sweep of 6 seconds; after that it is itself given up.
_STOP_SECONDS: Final = 8.0
#: Once the program and all it left are gone, its pipes hold at most what the kernel buffers.
_DRAIN_SECONDS: Final = 2.0
_CHUNK: Final = 65536


def require_programs() -> None:
    """Raises `NotImplementedError` where programs cannot be run: the guardian needs POSIX."""
    if os.name != "posix":
        raise NotImplementedError("Programs are run on POSIX systems only; elsewhere use CallableHost.")


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a program ended; what it wrote went to the caller's sinks."""

    exit_code: int | None = None
    signal: int | None = None
    #: The error number with which it could not be started.
    start_error: int | None = None
    timed_out: bool = False
    cancelled: bool = False
    #: A sink had enough.
    refused: bool = False
    #: It stopped reading its input before the end.
    broken_pipe: bool = False
    stderr_bytes: int = 0
    #: Processes of it that could not be killed.
    survivors: int = 0


class ProgramRun:
    """Runs a program once. `cancel` may be called from any thread.

    Args:
        argv: The program and its arguments; no shell is involved.
        stdin: Written to its standard input, which is then closed.
        on_stdout: Gets what it writes, chunk by chunk; False ends the program at once.
        on_stderr: The same for its standard error; it is counted in any case.
        timeout: Seconds until it is terminated, and killed a second later.
        cwd: Its working folder.
        env: Its environment; this process's when None.
    """

    def __init__(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes,
        on_stdout: Callable[[bytes], bool],
        on_stderr: Callable[[bytes], bool] | None = None,
        timeout: float,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self._argv = list(argv)
        self._input = memoryview(stdin)
        self._on_stdout = on_stdout
        self._on_stderr = on_stderr
        self._timeout = timeout
        self._cwd = cwd
        self._env = env
        self._cancel_read, self._cancel_write = os.pipe()
        os.set_blocking(self._cancel_write, False)
        self._cancel_lock = threading.Lock()
        self._cancelled = False
        self._refused = False
        self._broken_pipe = False
        self._stderr_bytes = 0

    def cancel(self) -> None:
        """Ends the program; `run` returns once it is gone."""
        self._cancelled = True
        with self._cancel_lock, contextlib.suppress(OSError):
            if self._cancel_write >= 0:
                os.write(self._cancel_write, b"c")

    def run(self) -> Ending:
        """Runs the program to its end, or ends it. Blocks the calling thread, and no other."""
        if self._cancelled:
            self._close_cancel()
            return Ending(cancelled=True)
        pipes: list[int] = []
        try:
            pipes += os.pipe()
            pipes += os.pipe()
            control_read, control_write, status_read, status_write = pipes
            guardian = subprocess.Popen(
                [
                    *(sys.executable, "-I", "-S", _GUARDIAN),
                    *(str(control_read), str(status_write), str(os.getpid())),
                    *self._argv,
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(control_read, status_write),
                start_new_session=True,
                cwd=self._cwd,
                env=None if self._env is None else dict(self._env),
                bufsize=0,
            )
        except BaseException as error:
            for descriptor in pipes:
                os.close(descriptor)
            self._close_cancel()
            if isinstance(error, OSError):
                return Ending(start_error=error.errno or 0)
            raise
        os.close(control_read)
        os.close(status_write)
        watch = _Watch(guardian, control_write, status_read)
        try:
            timed_out = self._attend(watch)
        finally:
            # Also on KeyboardInterrupt: nothing of the program is left when this returns.
            watch.end()
            self._close_cancel()
        return Ending(
            exit_code=watch.report.get("exit"),
            signal=watch.report.get("signal"),
            start_error=watch.report.get("error"),
            timed_out=timed_out,
            cancelled=self._cancelled,
            refused=self._refused,
            broken_pipe=self._broken_pipe,
            stderr_bytes=self._stderr_bytes,
            survivors=watch.report.get("left", 0),
        )

    def _attend(self, watch: _Watch) -> bool:
        """Moves bytes until the guardian has reported the end and the pipes are empty; whether time ran out."""
        streams = watch.guardian
        if streams.stdin is None or streams.stdout is None or streams.stderr is None:
            raise RuntimeError("a guardian is started with pipes")
        timed_out = False
        deadline = time.monotonic() + self._timeout
        with selectors.DefaultSelector() as selector:
            selector.register(watch.status, selectors.EVENT_READ)
            selector.register(self._cancel_read, selectors.EVENT_READ)
            for stream in (streams.stdout, streams.stderr):
                os.set_blocking(stream.fileno(), False)
                selector.register(stream, selectors.EVENT_READ)
            os.set_blocking(streams.stdin.fileno(), False)
            selector.register(streams.stdin, selectors.EVENT_WRITE)

            watching = {watch.status, streams.stdout, streams.stderr}
            while watching:
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    if watch.stopping or watch.status not in watching:
                        break  # the guardian does not come to an end, or a pipe is held from outside
                    timed_out = True
                    watch.order(b"t")
                    deadline = time.monotonic() + _STOP_SECONDS
                    continue
                for key, _ in selector.select(remaining):
                    ready = key.fileobj
                    done = False
                    if ready is streams.stdin:
                        if self._feed(streams.stdin):
                            selector.unregister(streams.stdin)
                            streams.stdin.close()
                        continue
                    if ready == self._cancel_read:
                        selector.unregister(self._cancel_read)
                        watch.order(b"t")
                        deadline = time.monotonic() + _STOP_SECONDS
                        continue
                    if ready == watch.status:
                        done = not watch.hear()
                        if done:
                            deadline = time.monotonic() + _DRAIN_SECONDS
                    elif ready is streams.stdout:
                        done = not self._take(streams.stdout.fileno(), watch, self._on_stdout)
                    elif ready is streams.stderr:
                        done = not self._take(streams.stderr.fileno(), watch, self._count_stderr)
                    if done:
                        selector.unregister(ready)
                        watching.discard(ready)
                    if self._refused and watch.stopping is False:
                        watch.order(b"k")
                        deadline = time.monotonic() + _STOP_SECONDS
        return timed_out

    def _feed(self, stdin: IO[bytes]) -> bool:
        """Writes what the pipe takes; whether there is nothing more to write."""
        try:
            written = os.write(stdin.fileno(), self._input[:_CHUNK])
        except BlockingIOError:
            return False
        except OSError:
            self._broken_pipe = True
            return True
        self._input = self._input[written:]
        return len(self._input) == 0

    def _take(self, descriptor: int, watch: _Watch, sink: Callable[[bytes], bool]) -> bool:
        """Hands one chunk on; False at the end of the stream. What comes after a refusal is dropped."""
        try:
            chunk = os.read(descriptor, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if chunk and not self._refused and not sink(chunk):
            self._refused = True
        return bool(chunk)

    def _count_stderr(self, chunk: bytes) -> bool:
        self._stderr_bytes += len(chunk)
        return self._on_stderr is None or self._on_stderr(chunk)

    def _close_cancel(self) -> None:
        with self._cancel_lock:
            os.close(self._cancel_read)
            os.close(self._cancel_write)
            self._cancel_write = -1


class _Watch:
    """The guardian's process and what it reports."""

    def __init__(self, guardian: subprocess.Popen[bytes], control: int, status: int) -> None:
        self.guardian = guardian
        self.status = status
        self.stopping = False
        self.report: dict[str, int] = {}
        os.set_blocking(status, False)
        self._control = control
        self._pending = b""

    def order(self, what: bytes) -> None:
        self.stopping = True
        with contextlib.suppress(OSError):
            os.write(self._control, what)

    def hear(self) -> bool:
        """Reads the report; False when it is complete, or the guardian is gone."""
        try:
            chunk = os.read(self.status, 4096)
        except BlockingIOError:
            return False
        *lines, self._pending = (self._pending + chunk).split(b"\n")
        for line in lines:
            name, _, number = line.decode().partition(" ")
            self.report[name] = int(number)
        return bool(chunk) and "end" not in self.report

    def end(self) -> None:
        """Ends the program if it still runs, reaps the guardian, closes the pipes."""
        os.close(self._control)  # the guardian takes that for the parent's death
        try:
            self.guardian.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.guardian.kill()
            self.guardian.wait()
        while self.hear():
            pass
        if not {"exit", "signal", "error"} & self.report.keys() and "pid" in self.report:
            # The guardian was killed itself: the program's group is still ours to end.
            self.report["signal"] = signal.SIGKILL
            with contextlib.suppress(OSError):
                os.killpg(self.report["pid"], signal.SIGKILL)
        os.close(self.status)
        for stream in (self.guardian.stdin, self.guardian.stdout, self.guardian.stderr):
            if stream is not None:
                with contextlib.suppress(OSError):
                    stream.close()
