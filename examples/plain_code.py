"""A durable agent in plain code: kill it anywhere, run it again, and nothing is done twice.

    python examples/plain_code.py WORKSPACE

The "model" is a function and the tool writes real files, one line each. KILL_AT=2 kills the process with SIGKILL right
after the second file; the next call of the same command goes on from there.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

from turn_journal_runtime.run_journal import DurableRun, RunJournal, current_idempotency_key


def decide(done: list[str]) -> str | None:
    """Stands for a model: which file is next."""
    return next((name for name in ("a.txt", "b.txt", "c.txt") if name not in done), None)


def main(workspace: Path) -> None:
    def write(name: str) -> str:
        with (workspace / name).open("a", encoding="utf-8") as file:
            file.write(f"written for {current_idempotency_key()}\n")
        return name

    with RunJournal(workspace / "runs.db") as journal, DurableRun(journal, "write-files", agent="plain") as run:
        done: list[str] = []
        while name := run.model(decide, done, request={"done": done}):
            done.append(run.tool("write", {"name": name}, write))
            print("done:", name, flush=True)
            if os.environ.get("KILL_AT") == str(len(done)):
                os.kill(os.getpid(), signal.SIGKILL)
    print("finished:", ", ".join(done))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
