"""Records `make demo` as docs/images/demo.svg: `python docs/record_demo.py`.

The picture is of a real run. What differs from run to run without meaning anything (process ids, the ids that rich
makes up) is replaced, so that a new picture differs only when the demo does.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "images" / "demo.svg"
_PROCESS = re.compile(r"(process(?:&#160;|\s|</text>|<text[^>]*>)+)(\d+)")
_MADE_UP = re.compile(r"terminal-\d+")


def record() -> str:
    """Runs the demo and gives its picture."""
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "demo.svg"
        subprocess.run(
            [sys.executable, str(ROOT / "examples" / "demo" / "main.py")],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "TURN_JOURNAL_DEMO_SVG": str(picture)},
            timeout=120,
        )
        return settled(picture.read_text(encoding="utf-8"))


def settled(svg: str) -> str:
    """A picture without what is new in every run."""
    numbers: dict[str, str] = {}

    def numbered(match: re.Match[str]) -> str:
        # As many digits as before: the picture is laid out by the character.
        return match[1] + numbers.setdefault(match[2], str(4100 + len(numbers)).rjust(len(match[2]), "1"))

    svg = _PROCESS.sub(numbered, svg)
    return _MADE_UP.sub("terminal-demo", svg)


if __name__ == "__main__":
    PICTURE.parent.mkdir(parents=True, exist_ok=True)
    PICTURE.write_text(record(), encoding="utf-8")
    print(PICTURE.relative_to(ROOT))
