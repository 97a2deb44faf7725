"""What a user would pick instead, in the same process and the same run. BENCH_PEERS=1 installs them.

PraisonAI's RunJournal and its durable steps, DBOS on SQLite, LangGraph with its SQLite checkpoints: each as its manual
says, with the settings that it comes with.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

from platformdirs import user_cache_path

from .sides import ARGS, PAYLOAD

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

REQUIREMENTS = ("praisonaiagents==1.7.17", "dbos==3.4.0", "langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2")


def are_wanted() -> bool:
    """Whether the peers are measured: they have to be installed first."""
    return os.environ.get("BENCH_PEERS") == "1"


def install() -> None:
    """Puts the peers behind everything that this environment has itself."""
    folder = user_cache_path("turn-journal-runtime", appauthor=False) / "bench" / "run-journal-peers"
    if not (folder / ".installed").exists():
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--target", str(folder), *REQUIREMENTS]
        subprocess.run(command, check=True)
        (folder / ".installed").touch()
    sys.path.append(str(folder))
    logging.disable(logging.WARNING)
    os.environ.setdefault("PRAISONAI_TELEMETRY_DISABLED", "true")


class Praison:
    """PraisonAI's journal."""

    def __init__(self, path: Path) -> None:
        from praisonaiagents.runtime.journal import JournalEvent, RunJournal  # type: ignore[import-not-found, unused-ignore]

        self.journal = RunJournal(str(path))
        self._event = JournalEvent

    def append(self, number: int) -> None:
        """One event."""
        self.journal.append(self._event("run-1", number, "tool_call", PAYLOAD))

    def fill(self, events: int) -> Praison:
        """Many events in the run `large`, in one transaction of our making: it has no way to do that."""
        self.journal._conn.execute("BEGIN")
        for n in range(events):
            kind = "iteration" if n % 100 == 0 else "tool_call"
            self.journal.append(self._event("large", n, kind, {"index": n, **PAYLOAD}))
        self.journal._conn.execute("COMMIT")
        return self

    def steps(self) -> Callable[[int], Any]:
        """Its durable tool steps."""
        from praisonaiagents.agent.durable import DurableRunContext  # type: ignore[import-not-found, unused-ignore]

        self.journal.open_run("steps")
        call = DurableRunContext(self.journal, "steps", replaying=False).wrap_sync(lambda *_, **__: "ok")
        return lambda number: call("search", ARGS, tool_call_id=f"call-{number}")

    def recovery(self, runs: int) -> float:
        """Seconds to take up that many runs: three steps replayed, one new, closed."""
        from praisonaiagents.agent.durable import DurableRunContext

        def drive(run_id: str, steps: int, replaying: bool) -> Any:
            context = DurableRunContext(self.journal, run_id, replaying=replaying)
            call = context.wrap_sync(lambda *_, **__: "ok")
            for step in range(steps):
                call("search", {"query": "q", "limit": step}, tool_call_id=f"{run_id}-{step}")
            return context

        for number in range(runs):
            self.journal.open_run(f"dead-{number}")
            drive(f"dead-{number}", 3, False)
        begin = time.perf_counter()
        for run_id in self.journal.interrupted_runs():
            if run_id.startswith("dead-"):
                self.journal.open_run(run_id)
                drive(run_id, 4, True).finalize("succeeded")
        return time.perf_counter() - begin


def dbos_step(where: Path | str, steps: int, workflows: int = 1) -> float:
    """Seconds for one of many steps of DBOS workflows side by side, in a SQLite file or in the database of a URL."""
    from dbos import DBOS  # type: ignore[import-not-found, unused-ignore]

    url = where if isinstance(where, str) else f"sqlite:///{where}"
    config: Any = {"name": "bench", "system_database_url": url, "log_level": "ERROR"}
    DBOS(config=config)

    @DBOS.step()  # type: ignore[untyped-decorator, unused-ignore]
    def step(query: str, limit: int) -> str:
        return "ok"

    @DBOS.workflow()  # type: ignore[untyped-decorator, unused-ignore]
    def workflow(count: int) -> None:
        for _ in range(count):
            step(**ARGS)

    DBOS.launch()
    try:
        workflow(10)
        begin = time.perf_counter()
        for handle in [DBOS.start_workflow(workflow, steps) for _ in range(workflows)]:
            handle.get_result()
        return (time.perf_counter() - begin) / (steps * workflows)
    finally:
        DBOS.destroy()


def langgraph_step(path: Path, steps: int) -> float:
    """Seconds for one of many super-steps of a LangGraph graph with SQLite checkpoints."""
    from typing import TypedDict

    from langgraph.checkpoint.sqlite import SqliteSaver  # type: ignore[import-not-found, unused-ignore]
    from langgraph.graph import END, START, StateGraph  # type: ignore[import-not-found, unused-ignore]

    class State(TypedDict):
        number: int
        result: str

    def node(state: State) -> State:
        return {"number": state["number"] + 1, "result": "ok"}

    graph = StateGraph(State)
    graph.add_node("step", node)
    graph.add_edge(START, "step")
    graph.add_conditional_edges("step", lambda state: END if state["number"] >= steps else "step")
    with SqliteSaver.from_conn_string(str(path)) as saver:
        compiled = graph.compile(checkpointer=saver)
        config: Any = {"configurable": {"thread_id": "1"}, "recursion_limit": steps + 10}
        begin = time.perf_counter()
        compiled.invoke({"number": 0, "result": ""}, config, durability="sync")
        return (time.perf_counter() - begin) / steps
