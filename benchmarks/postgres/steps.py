"""Durable steps of runs side by side, beside steps of DBOS workflows on the same server.

A step of DBOS is recorded after it happened, by one commit: cut off in between it happens again. So does a model's
decision here. A tool's step is recorded before and after, by two commits: cut off in between it never happens again by
itself.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from statistics import mean
from typing import TYPE_CHECKING

import psycopg
from benchmarks.run_journal import peers
from benchmarks.run_journal.sides import ARGS, no_op
from psycopg.types.json import Jsonb

from turn_journal_runtime.run_journal import DurableRun, RunJournal
from turn_journal_runtime.run_journal.postgres import migrate

if TYPE_CHECKING:
    from collections.abc import Callable

#: Steps of a side in a row, over all its runs.
STEPS = 400
WARM = 10
TABLE = "CREATE TABLE bare_step (id TEXT PRIMARY KEY, body JSONB NOT NULL)"
BARE = "INSERT INTO bare_step (id, body) VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET body = excluded.body"


def measure(url: str, runs: int) -> dict[str, float]:
    """Seconds for one step of each side: the mean of a row before DBOS has its own, and of one after it."""
    migrate(url)
    with ExitStack() as stack:
        journal = stack.enter_context(RunJournal(url))
        threads = stack.enter_context(ThreadPoolExecutor(runs))
        connections = [stack.enter_context(psycopg.connect(url, autocommit=True)) for _ in range(runs)]
        connections[0].execute(TABLE)
        driven = [stack.enter_context(DurableRun(journal, f"run-{number}")) for number in range(runs)]

        def bare(number: int, step: int) -> None:
            connections[number].execute(BARE, (f"{number}:{step}", Jsonb(ARGS)), prepare=True)

        def tool(number: int, _: int) -> None:
            driven[number].tool("search", ARGS, no_op)

        def decision(number: int, _: int) -> None:
            driven[number].model(no_op, *ARGS.values(), request=ARGS)

        def row(call: Callable[[int, int], None], begin: int, steps: int) -> float:
            def client(number: int) -> None:
                for step in range(begin, begin + steps):
                    call(number, step)

            begun = time.perf_counter()
            list(threads.map(client, range(runs)))
            return (time.perf_counter() - begun) / (steps * runs)

        each = STEPS // runs
        sides = {
            "bare insert": bare,
            "decision: one commit, as DBOS": decision,
            "tool: two commits": tool,
        }
        for call in sides.values():
            row(call, 0, WARM)
        before = {name: row(call, WARM, each) for name, call in sides.items()}
        theirs = {"DBOS step": peers.dbos_step(url, each, runs)} if peers.are_wanted() else {}
        after = {name: row(call, WARM + each, each) for name, call in sides.items()}
    return {name: mean((before[name], after[name])) for name in sides} | theirs
