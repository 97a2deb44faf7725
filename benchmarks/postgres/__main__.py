"""`python -m benchmarks.postgres`: turns in PostgreSQL beside bare statements of the same driver, in the same run.

A write is held against `INSERT … ON CONFLICT DO UPDATE` of the same journal, an inspection against `SELECT` of it. The
server waits for its disk, as one does that holds turns. `TEST_POSTGRES_URL` names another server.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from statistics import median
from urllib.parse import urlsplit

import psycopg
from psycopg.sql import SQL, Identifier
from rich.console import Console
from rich.table import Table

from turn_journal_runtime.bridge.node import locate_node
from turn_journal_runtime.settings import current

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


def main() -> None:
    """Measures and prints."""
    server = subprocess.Popen(
        [sys.executable, str(REPOSITORY / "tests" / "postgres_server.py"), "--durable"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        admin = server.stdout.readline().strip()
        table = Table("clients", "what", "a second", "bare, a second", "times the cost", "CPU of the core, µs", "bare")
        for clients in CLIENTS:
            name = f"bench_{secrets.token_hex(6)}"
            with psycopg.connect(admin, autocommit=True) as connection:
                connection.execute(SQL("CREATE DATABASE {}").format(Identifier(name)))
                found = measure(urlsplit(admin)._replace(path=f"/{name}").geturl(), clients)
                connection.execute(SQL("DROP DATABASE {} WITH (FORCE)").format(Identifier(name)))
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
    finally:
        server.communicate()


if __name__ == "__main__":
    main()
