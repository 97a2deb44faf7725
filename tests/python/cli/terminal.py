"""The command on a terminal of its own."""

from __future__ import annotations

import os
import subprocess
import sys

COMMAND = (sys.executable, "-m", "turn_journal_runtime.cli")


def environment(**more: str) -> dict[str, str]:
    return {**os.environ, "TERM": "xterm-256color", **more}


class OnTerminal:
    """A command that runs on a terminal of its own, beside others."""

    def __init__(self, *arguments: str, columns: int = 80, **variables: str) -> None:
        import fcntl
        import pty
        import struct
        import termios

        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._process = subprocess.Popen(
            [*COMMAND, *arguments], stdin=theirs, stdout=theirs, stderr=theirs, env=environment(**variables)
        )
        os.close(theirs)

    def shown(self) -> str:
        """All that it wrote, when it has ended well."""
        shown = b""
        while True:
            try:
                chunk = os.read(self._ours, 65536)
            except OSError:
                break
            if not chunk:
                break
            shown += chunk
        os.close(self._ours)
        assert self._process.wait(30) == 0
        return shown.decode()


def interrupted(*arguments: str, interrupt_at: str, code: int = 0, env: dict[str, str] | None = None) -> str:
    """What a command writes to the terminal that controls it; Ctrl-C is pressed once it has written that."""
    import fcntl
    import pty
    import struct
    import termios

    process, terminal = pty.fork()
    if process == 0:
        os.execvpe(COMMAND[0], [*COMMAND, *arguments], environment(**(env or {})))  # noqa: S606 - as a shell does
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 80, 0, 0))
    shown = b""
    while True:
        try:
            chunk = os.read(terminal, 65536)
        except OSError:
            break
        if not chunk:
            break
        shown += chunk
        if interrupt_at and interrupt_at.encode() in shown:
            os.write(terminal, b"\x03")
            interrupt_at = ""
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == code
    return shown.decode()
