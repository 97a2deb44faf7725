"""Copying is killed in the middle, again and again: what is at the target then is whole, and in the end all is there,
byte for byte; its memory does not grow with the number of turns.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil
import psycopg
import pytest
from tests.conftest import SOAK
from tests.python.copying.content import files_in, fill, runs_in, seen_in

from turn_journal_runtime import RunJournal, copy_store, verify_turn_journal
from turn_journal_runtime.bridge import default_client
from turn_journal_runtime.run_journal import DurableRun, postgres
from turn_journal_runtime.turns.folder_root import run_journal_path

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.chaos

#: Of each goal.
TURNS: Final = 1000 if SOAK else 40
RUNS: Final = 300 if SOAK else 20
KILLS: Final = 10 if SOAK else 3
SEED: Final = int(os.environ.get("TURN_JOURNAL_SEED", str(time.time_ns() % 2**31)))
COMMAND: Final = (sys.executable, "-m", "turn_journal_runtime.cli", "store", "copy")


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with many turns and runs."""
    root = tmp_path_factory.mktemp("copied") / "source"
    fill(root, turns=TURNS)
    with RunJournal(run_journal_path(root)) as runs:
        for number in range(RUNS):
            with DurableRun(runs, f"run-{number}", agent="agent") as run:
                for step in range(3):
                    run.tool("send", {"to": step}, lambda to: "x" * 200)
    return root


@pytest.fixture
def database(postgres_url: str) -> str:
    """A database with the tables of turns and runs."""
    default_client().call("store.migrate", {"runtime_root": postgres_url})
    postgres.migrate(postgres_url)
    return postgres_url


def in_folder(root: Path) -> int:
    """How much is at a folder, as the files tell."""
    return len(list(root.glob("goals/*/turns/*.json"))) + run_journal_path(root).exists()


def in_database(url: str) -> int:
    """How much is in a database."""
    with psycopg.connect(url) as connection:
        turns = connection.execute("SELECT count(*) FROM turn_journal_turns").fetchall()
        runs = connection.execute("SELECT count(*) FROM turn_journal_runs").fetchall()
    return int(turns[0][0]) + int(runs[0][0])


def copy_until_done(source: Path | str, target: Path | str, count: Callable[[], int], dice: random.Random) -> int:
    """Copies, and kills the command or its core whenever something more has arrived; the kills."""
    kills = 0
    while True:
        arguments = [*COMMAND, str(source), str(target), "-f", "json"]
        process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        wanted = count() + dice.randrange(1, 1 + TURNS // KILLS)
        while kills < KILLS and process.poll() is None:
            time.sleep(0.01)
            if count() >= wanted:
                time.sleep(dice.random() * 0.05)
                kills += strike(process, dice)
                wanted = count() + dice.randrange(1, 1 + TURNS // KILLS)
        out, err = process.communicate()
        if process.returncode == 0:
            assert json.loads(out)["ok"]
            return kills
        # A call that has lost one core is made again with another one, and fails when it loses that, too.
        is_lost = process.returncode == 1 and json.loads(err)["error"]["kind"].startswith("runtime_")
        assert process.returncode == -9 or is_lost, f"seed {SEED}: {out.decode()} {err.decode()}"
        look(source, target)


def strike(process: subprocess.Popen[bytes], dice: random.Random) -> bool:
    """Kills the command, and with it its core; or the core alone."""
    victim = psutil.Process(process.pid)
    try:
        cores = victim.children(recursive=True)
        (dice.choice(cores) if cores and dice.random() < 0.3 else victim).kill()
    except psutil.NoSuchProcess:
        return False
    return True


def look(source: Path | str, target: Path | str) -> None:
    """What is there is there as a whole."""
    report = copy_store(source, target, verify_only=True)
    assert {one["outcome"] for one in report["problems"]} <= {"missing"}, f"seed {SEED}: {report['problems'][:3]}"
    assert verify_turn_journal(target)["ok"], f"seed {SEED}"


@pytest.mark.timeout(1800)
def test_a_copy_that_is_killed_goes_on(source: Path, database: str, tmp_path: Path) -> None:
    print(f"TURN_JOURNAL_SEED={SEED}")
    dice = random.Random(SEED)
    back, beside = tmp_path / "back", tmp_path / "beside"
    kills = [
        copy_until_done(source, database, lambda: in_database(database), dice),
        copy_until_done(database, back, lambda: in_folder(back), dice),
        copy_until_done(source, beside, lambda: in_folder(beside), dice),
    ]
    assert min(kills) > 0
    files, runs = files_in(source), runs_in(run_journal_path(source))
    for folder in (back, beside):
        assert files_in(folder) == files
        assert runs_in(run_journal_path(folder)) == runs
        assert not list(folder.glob("goals/*/turns/*.tmp"))
    assert runs_in(database) == runs
    if not SOAK:  # one question after another: minutes, of thousands of turns
        assert seen_in(database) == seen_in(source)
    print(f"copies killed: {kills} times, {len(runs)} runs, {sum(name.endswith('.json') for name in files)} files")


@pytest.mark.skipif(sys.platform != "linux", reason="the most memory that another process had is told by Linux")
@pytest.mark.timeout(900)
def test_the_memory_of_a_copy_does_not_grow_with_the_turns(tmp_path: Path) -> None:
    few, many = (200, 2000) if SOAK else (150, 350)
    peaks = []
    for turns in (few, many):
        root = tmp_path / str(turns)
        write_many(root, turns)
        peaks.append(peaks_of(root, tmp_path / f"{turns}-copied"))
    print(f"peaks of command and core in MiB, {few} and {many} turns: {peaks}")
    for before, after in zip(*peaks, strict=True):
        # All the turns would be as much as that, if they were kept.
        assert after - before < 0.2 * (many - few)


def write_many(root: Path, turns: int) -> None:
    """Turns with 200 kB of history each, by the core alone."""
    client = default_client()
    for number in range(turns):
        for step in range(2):
            journal: dict[str, Any] = {
                "schema_version": "loopx_turn_journal_v0",
                "goal_id": "g",
                "agent_id": "a",
                "turn_key": f"turn-{number}",
                "status": "in_progress",
                "plan": {"phases": ["only"]},
                "completed_phases": [],
                "bulk": f"{step}" * 100_000,
            }
            path = str(root / "goals" / "g" / "turns" / f"turn-{number}.json")
            client.call("turn_journal.write", {"path": path, "journal": journal})


def peaks_of(source: Path, target: Path) -> list[int]:
    """The most memory that the command and its core had, in MiB."""
    process = subprocess.Popen([*COMMAND, str(source), str(target), "-f", "json"], stdout=subprocess.PIPE)
    command = psutil.Process(process.pid)
    peaks: dict[int, int] = {}
    while process.poll() is None:
        for one in [command, *command.children(recursive=True)]:
            peaks[one.pid] = peak_of(one.pid) or peaks.get(one.pid, 0)
        time.sleep(0.02)
    assert process.communicate()[0]
    assert process.returncode == 0
    return list(peaks.values())[:2]


def peak_of(pid: int) -> int | None:
    try:
        status = Path(f"/proc/{pid}/status").read_text("ascii", "replace")
    except OSError:
        return None
    found = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(found[0]) // 1024 if found else None
