"""A core that tests talk to over its own pipes, line by line; and journals for it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

GOAL: Final = "goal-1"
AGENT: Final = "agent-1"
TURN: Final = "turn-1"
PHASES: Final = ["a", "b", "c"]


class Refused(Exception):
    """The core answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.kind: str = error["data"]["kind"]
        self.details: dict[str, Any] = error["data"]["details"]


class Gone(Exception):
    """The core's output ended before the answer."""


class Core:
    """One core process."""

    def __init__(self, node: str, bundle: Path, environment: Mapping[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [node, str(bundle), "serve"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **(environment or {})},
        )
        self._ids = itertools.count(1)
        self.next()  # runtime.ready

    def next(self) -> dict[str, Any]:
        """The next message of the core.

        Raises:
            Gone: There is none: the core ended.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.endswith(b"\n"):
            raise Gone
        message: dict[str, Any] = json.loads(line)
        return message

    def send(self, method: str, params: dict[str, Any]) -> int:
        """Sends a request and returns its id."""
        number = next(self._ids)
        message = {"jsonrpc": "2.0", "id": number, "method": f"turn_journal.{method}", "params": params}
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()
        return number

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Calls a method of the turn journal.

        Raises:
            Refused: The core answered with an error.
            Gone: The core died instead.
        """
        number = self.send(method, params)
        answer = self.next()
        assert answer["id"] == number
        if "error" in answer:
            raise Refused(answer["error"])
        result: dict[str, Any] = answer["result"]
        return result

    def close(self) -> None:
        """Ends it as its parent's end would."""
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()
        self.process.wait(60)


def journal(completed: int, status: str = "in_progress", **more: Any) -> dict[str, Any]:
    """A plain turn after a number of its phases."""
    return {
        "schema_version": "loopx_turn_journal_v0",
        "goal_id": GOAL,
        "agent_id": AGENT,
        "turn_key": TURN,
        "effect_id": "effect-1",
        "status": status,
        "completed_phases": PHASES[:completed],
        "plan": {"phases": PHASES},
        **more,
    }


def path_of(root: Path, turn_key: str = TURN) -> Path:
    """Where a turn of the goal lives."""
    return root / "goals" / GOAL / "turns" / f"{turn_key}.json"
