"""A child that is forked inside of a turn and comes back out of what was called: its parent alone drives on."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from tests.python.turns.world import Turn

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork"),
]

PROGRAM = """
import os, sys
from turn_journal_runtime.turns import run_turn
from turn_journal_runtime.hosts import CallableHost

root, at, how, log = sys.argv[1:]
parent = os.getpid()

def step(name, answer=None):
    def call(*_):
        with open(log, "a") as file:
            print(name, file=file)
        if name == at:
            child = os.fork()
            if child:
                assert os.waitpid(child, 0)[1] == 0
            elif how == "raises":
                raise ValueError("there is no such program")
        return answer
    return call

parts = {
    "host": CallableHost(step("host", {"result_kind": "validated_progress"})),
    "validate": step("validate"),
    "writeback": step("writeback"),
    "spend": step("spend"),
    "scheduler": step("scheduler"),
}
names = {"goal_id": "goal", "agent_id": "agent", "todo_id": "todo"}
try:
    said = run_turn(root, **names, **parts).status
except Exception as error:
    said = f"{error.kind}: {error.details['pid'] == parent}"
with open(log, "a") as file:
    print("parent" if os.getpid() == parent else "child", said, file=file)
os._exit(0)
"""


@pytest.mark.parametrize("how", ["returns", "raises"])
@pytest.mark.parametrize("at", ["host", "validate", "writeback", "spend", "scheduler"])
def test_it_writes_nothing_and_sends_nothing(at: str, how: str, root: Path | str, tmp_path: Path) -> None:
    log = tmp_path / "log"
    program = [sys.executable, "-W", "ignore", "-c", PROGRAM, str(root), at, how, str(log)]
    subprocess.run(program, timeout=240, check=True)
    said = log.read_text().splitlines()
    assert sorted(said) == sorted(
        ["host", "validate", "writeback", "spend", "scheduler", "child turn_busy: True", "parent committed"]
    )
    turn = Turn(root, is_async=False)
    assert turn.history()[-1] == ("committed", 7)
    assert not turn.is_driven
