"""Records `turn-journal demo` as docs/images/demo.svg: `python docs/record_demo.py`.

The picture is of what the command writes to a terminal. What differs from run to run without meaning anything (process
ids, the ids that rich makes up) is replaced, so that a new picture differs only when the demo does.
"""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

from rich.ansi import AnsiDecoder
from rich.console import Console
from rich.text import Text

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "demo.svg"
COLUMNS = 76
_PROCESS = re.compile(r"(?<=process )\d+")
_MADE_UP = re.compile(r"terminal-\d+")


def on_a_terminal(*command: str) -> str:
    """What a command writes to a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE, env=environment)
    os.close(theirs)
    written = bytearray()
    while True:
        try:
            chunk = os.read(ours, 65536)
        except OSError:  # Linux says so when the last writer has gone
            break
        if not chunk:
            break
        written += chunk
    os.close(ours)
    _, trouble = process.communicate(timeout=60)
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}: {trouble.decode()}")
    return written.decode().replace("\r\n", "\n")


def picture_of(written: str, command: str) -> str:
    """A picture of what a command wrote, without what is new in every run."""
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        return numbers.setdefault(match[0], str(4100 + len(numbers)))

    console = Console(width=COLUMNS, record=True, file=io.StringIO())
    console.print(Text.assemble(("$ ", "dim"), command, "\n"))
    for line in AnsiDecoder().decode(_PROCESS.sub(numbered, written)):
        console.print(line)
    return _MADE_UP.sub("terminal-demo", console.export_svg(title=command))


if __name__ == "__main__":
    shown = on_a_terminal(sys.executable, "-m", "turn_journal_runtime.cli", "demo")
    PICTURE.write_text(picture_of(shown, "turn-journal demo"), encoding="utf-8")
    print(PICTURE.relative_to(ROOT))
