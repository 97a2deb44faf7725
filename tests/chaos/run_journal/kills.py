"""Drives the agent in child processes and kills them: at each statement that changes the journal, and at random.

    python kills.py FOLDER boundaries STRIDE [URL]
    python kills.py FOLDER random SEED COUNT [URL]

The journal is a file in the folder, or a schema of its own in the PostgreSQL database of the URL. Of the boundaries
each STRIDE-th is taken. Prints a JSON summary. It forks from a process without threads, which is much faster than
starting Python each time.
"""

from __future__ import annotations

import collections
import json
import os
import random
import select
import shutil
import signal
import sqlite3
import sys
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.chaos.run_journal import agent
from tests.python.run_journal.databases import Schema

from turn_journal_runtime.run_journal import KIND_MODEL_DECISION, RunJournal
from turn_journal_runtime.run_journal.postgres import session

if TYPE_CHECKING:
    from collections.abc import Callable

CHANGES = ("BEGIN", "WITH", "INSERT", "UPDATE", "DELETE", "COMMIT")


def die_at(boundary: int, after: bool) -> None:
    """From here on this process is killed before or after its n-th statement that changes the journal."""
    left = boundary

    def counted(execute: Callable[..., Any], sql: str, *arguments: Any, **options: Any) -> Any:
        nonlocal left
        counts = sql.startswith(CHANGES)
        left -= counts
        if counts and left == 0 and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        found = execute(*arguments, **options)
        if counts and left == 0 and after:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    class Cursor(sqlite3.Cursor):
        def execute(self, sql: str, *parameters: Any) -> Any:
            return counted(super().execute, sql, sql, *parameters)

    class Connection(sqlite3.Connection):
        def cursor(self, *_: Any) -> Any:
            return super().cursor(Cursor)

    connect = sqlite3.connect
    sqlite3.connect = lambda *a, **k: connect(*a, **{**k, "factory": Connection})

    execute = session.Cursor.execute

    def execute_counted(cursor: session.Cursor, query: Any, *arguments: Any, **options: Any) -> Any:
        sql = query if isinstance(query, str) else query.decode()
        return counted(execute, sql, cursor, query, *arguments, **options)

    session.Cursor.execute = execute_counted  # type: ignore[method-assign, assignment]


