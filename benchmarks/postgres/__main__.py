"""`python -m benchmarks.postgres`: turns in PostgreSQL beside bare statements of the same driver, in the same run.

A write is held against `INSERT … ON CONFLICT DO UPDATE` of the same journal, an inspection against `SELECT` of it. The
server waits for its disk, as one does that holds turns. `TEST_POSTGRES_URL` names another server. With BENCH_PEERS=1 a
step of DBOS is measured as well, beside a write of a turn and the durable steps of the run journal.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psycopg
from benchmarks.run_journal import peers
from psycopg.sql import SQL, Identifier
from rich.console import Console
from rich.table import Table

from turn_journal_runtime.bridge.node import locate_node
from turn_journal_runtime.settings import current

from . import steps

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).parents[2]
CLIENTS = [int(number) for number in os.environ.get("BENCH_CLIENTS", "1 8 64").split()]
SECONDS = float(os.environ.get("BENCH_SECONDS", "2"))
ROUNDS = 5
PAIRS = {"write": "bare upsert", "inspection": "bare select"}


def measure(url: str, clients: int) -> dict[str, dict[str, float]]:
    """The medians of each side."""
    program = [locate_node(current()).path, str(Path(__file__).with_name("clients.mjs"))]
    run = subprocess.run(
        [*program, url, str(clients), str(SECONDS), str(ROUNDS)],
        cwd=REPOSITORY,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    rounds = [json.loads(line) for line in run.stdout.splitlines()]
    return {
        side: {figure: median(one[side][figure] for one in rounds) for figure in ("perSecond", "cpuMicros")}
        for side in rounds[0]
    }


@contextmanager
def database(admin: str) -> Iterator[str]:
    """The URL of a database that goes again."""
    name = f"bench_{secrets.token_hex(6)}"
    with psycopg.connect(admin, autocommit=True) as connection:
        connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
        try:
            yield urlsplit(admin)._replace(path=f"/{name}").geturl()
        finally:
            connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))


def durable(clients: int, seconds: dict[str, float]) -> Table:
    """What so many clients record, each one step after the other."""
    table = Table(f"{clients} at a time", "ms", "a second", "times as fast as DBOS")
    theirs = seconds.get("DBOS step")
    for what, each in seconds.items():
        table.add_row(what, f"{each * 1e3:.2f}", f"{1 / each:,.0f}", f"{theirs / each:.1f}" if theirs else "")
    return table


def main() -> None:
    """Measures and prints."""
    server = subprocess.Popen(
        [sys.executable, str(REPOSITORY / "tests" / "postgres_server.py"), "--durable"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    if peers.are_wanted():
        peers.install()
    try:
        admin = server.stdout.readline().strip()
        writes: dict[int, float] = {}
        table = Table("clients", "what", "a second", "bare, a second", "times the cost", "CPU of the core, µs", "bare")
        for clients in CLIENTS:
            with database(admin) as url:
                found = measure(url, clients)
            writes[clients] = 1 / found["write"]["perSecond"]
            for what, bare in PAIRS.items():
                ours, theirs = found[what], found[bare]
                table.add_row(
                    str(clients),
                    what,
                    f"{ours['perSecond']:,.0f}",
                    f"{theirs['perSecond']:,.0f}",
                    f"{theirs['perSecond'] / ours['perSecond']:.2f}",
                    f"{ours['cpuMicros']:,.0f}",
                    f"{theirs['cpuMicros']:,.0f}",
                )
        Console().print(table)
        # One at a time, and some: at 64 threads it is Python that is measured.
        for clients in CLIENTS[:2]:
            with database(admin) as url:
                seconds = steps.measure(url, clients)
            Console().print(durable(clients, {"write of a turn, in the core": writes[clients], **seconds}))
    finally:
        server.communicate()


if __name__ == "__main__":
    main()
