"""The generated pages are fresh, and the site builds with every page in its navigation."""

from __future__ import annotations

import html
import inspect
import re
import subprocess
import sys
from pathlib import Path

import turn_journal_runtime

ROOT = Path(__file__).parents[2]


def test_the_generated_pages_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "docs" / "generate_reference.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_picture_tells_what_the_demo_tells() -> None:
    source = (ROOT / "python" / "turn_journal_runtime" / "cli" / "demo.py").read_text(encoding="utf-8")
    told = [*re.findall(r'Heading\("([^"]+)"', source), "Nothing ran twice."]
    assert len(told) == 5
    picture = (ROOT / "docs" / "images" / "demo.svg").read_text(encoding="utf-8")
    shown = html.unescape(re.sub(r"<[^>]+>", "", picture)).replace("\u00a0", " ")
    assert [line for line in told if line not in shown] == []


def test_the_site_builds_strictly(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    reference = (tmp_path / "site" / "reference" / "python" / "index.html").read_text(encoding="utf-8")
    assert "JournalCapability" in reference
    explained = {anchor.rsplit(".", 1)[-1] for anchor in re.findall(r'id="(turn_journal_runtime\.[\w.]+)"', reference)}
    public = [getattr(turn_journal_runtime, name) for name in turn_journal_runtime.__all__]
    assert {one.__name__ for one in public if inspect.isroutine(one) or inspect.isclass(one)} <= explained
