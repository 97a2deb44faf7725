"""`turn-journal doctor` tries a database, and says what is missing there without its password."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any


def doctor(url: str, **settings: str) -> tuple[int, dict[str, dict[str, Any]], str]:
    command = [sys.executable, "-m", "turn_journal_runtime", "doctor", "-r", url, "-f", "json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **settings})
    checks = {check["check"]: check for check in json.loads(done.stdout)["checks"]}
    return done.returncode, checks, done.stdout + done.stderr


def migrate(url: str) -> None:
    subprocess.run([sys.executable, "-m", "turn_journal_runtime", "store", "migrate", url], check=True)


def test_a_database_without_tables_is_said_and_what_makes_them(postgres_url: str) -> None:
    code, checks, _ = doctor(postgres_url)
    assert code == 1
    for name in ("database", "run journal", "queue"):
        assert checks[name]["outcome"] == "failed"
        assert "turn-journal store migrate" in checks[name]["found"]


def test_a_database_that_is_ready_is_found_so(postgres_url: str) -> None:
    migrate(postgres_url)
    code, checks, _ = doctor(postgres_url)
    assert (code, {name for name, check in checks.items() if check["outcome"] != "ok"}) == (0, set())
    assert {"core", "database", "run journal", "queue"} <= set(checks)


def test_a_server_that_is_not_there_is_said_without_the_password() -> None:
    url = "postgresql://somebody:hush-hush@127.0.0.1:9/none?connect_timeout=1"
    code, checks, said = doctor(url, TURN_JOURNAL_POSTGRES_TIMEOUT="0.3")
    assert (code, checks["database"]["outcome"]) == (1, "failed")
    assert "hush-hush" not in said
