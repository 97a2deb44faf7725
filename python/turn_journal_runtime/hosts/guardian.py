"""Runs one program and sees that nothing of it outlives the process that asked for it.

    python -I -S guardian.py CONTROL STATUS PARENT PROGRAM [ARGUMENT...]

The parent holds the other end of the pipe CONTROL. When that end closes, in whatever way the parent dies, or when a
byte comes through, the program is terminated: SIGTERM to its process group, SIGKILL after a grace (at once for `k`).
When the program has ended, whatever it left behind is killed; on Linux that includes what left the process group,
because orphans become children of this process. On STATUS it says, a line each: `pid N`, then `exit N`, `signal N` or
`error N` (it could not be started, errno), `left N` when something could not be killed, and at last `end 0`.

A file of its own, with nothing of the package in it, so that it starts in a few milliseconds.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:  # typing is not imported: it takes longer to load than all the rest
    from collections.abc import Callable

GRACE_SECONDS = 1.0
SWEEP_SECONDS = 5.0
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36


def main() -> None:
    control, status, parent = (int(argument) for argument in sys.argv[1:4])
    argv = sys.argv[4:]
    os.set_inheritable(control, False)
    os.set_inheritable(status, False)
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    # Handled, not ignored: an ignored signal would stay ignored in the program.
    for number in (signal.SIGCHLD, signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    prctl = linux_prctl()
    prctl(PR_SET_CHILD_SUBREAPER, 1)
    # A fork of the parent may hold CONTROL open after the parent's death; the kernel tells of the death itself.
    prctl(PR_SET_PDEATHSIG, signal.SIGTERM)

    child = start(argv, prctl, status)
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    say(status, f"pid {child}")

    waiting = select.poll()
    waiting.register(wake_read, select.POLLIN)
    waiting.register(control, select.POLLIN)
    kill_at: float | None = None
    while True:
        ended, how = os.waitpid(child, os.WNOHANG)
        if ended:
            break
        now = time.monotonic()
        if kill_at is None and os.getppid() != parent:
            signal_group(child, signal.SIGTERM)
            kill_at = now + GRACE_SECONDS
        elif kill_at is not None and now >= kill_at:
            signal_group(child, signal.SIGKILL)
            kill_at = now + GRACE_SECONDS
        for ready, _ in waiting.poll(None if kill_at is None else (kill_at - now) * 1000):
            if ready == wake_read:
                os.read(wake_read, 512)
                continue
            order = os.read(control, 1)
            if order in (b"", b"k"):
                waiting.unregister(control)
            signal_group(child, signal.SIGKILL if order == b"k" else signal.SIGTERM)
            kill_at = time.monotonic() + GRACE_SECONDS
    say(status, f"signal {os.WTERMSIG(how)}" if os.WIFSIGNALED(how) else f"exit {os.WEXITSTATUS(how)}")
    left = sweep(child)
    if left:
        say(status, f"left {left}")
    say(status, "end 0")


def start(argv: list[str], prctl: Callable[[int, int], object], status: int) -> int:
    guardian = os.getpid()
    failure_read, failure_write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setpgid(0, 0)
            for number in (signal.SIGPIPE, signal.SIGXFSZ):  # ignored by Python, and so would the program
                signal.signal(number, signal.SIG_DFL)
            prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != guardian:
                os._exit(127)
            os.execvp(argv[0], argv)  # noqa: S606 - starting a program is the purpose
        except OSError as error:
            os.write(failure_write, str(error.errno).encode())
        finally:
            os._exit(127)
    os.close(failure_write)
    with contextlib.suppress(OSError):
        os.setpgid(child, child)
    failure = os.read(failure_read, 16)
    os.close(failure_read)
    if failure:
        os.waitpid(child, 0)
        say(status, f"error {failure.decode()}")
        say(status, "end 0")
        os._exit(0)
    return child


def sweep(group: int) -> int:
    """Kills what is left of the program until nothing is; the number that could not be killed in time."""
    deadline = time.monotonic() + SWEEP_SECONDS
    while True:
        signal_group(group, signal.SIGKILL)
        left = children()
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return 0
        if time.monotonic() > deadline:
            return max(len(left), 1)
        time.sleep(0.005)


def children() -> list[int]:
    """The children of this process, by the kernel's account; none where the kernel does not tell."""
    try:
        with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as listed:
            return [int(pid) for pid in listed.read().split()]
    except OSError:
        return []


def signal_group(group: int, number: int) -> None:
    with contextlib.suppress(OSError):
        os.killpg(group, number)


def say(status: int, line: str) -> None:
    with contextlib.suppress(OSError):
        os.write(status, f"{line}\n".encode())


def linux_prctl() -> Callable[[int, int], object]:
    """prctl(2), or nothing where there is none."""
    if not sys.platform.startswith("linux"):
        return lambda *_: None
    import ctypes

    library = ctypes.CDLL(None)
    return lambda option, value: library.prctl(option, int(value), 0, 0, 0)


if __name__ == "__main__":
    main()
