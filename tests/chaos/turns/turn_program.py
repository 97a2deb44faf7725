"""A whole turn against real outside systems, to be killed anywhere: a host with tools, two SQLite tables, a scheduler.

Every place where it may be killed calls `point`; armed with a number, the process dies by SIGKILL at that one.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turn_journal_runtime.bridge import RuntimeClient, default_client
from turn_journal_runtime.hosts import CallableHost
from turn_journal_runtime.run_journal import Absent, Committed
from turn_journal_runtime.turns import TurnResult, run_turn

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMES: dict[str, Any] = {"goal_id": "goal", "agent_id": "agent", "todo_id": "todo"}
PROVIDERS = ("readback", "idempotent", "neither")


class Points:
    """Counts the places; dies at the one it is armed for."""

    def __init__(self, kill_at: int | None = None) -> None:
        self.passed: list[str] = []
        self._kill_at = kill_at

    def point(self, name: str) -> None:
        self.passed.append(name)
        if self._kill_at == len(self.passed):
            os.kill(os.getpid(), signal.SIGKILL)


class PointedClient:
    """A client with a place before and after each write: the phase boundaries."""

    def __init__(self, client: RuntimeClient, points: Points) -> None:
        self._client = client
        self._points = points

    def call(self, method: str, params: dict[str, Any], *, timeout: float | None = None) -> dict[str, Any]:
        if method != "turn_journal.write":
            return self._client.call(method, params, timeout=timeout)
        what = f"{params['journal']['status']} {len(params['journal']['completed_phases'])}"
        self._points.point(f"before the write of {what}")
        result = self._client.call(method, params, timeout=timeout)
        self._points.point(f"after the write of {what}")
        return result


class Table:
    """An outside system: a table with one row for each time that an effect was done."""

    def __init__(self, root: Path, name: str, points: Points) -> None:
        self._file = root / f"{name}.db"
        self._name = name
        self._points = points

    def apply(self, effect_ref: str, payload: Mapping[str, Any]) -> None:
        self._points.point(f"before {self._name}")
        self._insert("INSERT INTO done VALUES (?, ?)", (effect_ref, json.dumps(payload["result"])))
        self._points.point(f"after {self._name}")

    def rows(self) -> list[tuple[str, str]]:
        with self._open() as database:
            return database.execute("SELECT effect_ref, result FROM done").fetchall()

    def _insert(self, statement: str, row: tuple[str, str]) -> None:
        with self._open() as database:
            database.execute(statement, row)

    def _open(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._file, timeout=30)
        database.execute("CREATE TABLE IF NOT EXISTS done (effect_ref TEXT, result TEXT)")
        return database


class ReadableTable(Table):
    """One that tells what was done."""

    def readback(self, effect_ref: str) -> str:
        return "committed" if any(ref == effect_ref for ref, _ in self.rows()) else "absent"


class IdempotentTable(Table):
    """One that does the same key once, however often it is sent."""

    idempotent = True

    def _insert(self, statement: str, row: tuple[str, str]) -> None:
        with self._open() as database:
            database.execute("CREATE UNIQUE INDEX IF NOT EXISTS once ON done (effect_ref)")
            database.execute("INSERT INTO done VALUES (?, ?) ON CONFLICT DO NOTHING", row)


TABLES = {"readback": ReadableTable, "idempotent": IdempotentTable, "neither": Table}


class World:
    """The outside systems of one root, and the turn that works with them."""

    def __init__(self, root: Path, points: Points, provider: str = "readback") -> None:
        self.root = root
        self.points = points
        self.tables: dict[str, Any] = {
            name: TABLES[provider](root, name, points) for name in ("writeback", "spend", "scheduler")
        }

    def drive(self, client: RuntimeClient | None = None, **more: Any) -> TurnResult:
        pointed: Any = PointedClient(client or default_client(), self.points)
        return run_turn(
            self.root,
            **NAMES,
            host=CallableHost(self.loop),
            validate=self.validate,
            client=pointed,
            **self.tables,
            **more,
        )

    def loop(self, context: Any, request: Any) -> dict[str, Any]:
        self.note("starts", str(request.attempt))
        if (self.root / "hold").exists():
            self.note("held", str(os.getpid()))
            while not (self.root / "go").exists():
                time.sleep(0.02)
        plan = context.model(lambda: self.model("plan"), request={"prompt": "plan"})
        total = 0
        for number in range(plan["tools"]):
            total += context.tool("add", {"number": number}, self.tool, readback=lambda key: self.tool_readback(key))
        words = context.model(lambda: self.model("words"), request={"prompt": "words", "total": total})
        return {"result_kind": "validated_completion", "total": total, "words": words["text"]}

    def model(self, what: str) -> dict[str, Any]:
        self.points.point(f"before the model's {what}")
        self.note("models", what)
        self.points.point(f"after the model's {what}")
        return {"tools": 3, "text": "done"}

    def tool(self, number: int) -> int:
        self.points.point("before a tool")
        self.note("tools", str(number))
        self.points.point("after a tool")
        return number + 1

    def tool_readback(self, key: str) -> Any:
        number = int(key.rsplit(":", 2)[-2]) - 1
        return Committed(number + 1) if str(number) in self.noted("tools") else Absent()

    def validate(self, result: dict[str, Any]) -> bool:
        self.points.point("in validation")
        return bool(result["total"] == 6)

    def note(self, name: str, text: str) -> None:
        descriptor = os.open(self.root / f"{name}.txt", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{text}\n".encode())
        os.close(descriptor)

    def noted(self, name: str) -> list[str]:
        path = self.root / f"{name}.txt"
        return path.read_text().split() if path.exists() else []


def serve() -> None:
    """Forks drivers for each order on standard input, so that the package is loaded once; says how each ended.

    An order is one JSON line: `{root, provider, kill_at, take_over, drivers}`. The answers, a line each, are the list
    of process ids when they were started, and the list of their wait statuses when they are gone.
    """
    for line in sys.stdin:
        order = json.loads(line)
        pids = []
        for _ in range(order.get("drivers", 1)):
            pid = os.fork()
            if pid == 0:
                _drive(order)
            pids.append(pid)
        print(json.dumps(pids), flush=True)
        print(json.dumps([os.waitpid(pid, 0)[1] for pid in pids]), flush=True)


def _drive(order: dict[str, Any]) -> None:
    world = World(Path(order["root"]), Points(order.get("kill_at")), order.get("provider", "readback"))
    outcome: dict[str, Any]
    try:
        result = world.drive(take_over=order.get("take_over", False))
        outcome = {"status": result.status, "replayed": result.replayed, "points": world.points.passed}
    except Exception as error:
        outcome = {"error": type(error).__name__, "kind": getattr(error, "kind", ""), "text": str(error)}
    (world.root / f"outcome-{os.getpid()}.json").write_text(json.dumps(outcome))
    default_client().close()
    os._exit(0)


if __name__ == "__main__":
    serve()
