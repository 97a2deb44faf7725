"""Uses that must not type-check, each on the line marked `# wrong`, beside their right forms. Never run."""

from __future__ import annotations

from typing import assert_type

from turn_journal_runtime import (
    CallableHost,
    DurableRun,
    RunJournal,
    TurnJournalError,
    aio,
    inspect_turn_journal,
    interpret_turn_journal_projection,
    load_turn_journal,
    run_turn,
    turn_journal_path,
    write_turn_journal,
)
from turn_journal_runtime.documents import Inspection

path = turn_journal_path("root", goal_id="g", turn_key="k")
turn_journal_path("root", "g", "k")  # wrong
turn_journal_path("root", goal_id=1, turn_key="k")  # wrong

inspection = inspect_turn_journal("root", goal_id="g", agent_id="a", turn_key="k")
assert_type(inspection, Inspection)
assert_type(inspection["replay_legal"], bool)
assert_type(inspection["recovery_decision"]["resume_from"], str | None)
inspection["replay_is_legal"]  # wrong
inspection["recovery_decision"]["resume_from"].upper()  # wrong
inspect_turn_journal("root", goal_id="g", turn_key="k")  # wrong
interpret_turn_journal_projection({}, goal_id="g", agent_id="a", turn_key="k", retry_failed="yes")  # wrong

write_turn_journal(path, {"status": "started"}, expected_previous=None)
write_turn_journal(path, {"status": "started"}, expected_previous=7)  # wrong
write_turn_journal(path, "started")  # wrong
write_turn_journal(None, {"status": "started"})  # wrong
load_turn_journal(path, at="2")  # wrong

run_turn("root", goal_id="g", agent_id="a", todo_id="t", host=CallableHost(lambda turn: {"result_kind": "x"}))
run_turn("root", goal_id="g", agent_id="a", todo_id="t")  # wrong
run_turn("root", goal_id="g", agent_id="a", todo_id="t", host="my-host")  # wrong

journal = RunJournal("runs.db", durability="power")
RunJournal("runs.db", durability="forever")  # wrong
journal.approve("run", 1, True, by="ada")
journal.approve("run", 1, True)  # wrong
journal.settle("run", "1", absent=True)  # wrong

run = DurableRun(journal, "run")
assert_type(run.model(len, "question"), int)
assert_type(run.now(), float)
run.tool("name", {"a": 1})  # wrong
run.model(len, "question", on_change="forget")  # wrong

error = TurnJournalError("What is wrong.", kind="a_kind")
assert_type(error.kind, str)
TurnJournalError("What is wrong.", "a_kind")  # wrong


async def twins() -> None:
    """The async twins are awaited."""
    awaited = await aio.inspect_turn_journal("root", goal_id="g", agent_id="a", turn_key="k")
    assert_type(awaited, Inspection)
    aio.inspect_turn_journal("root", goal_id="g", agent_id="a", turn_key="k")["replay_legal"]  # wrong
