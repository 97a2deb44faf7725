"""A core with crash points, and one that is used to look at what they leave."""

from __future__ import annotations

import json
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.chaos.store.core import Core

from turn_journal_runtime.bridge.node import locate_node
from turn_journal_runtime.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def node() -> str:
    return locate_node(Settings()).path


@pytest.fixture(scope="session")
def bundle(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core as it is shipped, but with crash points."""
    target = tmp_path_factory.mktemp("core") / "core.mjs"
    build = json.dumps({"version": "0.0.0", "schemas": ""})
    options = [
        "--bundle",
        "--minify",
        "--platform=node",
        "--format=esm",
        "--log-level=error",
        f"--define:BUILD={build}",
    ]
    esbuild = REPOSITORY / "node_modules" / "esbuild" / "bin" / "esbuild"
    subprocess.run([node, esbuild, "ts/src/main.ts", *options, f"--outfile={target}"], cwd=REPOSITORY, check=True)
    return target


@pytest.fixture(scope="module")
def core(node: str, bundle: Path) -> Iterator[Core]:
    """A core that lives as long as the module's tests."""
    core = Core(node, bundle)
    yield core
    core.close()


@pytest.fixture
def root() -> Iterator[Path]:
    """A runtime root, in memory where there is such a place: these tests kill processes, they cut no power."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield Path(folder)
