"""A durable LangGraph graph: what its nodes do is recorded step by step, inside the nodes.

    python examples/langgraph_graph.py WORKSPACE

LangGraph's own checkpointers save the state between nodes; a node that dies half-way is run again from its top. Here
each effect inside a node is a step of a run, so that nothing is done twice. KILL_IN=notify kills the process with
SIGKILL in the middle of that effect; the next call of the same command goes on from there.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import TypedDict

from langgraph.graph import END, START, StateGraph

from turn_journal_runtime.run_journal import Absent, Committed, DurableRun, RunJournal, current_idempotency_key


class State(TypedDict, total=False):
    order: int
    amount: int
    report: str


def main(workspace: Path) -> None:
    def effect(name: str) -> str:
        with (workspace / name).open("a", encoding="utf-8") as file:
            file.write(f"{current_idempotency_key()}\n")
        if os.environ.get("KILL_IN") == name:
            os.kill(os.getpid(), signal.SIGKILL)
        return f"{name} done"

    def was_sent(key: str) -> Committed | Absent:
        """What a real tool asks its provider: did the message with this key go out?"""
        sent = workspace / "notify"
        return Committed("notify done") if sent.exists() and key in sent.read_text() else Absent()

    with RunJournal(workspace / "runs.db") as journal, DurableRun(journal, "bill-42", agent="langgraph") as run:

        def price(state: State) -> State:
            """Stands for a node that asks a model."""
            return {"amount": run.model(lambda: 5, request={"order": state["order"]})}

        def bill(state: State) -> State:
            """One node with two effects: the second one may die without repeating the first."""
            run.tool("charge", {"amount": state["amount"]}, lambda amount: effect("charge"))
            run.tool("notify", {"order": state["order"]}, lambda order: effect("notify"), readback=was_sent)
            return {"report": f"Order {state['order']} is billed."}

        graph = StateGraph(State)
        graph.add_node("price", price)
        graph.add_node("bill", bill)
        graph.add_edge(START, "price")
        graph.add_edge("price", "bill")
        graph.add_edge("bill", END)
        state = graph.compile().invoke({"order": 42})
    print(state["report"])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
