"""The agent of the demo: one durable turn that migrates a folder of .ini files, one tool call per file.

Nothing in here knows of crashes. It plans with a (scripted) model, calls its tool once per file, and returns a result.
"""

from __future__ import annotations

import configparser
import json
import os
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turn_journal_runtime import (
    Absent,
    CallableHost,
    Committed,
    TurnContext,
    current_idempotency_key,
    run_turn,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

GOAL = "retire-ini-files"
AGENT = "migrator"
TODO = "migrate-service-configs"


def note(log: Path, *words: str) -> None:
    """Appends one line to a log of what really happened, durably."""
    with log.open("a", encoding="utf-8") as file:
        file.write("\t".join(words) + "\n")
        file.flush()
        os.fsync(file.fileno())


def plan_files(work: Path) -> list[str]:
    """Stands for a paid model call: which files, in which order."""
    note(work / "model-calls.log", "plan")
    return sorted(path.stem for path in (work / "legacy").glob("*.ini"))


def migrate_file(work: Path, name: str) -> dict[str, Any]:
    """The tool: has a real side effect, and a slow answer that a crash can fall into."""
    parser = configparser.ConfigParser()
    parser.read(work / "legacy" / f"{name}.ini", encoding="utf-8")
    document = {section: dict(parser[section]) for section in parser.sections()}
    (work / "migrated" / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    note(work / "tool-calls.log", name, current_idempotency_key() or "")
    time.sleep(0.25)
    return {"file": f"{name}.json", "settings": sum(map(len, document.values()))}


def was_migrated(work: Path, name: str, key: str) -> Committed | Absent:
    """What the tool declares: how to find out whether the call with this key had happened."""
    log = work / "tool-calls.log"
    if not log.exists() or key not in log.read_text(encoding="utf-8"):
        return Absent()
    document = json.loads((work / "migrated" / f"{name}.json").read_text(encoding="utf-8"))
    return Committed({"file": f"{name}.json", "settings": sum(map(len, document.values()))})


class Report:
    """The turn's own outside effect: sent once, with a key that makes a repetition harmless."""

    idempotent = True

    def __init__(self, work: Path) -> None:
        self._work = work

    def apply(self, effect_ref: str, payload: Mapping[str, Any]) -> None:
        """Writes the report."""
        report = {"effect_ref": effect_ref, **payload}
        (self._work / "report.json").write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")


def migrate_folder(work: Path, turn: TurnContext) -> dict[str, Any]:
    """The agent's loop."""
    files = turn.model(plan_files, work, request={"prompt": "Which files are to be migrated?", "model": "scripted"})
    done = [
        turn.tool(
            "migrate_file",
            {"name": name},
            partial(migrate_file, work),
            readback=partial(was_migrated, work, name),
        )
        for name in files
    ]
    return {"result_kind": "validated_progress", "files": len(done), "settings": sum(item["settings"] for item in done)}


def main() -> None:
    """Drives the turn; running it again is the resume."""
    work = Path(sys.argv[1])
    outcome = run_turn(
        work / "root",
        goal_id=GOAL,
        agent_id=AGENT,
        todo_id=TODO,
        host=CallableHost(partial(migrate_folder, work)),
        writeback=Report(work),
    )
    print(json.dumps({"status": outcome.status, "result": outcome.result}))


if __name__ == "__main__":
    main()
