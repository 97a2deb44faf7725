"""An agent is killed at every journal boundary and at random instants, and never repeats an effect.

For each kill: every model call is made at most once more than recorded, every tool that is not restart-safe ran at most
once, every uncertain step was reported and settled, and the answer is the one without a kill.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.chaos.run_journal import agent

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[3]
SOAK = os.environ.get("TURN_JOURNAL_SOAK") == "1"

pytestmark = [pytest.mark.chaos, pytest.mark.process]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where the machine can: a kill takes no page of the kernel along, so a disk would prove no more."""
    memory = Path("/dev/shm")  # noqa: S108 - a folder of its own is made in it
    if not os.access(memory, os.W_OK):
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as made:
        yield Path(made)


def kill(folder: Path, *arguments: object) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.chaos.run_journal.kills", str(folder), *map(str, arguments)]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=3000)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.timeout(600)
def test_killed_at_every_boundary_of_the_journal(folder: Path) -> None:
    found = kill(folder, "boundaries", 1)
    assert found["violations"] == []
    # A step of the loop has an iteration, a decision, a call and a result.
    assert found["boundaries"] >= 4 * agent.STEPS
    assert found["kills"] == 2 * found["boundaries"]
    assert found["settled"] >= 2 * agent.STEPS // len(agent.TOOLS), "steps in the air were reported and settled"


@pytest.mark.timeout(3600)
def test_killed_at_random_instants(folder: Path) -> None:
    seed = int(os.environ.get("TURN_JOURNAL_SEED") or random.randrange(2**32))
    print(f"seed: {seed} (TURN_JOURNAL_SEED={seed} runs it again)")
    count = 20_000 if SOAK else 200
    found = kill(folder, "random", seed, count)
    assert found["violations"] == []
    assert found["kills"] >= count


@pytest.fixture
def server(postgres_url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database for agents of one host, who see when one of them dies."""
    monkeypatch.setenv("TURN_JOURNAL_HOME", str(folder / "host"))
    return postgres_url


@pytest.mark.timeout(3600)
def test_killed_at_boundaries_of_a_journal_in_postgresql(folder: Path, server: str) -> None:
    stride = 1 if SOAK else 7
    found = kill(folder, "boundaries", stride, server)
    assert found["violations"] == []
    assert found["boundaries"] >= 4 * agent.STEPS // stride
    assert found["kills"] == 2 * found["boundaries"]
    assert found["settled"] >= 2 * agent.STEPS // len(agent.TOOLS) // stride


@pytest.mark.timeout(3600)
def test_killed_at_random_instants_with_a_journal_in_postgresql(folder: Path, server: str) -> None:
    seed = int(os.environ.get("TURN_JOURNAL_SEED") or random.randrange(2**32))
    print(f"seed: {seed} (TURN_JOURNAL_SEED={seed} runs it again)")
    count = 5_000 if SOAK else 40
    found = kill(folder, "random", seed, count, server)
    assert found["violations"] == []
    assert found["kills"] >= count
