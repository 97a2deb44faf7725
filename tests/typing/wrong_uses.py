"""Uses that must not type-check, each on the line marked `# wrong`, beside their right forms. Never run."""

from __future__ import annotations

from typing import assert_type

from turn_journal_runtime import (
    AsyncDurableRun,
    CallableHost,
    DueTurn,
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
assert_type(run.tool("look", {"at": "x"}, str.upper), str)
run.tool("name", {"a": 1})  # wrong
run.tool("look", {"at": "x"}, str.upper).bit_length()  # wrong
run.model(len, "question", on_change="forget")  # wrong

error = TurnJournalError("What is wrong.", kind="a_kind")
assert_type(error.kind, str)
TurnJournalError("What is wrong.", "a_kind")  # wrong


async def twins() -> None:
    """The async twins are awaited."""
    awaited = await aio.inspect_turn_journal("root", goal_id="g", agent_id="a", turn_key="k")
    assert_type(awaited, Inspection)
    aio.inspect_turn_journal("root", goal_id="g", agent_id="a", turn_key="k")["replay_legal"]  # wrong


async def ask(question: str) -> list[str]:
    return [question]


async def steps(run: AsyncDurableRun) -> None:
    """What a step returns is of its function's type, whether that is async or not."""
    assert_type(await run.model(ask, "Where to?", request={"prompt": "Where to?"}), list[str])
    assert_type(await run.model(len, "question"), int)
    assert_type(await run.tool("ask", {"question": "Where to?"}, ask, restart_safe=True), list[str])
    assert_type(await run.tool("look", {"at": "x"}, str.upper), str)
    run.tool("look", {"at": "x"}, str.upper).upper()  # wrong
    (await run.tool("ask", {"question": "Where to?"}, ask)).upper()  # wrong


def drive(due: DueTurn) -> object:
    """An entry point needs no word about which parts of a turn's name may be missing."""
    return run_turn(due.runtime_root, **due.names, host=CallableHost(lambda turn: {"result_kind": "x"}))