class Scenario:
    """One run of the agent, from its beginning through kills to its end."""

    def __init__(self, folder: Path, url: str | None = None) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        self.folder = folder
        self.address = folder / "journal.db" if url is None else Schema.made(url)
        self.world = agent.World(folder)
        self.kills = 0
        self.settled = 0
        self.violations: list[str] = []

    def drive(self, prepare: Callable[[], None] | None = None, kill_after: float | None = None) -> str | None:
        """One drive in a child: the answer, or None when it was killed or a step had to be settled."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.close(reader)
                if prepare is not None:
                    prepare()
                os.write(writer, (agent.drive(self.address, self.folder) or "settled").encode())
                code = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(code)
        os.close(writer)
        if kill_after is not None:
            select.select([reader], [], [], kill_after)
            os.kill(child, signal.SIGKILL)
        answer = os.read(reader, 1000).decode()
        os.close(reader)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if status == -signal.SIGKILL and not answer:
            self.kills += 1
            self.check_after_kill()
            return None
        if answer == "settled":
            self.settled += 1
            return None
        if not answer:
            raise SystemExit(f"a drive ended with {status}")
        return answer

    def expect(self, holds: bool, what: str) -> None:
        if not holds:
            self.violations.append(f"{self.folder.name}: {what}")

    def check_after_kill(self) -> None:
        """What a kill may leave: one model call and one tool call in the air, never more."""
        if isinstance(self.address, Path) and not self.address.exists():
            return
        with RunJournal(self.address) as journal:
            recorded = sum(event.kind == KIND_MODEL_DECISION for event in journal.events(agent.RUN))
            asked = len(set(self.world.lines("model")))
            self.expect(asked - recorded in (0, 1), f"asked {asked} times, recorded {recorded}")
            self.expect(len(journal.uncertain(agent.RUN)) <= 1, "more than one step in the air")
            keys = [e.payload["idempotency_key"] for e in journal.events(agent.RUN) if e.kind == "tool_call"]
            for tool in agent.TOOLS:
                unknown = set(self.world.lines(tool)) - set(keys)
                self.expect(not unknown, f"{tool} ran before it was recorded: {unknown}")

    def check_at_end(self, answer: str, expected: str) -> None:
        self.expect(answer == expected, "another answer than without a kill")
        questions = collections.Counter(self.world.lines("model"))
        self.expect(len(questions) == agent.STEPS, "a question was skipped")
        again = sum(questions.values()) - agent.STEPS
        self.expect(again <= self.kills, f"{again} questions asked again after {self.kills} kills")
        for tool in agent.TOOLS:
            runs = collections.Counter(self.world.lines(tool))
            self.expect(len(runs) == agent.STEPS // len(agent.TOOLS), f"{tool} ran for {len(runs)} steps")
            most = max(runs.values(), default=0)
            self.expect(most == 1 or (tool == agent.SAFE and most <= 1 + self.kills), f"{tool} ran {most} times")
        with RunJournal(self.address) as journal:
            run = journal.run_meta(agent.RUN)
            self.expect(run is not None and run.status == "done", "the run is not closed")
            self.expect(journal.uncertain(agent.RUN) == [], "a step is left unsettled")
            if isinstance(self.address, Path):
                self.expect(journal._database.read("PRAGMA integrity_check") == [("ok",)], "the database is damaged")
        if isinstance(self.address, Schema):
            self.address.drop()


def to_the_end(scenario: Scenario, kill_after: Callable[[], float | None] = lambda: None) -> str:
    for _ in range(500):
        answer = scenario.drive(kill_after=kill_after())
        if answer is not None:
            return answer
    raise SystemExit(f"{scenario.folder} does not end")


def at_boundaries(folder: Path, url: str | None, expected: str, stride: int) -> dict[str, Any]:
    violations: list[str] = []
    boundary = settled = kills = tried = 0
    while True:
        boundary += stride if tried else 1
        tried += 1
        answers = []
        for after in (False, True):
            scenario = Scenario(folder / f"{'after' if after else 'before'} {boundary}", url)
            answer = scenario.drive(prepare=partial(die_at, boundary, after))
            answers.append(answer)
            scenario.check_at_end(answer or to_the_end(scenario), expected)
            violations += scenario.violations
            settled += scenario.settled
            kills += scenario.kills
            shutil.rmtree(scenario.folder)
        if all(answers):
            return {"boundaries": tried - 1, "kills": kills, "settled": settled, "violations": violations}


def at_random(folder: Path, url: str | None, expected: str, seed: int, count: int) -> dict[str, Any]:
    dice = random.Random(seed)
    violations: list[str] = []
    # A drive in a database takes longer.
    span = 0.05 if url is None else 0.3
    kills = settled = number = 0
    while kills < count:
        number += 1
        scenario = Scenario(folder / f"random {number}", url)
        # Some runs are killed again and again, some once.
        chance = dice.choice((0.3, 0.9))
        answer = to_the_end(
            scenario,
            lambda chance=chance: dice.random() ** 2 * span if dice.random() < chance else None,  # type: ignore[misc]
        )
        scenario.check_at_end(answer, expected)
        violations += scenario.violations
        kills += scenario.kills
        settled += scenario.settled
        shutil.rmtree(scenario.folder)
    return {"runs": number, "kills": kills, "settled": settled, "violations": violations}


def main() -> None:
    place, mode, *numbers = sys.argv[1:]
    folder, url = Path(place), numbers.pop() if "://" in numbers[-1] else None
    reference = Scenario(folder / "reference", url)
    expected = to_the_end(reference)
    reference.check_at_end(expected, expected)
    found = (
        at_boundaries(folder, url, expected, int(numbers[0]))
        if mode == "boundaries"
        else at_random(folder, url, expected, int(numbers[0]), int(numbers[1]))
    )
    found["violations"] = reference.violations + found["violations"]
    print(json.dumps(found))


if __name__ == "__main__":
    main()
