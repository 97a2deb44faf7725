"""Every code block of the README and of every page of docs/ does what the page says; `page.py` has the rules."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.process
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_blocks_of_a_page_do_what_it_says(page: Path, tmp_path: Path) -> None:
    if "```" not in page.read_text(encoding="utf-8"):
        return
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TURN_JOURNAL_")}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("page.py")), str(page)],
        capture_output=True,
        text=True,
        env={**environment, "TURN_JOURNAL_HOME": str(tmp_path / "home")},
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if target.startswith(("http:", "https:", "#", "mailto:")):
            continue
        path = target.split("#")[0]
        assert (page.parent / path).exists(), f"{page.relative_to(ROOT)} links to {target}"
