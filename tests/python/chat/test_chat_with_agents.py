"""A conversation with a command-line agent: one session of the agent, gone on with by its id."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.process.hosts.fake_agent import SESSION
from tests.process.hosts.test_agent_hosts import ANSWER, WORK, Bench

from turn_journal_runtime.chat import ChatRuntime, SessionStore

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_each_message_goes_on_in_the_agents_session(agent: str, tmp_path: Path) -> None:
    bench = Bench(agent, tmp_path / "bench")
    store = SessionStore(tmp_path / "chat.db")
    script = (*WORK, ["message", ANSWER], ["complete"])
    for number in range(2):  # a process and the next one
        with ChatRuntime(store, lambda session: bench.host(*script, cwd=bench.work_dir)) as runtime:
            session = runtime.open_session(session_id="s", work_dir=str(bench.work_dir), objective="talk")
            for message in range(2):
                turn = runtime.submit_turn(session.session_id, f"hello {number}.{message}", f"{number}.{message}")
                assert turn.wait(60).result == {"result_kind": "validated_completion", "n": 7}
    store.close()
    asked = bench.asked()
    assert [one["prompt"].split("\n")[0] for one in asked] == ["hello 0.0", "hello 0.1", "hello 1.0", "hello 1.1"]
    assert [SESSION in one["argv"] for one in asked] == [False, True, True, True]
