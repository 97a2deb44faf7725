"""The wheel, built from a clean tree and installed where no Node is: it carries the core and works."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PROGRAM = """
import json, os, shutil, sys
from turn_journal_runtime import (
    StoreUnavailableError, inspect_turn_journal, load_turn_journal, turn_journal_path, write_turn_journal
)

assert shutil.which("node") is None, "this test wants no Node on PATH"
root = sys.argv[1]
path = turn_journal_path(root, goal_id="my_goal", turn_key="turn_001")
result = write_turn_journal(
    path,
    {
        "status": "started",
        "plan": {"action": "process_data", "params": {}},
        "completed_phases": [],
        "schema_version": "loopx_turn_journal_v0",
    },
    expected_effect_id=None,
)
inspection = inspect_turn_journal(root, goal_id="my_goal", agent_id="agent_123", turn_key="turn_001")
print(json.dumps({"result": result, "inspection": inspection}))
try:
    load_turn_journal("postgresql://nobody@127.0.0.1:1/none#goals/g/turns/k.json")
except StoreUnavailableError as error:
    print("no database:", error.details["code"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from nothing but what a clone has."""
    tree = tmp_path_factory.mktemp("tree")
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"],
        cwd=ROOT,
        check=True,
        capture_output=True,
    )
    for name in listed.stdout.decode().split("\0"):
        source = ROOT / name
        if name and source.is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, tree / name)
    out = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out)]
    subprocess.run(command, cwd=tree, check=True, capture_output=True, timeout=600)
    (built,) = out.glob("*.whl")
    return built


@pytest.mark.package
@pytest.mark.timeout(900)
def test_the_wheel_carries_the_bundle_and_the_schemas(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    schemas = {f"turn_journal_runtime/_core/schemas/{path.name}" for path in (ROOT / "schemas").glob("*.json")}
    assert schemas
    assert {"turn_journal_runtime/_core/core.mjs", "turn_journal_runtime/py.typed", *schemas} <= names


@pytest.mark.package
@pytest.mark.timeout(900)
def test_an_installed_wheel_writes_and_inspects_a_turn_where_no_node_is(wheel: Path, tmp_path: Path) -> None:
    environment_folder = tmp_path / "venv"
    venv.create(environment_folder, with_pip=True)
    python = environment_folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    subprocess.run(install, check=True, capture_output=True, timeout=600)

    nowhere = tmp_path / "empty"
    nowhere.mkdir()
    environment = {**os.environ, "PATH": str(nowhere), "HOME": str(tmp_path), "TURN_JOURNAL_POSTGRES_TIMEOUT": "0.3"}
    for name in ("TURN_JOURNAL_NODE", "NODE_OPTIONS", "PYTHONPATH", "VIRTUAL_ENV"):
        environment.pop(name, None)
    run = subprocess.run(
        [str(python), "-c", PROGRAM, str(tmp_path / "root")],
        cwd=nowhere,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    assert '"appended": true' in run.stdout
    assert "owner_identity_missing" in run.stdout
    # The part of the core that speaks to databases is carried, too.
    assert "no database: ECONNREFUSED" in run.stdout

    demo = subprocess.run(
        [str(python), "-m", "turn_journal_runtime.cli", "demo", "--format", "json"],
        cwd=nowhere,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert demo.returncode == 0, demo.stderr
    assert json.loads(demo.stdout)["ok"]
