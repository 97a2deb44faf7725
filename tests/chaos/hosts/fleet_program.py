"""What the workers of a fleet drive: a host with tools, and three providers, which all write down what really happened.

The outside world is one file that all hosts share, a line for each effect: it takes an effect as often as it is sent,
and can be asked for it. `FLEET_WORLD` is its folder. A file `hold` there names the step in whose middle a driver waits
until there is a file `go`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from turn_journal_runtime import (
    Absent,
    CallableHost,
    Committed,
    DueTurn,
    SubprocessHost,
    current_idempotency_key,
    run_turn,
)
from turn_journal_runtime.turns import aio

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turn_journal_runtime import TurnResult

WORLD: Final = Path(os.environ.get("FLEET_WORLD", "."))
TOOLS: Final = 3
#: Of a tool, before and after its effect.
PAUSE: Final = float(os.environ.get("FLEET_PAUSE", "0.03"))
#: How long a driver that waits for `go` looks away.
HOLD: Final = float(os.environ.get("FLEET_HOLD", "0.02"))


def drive(due: DueTurn) -> TurnResult:
    """The entry of the workers."""
    return run_turn(due.runtime_root, **_parts(due))


async def drive_async(due: DueTurn) -> TurnResult:
    """The same for asyncio."""
    return await aio.run_turn(due.runtime_root, **_parts(due))


async def wait_async(due: DueTurn) -> TurnResult:
    """One whose host does not come to an end by itself."""

    async def loop_for_ever(turn: Any) -> dict[str, Any]:
        await turn.model(lambda: 1, request={"number": 0})
        note("held", due.todo_id or "")
        await asyncio.sleep(3600)
        return {}

    return await aio.run_turn(due.runtime_root, **{**_parts(due), "host": CallableHost(loop_for_ever)})


def nap(due: DueTurn) -> TurnResult:
    """One whose host sleeps in between, in no process."""

    def sleeper(turn: Any) -> dict[str, Any]:
        for number in range(TOOLS):
            turn.tool("add", {"number": number}, add)
            turn.sleep(2, suspend=True)
        return {"result_kind": "validated_progress"}

    return run_turn(due.runtime_root, **{**_parts(due), "host": CallableHost(sleeper)})


def run_program(due: DueTurn) -> TurnResult:
    """One whose host is a program with children, which does not come to an end by itself."""
    return run_turn(due.runtime_root, **{**_parts(due), "host": _program()})


async def run_program_async(due: DueTurn) -> TurnResult:
    """The same for asyncio."""
    return await aio.run_turn(due.runtime_root, **{**_parts(due), "host": _program()})


def _program() -> SubprocessHost:
    program = Path(__file__).parents[2] / "process" / "hosts" / "host_program.py"
    return SubprocessHost([sys.executable, "-S", str(program), "family", str(WORLD / "pids")], timeout=600)


def die_once(due: DueTurn) -> TurnResult:
    """One that takes its worker along, the first time."""
    try:
        (WORLD / "died").touch(exist_ok=False)
    except FileExistsError:
        return drive(due)
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError


def fail_broken(due: DueTurn) -> TurnResult:
    """One that cannot drive the turn `broken`."""
    if due.todo_id == "broken":
        time.sleep(3)
        raise RuntimeError("no luck")
    return drive(due)


def _parts(due: DueTurn) -> dict[str, Any]:
    return {
        "goal_id": due.goal_id,
        "agent_id": due.agent_id,
        "todo_id": due.todo_id,
        "turn_instance_id": due.turn_instance_id,
        "host": CallableHost(loop),
        "writeback": Sent("writeback"),
        "spend": Sent("spend"),
        "scheduler": Sent("scheduler"),
        "retry_failed": due.retry_failed,
    }


def loop(turn: Any) -> dict[str, Any]:
    """The agent's loop."""
    total = 0
    for number in range(TOOLS):
        turn.model(lambda: hold("model"), request={"number": number})
        total += turn.tool("add", {"number": number}, add, readback=was_added)
    return {"result_kind": "validated_progress", "total": total}


def add(number: int) -> int:
    """A tool with an effect in the middle."""
    del number
    time.sleep(PAUSE)
    note("effects", f"tool:{current_idempotency_key()}")
    hold("tool")
    time.sleep(PAUSE)
    return 1


def was_added(key: str) -> Any:
    """Whether the tool's effect happened."""
    return Committed(1) if happened(f"tool:{key}") else Absent()


class Sent:
    """A provider that can be asked for what it did."""

    def __init__(self, name: str) -> None:
        self._name = name

    def apply(self, effect_ref: str, payload: Mapping[str, Any]) -> None:
        del payload
        note("effects", f"{self._name}:{effect_ref}")

    def readback(self, effect_ref: str) -> str:
        return "committed" if happened(f"{self._name}:{effect_ref}") else "absent"


def note(name: str, line: str) -> None:
    """Writes a line in one piece."""
    file = os.open(WORLD / name, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def happened(effect: str) -> bool:
    """Whether an effect is in the file of the world."""
    file = WORLD / "effects"
    return file.exists() and effect in file.read_text(encoding="utf-8").splitlines()


def hold(step: str) -> str:
    """Waits in the middle of a step, when that is asked for and nobody waits yet."""
    asked = WORLD / "hold"
    try:
        if asked.read_text() != step:
            return step
        asked.rename(WORLD / "held")
    except FileNotFoundError:
        return step
    while not (WORLD / "go").exists():
        time.sleep(HOLD)
    return step
