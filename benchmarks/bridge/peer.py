"""The peer, `loopx` 2.1.1, in a venv of its own: as its users call it, and at its best."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

from platformdirs import user_cache_path

from turn_journal_runtime.bridge.node import locate_node
from turn_journal_runtime.settings import current

from .timing import Times

REQUIREMENT = "loopx==2.1.1"


def is_wanted() -> bool:
    """Whether the peer is measured: it has to be installed first."""
    return os.environ.get("BENCH_PEERS") == "1"


def measure(root: Path, *, size: int, usual: int, best: int) -> dict[str, Times]:
    """Inspections and writes of the peer: `usual` and `best` calls of each kind."""
    python = _installed()
    # It looks for Node on PATH.
    environment = {**os.environ, "PATH": f"{Path(locate_node(current()).path).parent}{os.pathsep}{os.environ['PATH']}"}
    command = [str(python), "-m", "benchmarks.bridge.peer_program", str(root), str(size), str(usual), str(best)]
    tree = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    seconds: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return {name: Times.of(times) for name, times in seconds.items()}


def _installed() -> Path:
    folder = user_cache_path("turn-journal-runtime", appauthor=False) / "bench" / REQUIREMENT.replace("==", "-")
    python = folder / ("Scripts/python.exe" if sys.platform == "win32" else "bin/python")
    if not (folder / ".installed").exists():
        venv.create(folder, with_pip=True, clear=True)
        install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", REQUIREMENT]
        subprocess.run(install, check=True)
        (folder / ".installed").touch()
    return python
