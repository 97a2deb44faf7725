"""Runs inside an environment that has PraisonAI: makes, reads or continues a journal with its own `RunJournal`.

python peer_program.py make|read|append FILE
"""

from __future__ import annotations

import json
import sys
from typing import Any

from praisonaiagents.runtime.journal import JournalEvent, RunJournal  # type: ignore[import-not-found, unused-ignore]

AT = 1_700_000_000.25


def make(journal: Any) -> None:
    journal.open_run("finished", agent="coder", task="write it", checkpoint_id="c-1", metadata={"team": "ü", "n": 7})
    event(journal, "finished", 0, "model_decision", {"message": {"role": "assistant", "content": "use the tool ✓ 😀"}})
    call = {"name": "search", "args": {"q": "a"}, "tool_call_id": "call_1", "idempotency_key": "finished:0:search"}
    event(journal, "finished", 0, "tool_call", call)
    event(journal, "finished", 0, "tool_result", {"tool_call_id": "call_1", "result": [1, 2.5, None, True, {"k": []}]})
    event(journal, "finished", 0, "iteration", {"index": 0})
    event(journal, "finished", 1, "verification", {"name": "tests", "success": True, "duration_seconds": 0.5})
    event(journal, "finished", 2, "approval", {"decision": "yes"})
    journal.close_run("finished", "succeeded")

    journal.open_run("killed", agent="payer", task="pay once")
    event(journal, "killed", 0, "iteration", {"index": 41})
    event(journal, "killed", 1, "iteration", {"index": 9})
    call = {"name": "pay", "args": {"amount": 12345678901234567890123}, "idempotency_key": "killed:2:pay"}
    event(journal, "killed", 2, "tool_call", {"replaced": "later"})
    event(journal, "killed", 2, "tool_result", {"result": "first"})
    # Its own upsert: the payload is replaced, the place is kept.
    event(journal, "killed", 2, "tool_call", call)
    event(journal, "killed", 3, "tool_call", {**call, "idempotency_key": "killed:3:pay"})
    event(journal, "killed", 4, "model_decision", {"odd": float("nan"), "more": [float("inf"), float("-inf")]})

    journal.open_run("odd outcome")
    journal.close_run("odd outcome", "ran out of ideas")


def event(journal: Any, run_id: str, seq: int, kind: str, payload: dict[str, Any]) -> None:
    journal.append(JournalEvent(run_id, seq, kind, payload, AT + seq))


def read(journal: Any) -> dict[str, Any]:
    runs = [row["run_id"] for row in journal._conn.execute("SELECT run_id FROM runs ORDER BY created_at, rowid")]
    return {
        "interrupted": journal.interrupted_runs(),
        "runs": {
            run_id: {
                "meta": vars(journal.run_meta(run_id)),
                "last_iteration": journal.last_iteration(run_id),
                "events": [[e.seq, e.kind, e.payload, e.created_at] for e in journal.events(run_id)],
            }
            for run_id in runs
        },
    }


def main() -> None:
    command, path = sys.argv[1:]
    journal = RunJournal(path)
    if command == "make":
        make(journal)
    elif command == "append":
        journal.open_run("killed")
        event(journal, "killed", 5, "iteration", {"index": 99})
        journal.open_run("peer's own", agent="peer")
        event(journal, "peer's own", 0, "tool_call", {"name": "x", "args": {}, "idempotency_key": "k"})
    else:
        print(json.dumps(read(journal), indent=1))
    journal.close()


if __name__ == "__main__":
    main()
