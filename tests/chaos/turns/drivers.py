"""Drivers to be killed: processes that are forked from one that has the package loaded."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]


class DriverServer:
    """One `turn_program` process; it carries out one order at a time."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.turns.turn_program"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def drive(self, order: dict[str, Any], *, kill_after: float | None = None) -> tuple[bool, dict[str, Any]]:
        """Runs a driver to its end, or kills it after so many seconds; whether it was killed, and its outcome."""
        (pid,) = self.begin(order)
        timer = None
        if kill_after is not None:
            timer = threading.Timer(kill_after, _kill, (pid,))
            timer.start()
        (killed,) = self.wait()
        if timer is not None:
            timer.cancel()
            timer.join()
        return killed, {} if killed else outcome_of(Path(order["root"]), pid)

    def begin(self, order: dict[str, Any]) -> list[int]:
        """Starts the drivers of an order; their process ids."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps(order) + "\n")
        stdin.flush()
        pids: list[int] = json.loads(stdout.readline())
        return pids

    def wait(self) -> list[bool]:
        """Waits for the drivers; whether each was killed."""
        assert self._process.stdout is not None
        statuses = json.loads(self._process.stdout.readline())
        assert set(statuses) <= {0, signal.SIGKILL}, f"the drivers ended with {statuses}"
        return [status != 0 for status in statuses]

    def close(self) -> None:
        self._process.stdin.close()  # type: ignore[union-attr]
        self._process.wait()
        self._process.stdout.close()  # type: ignore[union-attr]


def outcome_of(root: Path, pid: int) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((root / f"outcome-{pid}.json").read_text())
    return found


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
