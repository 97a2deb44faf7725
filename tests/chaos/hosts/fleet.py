"""Workers as they are in production: processes of `turn-journal worker`, and the world that they work on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tests.chaos.hosts.fleet_program import TOOLS

from turn_journal_runtime import list_turn_journals, turn_journal_path, verify_turn_journal
from turn_journal_runtime.turns.plan import plan_turn
from turn_journal_runtime.worker import defer_turn

if TYPE_CHECKING:
    from collections.abc import Sequence

GOAL, AGENT = "goal", "agent"
#: Tools, and three providers.
EFFECTS: Final = TOOLS + 3
_ROOT: Final = Path(__file__).parents[3]


class FleetWorker:
    """One worker, in a process of its own.

    Args:
        url: The root that it is given.
        world: The folder of the world; its log goes there.
        name: What its log is called.
        prefix: What the command is run by, such as `ip netns exec NAME`.
    """

    def __init__(
        self,
        url: str,
        world: Path,
        name: str,
        *,
        lease: float,
        arguments: Sequence[str] = (),
        entry: str = "drive",
        prefix: Sequence[str] = (),
        environment: dict[str, str] | None = None,
    ) -> None:
        self.log: Final = world / f"{name}.log"
        command = [*prefix, sys.executable, "-m", "turn_journal_runtime.cli", "worker", *arguments]
        with self.log.open("ab") as log:
            self.process: Final = subprocess.Popen(
                [*command, "--entry", f"tests.chaos.hosts.fleet_program:{entry}", "-f", "json"],
                cwd=_ROOT,
                env={
                    **os.environ,
                    "TURN_JOURNAL_ROOT": url,
                    "TURN_JOURNAL_TURN_LEASE": str(lease),
                    "TURN_JOURNAL_RUN_LEASE": str(lease * 2 / 3),
                    "FLEET_WORLD": str(world),
                    **(environment or {}),
                },
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
            )

    def said(self) -> str:
        """Its log so far."""
        return self.log.read_text(encoding="utf-8")

    def has_started(self) -> bool:
        """Whether it listens to signals."""
        return " started: " in self.said()

    def send(self, which: signal.Signals) -> None:
        self.process.send_signal(which)

    def kill(self) -> None:
        """Ends it as a power cut does; nothing when it has ended."""
        if self.process.returncode is None:
            self.process.kill()
            self.process.communicate()

    def stop(self, seconds: float = 60.0) -> tuple[int, str]:
        """Asks it to end; its exit code and its answer."""
        self.send(signal.SIGTERM)
        return self.wait(seconds)

    def wait(self, seconds: float = 60.0) -> tuple[int, str]:
        """Its exit code and its answer, when it has ended."""
        answer, _ = self.process.communicate(timeout=seconds)
        return self.process.returncode, answer.decode()


class Fleet:
    """The turns of one goal in a database, and what happened in the world."""

    def __init__(self, url: str, world: Path) -> None:
        self.url = url
        self.world = world

    def defer(self, todo: str, **options: Any) -> bool:
        return defer_turn(self.url, goal_id=GOAL, agent_id=AGENT, todo_id=todo, **options)

    def place(self, todo: str) -> str:
        """Where a turn is."""
        key = plan_turn(goal_id=GOAL, agent_id=AGENT, todo_id=todo).turn_key
        return str(turn_journal_path(self.url, goal_id=GOAL, turn_key=key))

    def statuses(self) -> Counter[str | None]:
        return Counter(turn["status"] for turn in list_turn_journals(self.url))

    def committed(self) -> int:
        return self.statuses()["committed"]

    def effects(self) -> Counter[str]:
        """How often each effect happened."""
        file = self.world / "effects"
        return Counter(file.read_text(encoding="utf-8").splitlines() if file.exists() else ())

    def assert_each_effect_happened_once(self, turns: int) -> None:
        effects = self.effects()
        assert {effect: count for effect, count in effects.items() if count > 1} == {}
        assert len(effects) == turns * EFFECTS
        verified = verify_turn_journal(self.url)
        assert verified["ok"], verified
        assert verified["turns"] == turns
