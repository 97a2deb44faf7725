"""A process that forks while it drives conversations: the child ends nothing that is the parent's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")

PROGRAM = """
import json, os, sys
from turn_journal_runtime.chat import ChatRuntime, SessionStore
from turn_journal_runtime.errors import TurnBusyError
from turn_journal_runtime.hosts import CallableHost

class Host(CallableHost):
    def close(self):
        print("closed", flush=True)

def answer(run, request):
    return {"result_kind": "validated_progress", "said": request.input["message"]}

store = SessionStore(sys.argv[1])
runtime = ChatRuntime(store, lambda session: Host(answer))
runtime.open_session(session_id="s", work_dir="/", objective="talk")
runtime.submit_turn("s", "one", "1").wait(60)
child = os.fork()
if child == 0:
    found = {"turns": len(store.turns("s"))}
    try:
        runtime.submit_turn("s", "two", "2")
    except TurnBusyError as error:
        found["driver"] = error.details["pid"] == os.getppid()
    store.close()
    print(json.dumps(found), flush=True)
    sys.exit(runtime.close())
assert os.waitpid(child, 0)[1] == 0
print(runtime.submit_turn("s", "three", "3").wait(60).result["said"], flush=True)
runtime.close()
"""


def test_a_child_leaves_the_conversations_to_its_parent(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "chat.db")], capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 0, done.stderr
    child, answer, *closed = done.stdout.splitlines()
    assert json.loads(child) == {"turns": 1, "driver": True}
    assert (answer, set(closed)) == ("three", {"closed"})
