"""Questions over many turns: each turn is told of once, page by page, in memory that does not grow with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from tests.chaos.store.test_copy_killed import peak_of
from tests.conftest import SOAK

from turn_journal_runtime.bridge import RuntimeClient
from turn_journal_runtime.bridge.node import locate_node
from turn_journal_runtime.settings import current

pytestmark = pytest.mark.chaos

REPOSITORY: Final = Path(__file__).parents[3]
TURNS_OF_A_GOAL: Final = 100
FEW, MANY = (10_000, 100_000) if SOAK else (500, 2_500)
PAGE: Final = 500
#: MiB that the core's peak may be higher for `MANY` than for `FEW`: what is remembered of the turns that were read
#: last, and what the garbage collector leaves lying; all 100,000 histories would be ten times as much.
SLACK: Final = 48


def fill(root: Path, turns: int) -> None:
    """Turns as the store leaves them, without its syncs."""
    program = REPOSITORY / "ts" / "test" / "store" / "Fill.ts"
    node = locate_node(current()).path
    subprocess.run([node, program, root, str(turns // TURNS_OF_A_GOAL), str(turns)], cwd=REPOSITORY, check=True)


def asked(client: RuntimeClient, question: str, root: Path) -> dict[tuple[str, str], Any]:
    """What a question tells of each turn, over all of its pages."""
    told: dict[tuple[str, str], Any] = {}
    after = None
    while True:
        params = {"runtime_root": str(root), "after": after, "limit": PAGE}
        page = client.call(f"turn_journal.{question}", params, timeout=300)
        entries = page["heads" if question == "heads" else "turns"]
        assert len(entries) <= PAGE
        for entry in entries:
            name = (entry["goal_id"], entry["turn_key"])
            assert name not in told
            told[name] = entry
        after = page["next"]
        if after is None:
            return told


def peak_with(root: Path, turns: int) -> int:
    """Asks everything of a root; the most memory that the core had, in MiB."""
    with RuntimeClient() as client:
        listed = asked(client, "list", root)
        assert len(listed) == turns
        assert list(asked(client, "heads", root)) == list(listed)
        # Every fourth is open.
        assert len(asked(client, "recoverable", root)) == turns // 4
        verified = asked(client, "verify", root)
        assert (list(verified), [name for name, turn in verified.items() if not turn["ok"]]) == (list(listed), [])
        for goal_id, turn_key in list(listed)[:: turns // 20]:
            work = {"goal_id": goal_id, "agent_id": "agent-1", "turn_instance_id": turn_key}
            work |= {"runtime_root": str(root), "todo_id": f"todo-{int(turn_key.removeprefix('turn-'))}"}
            assert client.call("turn_journal.find_settlement", work)["turn_key"] == turn_key
        assert client.pid is not None
        peak = peak_of(client.pid)
    assert peak is not None
    return peak


@pytest.mark.skipif(sys.platform != "linux", reason="the most memory that another process had is told by Linux")
@pytest.mark.timeout(1800)
def test_questions_over_many_turns_take_no_more_memory(tmp_path: Path) -> None:
    peaks = []
    for turns in (FEW, MANY):
        fill(tmp_path / str(turns), turns)
        peaks.append(peak_with(tmp_path / str(turns), turns))
    print(f"the core's peak in MiB: {peaks[0]} for {FEW:,} turns, {peaks[1]} for {MANY:,}")
    assert peaks[1] - peaks[0] < SLACK
