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
from turn_journal_runtime.bridge.schemas import schemas_digest
from turn_journal_runtime.settings import Settings

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[3]


@pytest.fixture(scope="session")
def node() -> str:
    return locate_node(Settings()).path


def bundled(node: str, program: str, folder: Path) -> Path:
    """A program in one file, which starts fast; a core in it is as it is shipped, but with crash points."""
    target = folder / Path(program).with_suffix(".mjs").name
    build = json.dumps({"version": "0.0.0", "schemas": schemas_digest()})
    options = [
        "--bundle",
        "--minify",
        "--platform=node",
        "--format=esm",
        "--log-level=error",
        f"--define:BUILD={build}",
    ]
    esbuild = REPOSITORY / "node_modules" / "esbuild" / "bin" / "esbuild"
    subprocess.run([node, esbuild, program, *options, f"--outfile={target}"], cwd=REPOSITORY, check=True)
    return target


@pytest.fixture(scope="session")
def bundle(node: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The core with crash points."""
    return bundled(node, "ts/src/main.ts", tmp_path_factory.mktemp("core"))


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
