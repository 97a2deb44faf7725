"""The core, and its parent, are killed before and after every step of a commit: the journal is the old one or the new
one, what was acknowledged is there, the history verifies, and the next write works.

The cells where a call fails instead, and the process lives, are in ts/test/store/Crash.test.ts.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from tests.chaos.store.conftest import REPOSITORY
from tests.chaos.store.core import GOAL, TURN, Core, Gone, journal, path_of
from tests.conftest import SOAK
from tests.process.hosts.harness import is_gone

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.chaos

WRITE: Final = [
    "leftover.remove",
    "snapshot.create",
    "snapshot.write",
    "history.write",
    "history.truncate",
    "commit.sync",
    "snapshot.rename",
    "folder.sync",
    "history.seal",
]
COMPACTION: Final = [
    "compaction.create",
    "compaction.write",
    "compaction.sync",
    "compaction.rename",
    "compaction.folder.sync",
]


REPAIR: Final = ["aside.create", "aside.write", "aside.sync", *WRITE]


class Scenario(NamedTuple):
    steps: list[str]
    #: What is written before, phases completed.
    before: list[dict[str, Any]]
    method: str
    params: Callable[[Path], dict[str, Any]]
    #: Which journals may stand afterwards; None: none.
    allowed: list[dict[str, Any] | None]
    #: Whether another program wrote what was there before: a journal alone, and no history.
    foreign: bool = False


def write(completed: int) -> Callable[[Path], dict[str, Any]]:
    return lambda root: {"path": str(path_of(root)), "journal": journal(completed)}


DONE: Final = journal(3, "committed", bulk="x" * 100)
SCENARIOS: Final = {
    "first write": Scenario(
        ["folder.make", "lock.make", "history.open", *WRITE], [], "write", write(0), [None, journal(0)]
    ),
    "later write": Scenario(WRITE, [journal(0), journal(1)], "write", write(2), [journal(1), journal(2)]),
    "adoption": Scenario(
        ["lock.make", "history.open", *(step for step in WRITE if step != "history.truncate"), "history.rename"],
        [journal(1)],
        "write",
        write(2),
        [journal(1), journal(2)],
        foreign=True,
    ),
    "replayed write": Scenario(
        ["replay.sync", "leftover.remove"], [journal(0), journal(1)], "write", write(1), [journal(1)]
    ),
    "prune": Scenario(
        [*WRITE, *COMPACTION],
        [journal(0), DONE],
        "prune",
        lambda root: {"runtime_root": str(root), "older_than": 0},
        [DONE, journal(3, "committed")],
    ),
}

SEED: Final = int(os.environ.get("TURN_JOURNAL_SEED", str(time.time_ns() % 2**31)))

#: Starts the core given as arguments, hands it one line, and waits to be killed by it.
PARENT: Final = """
import os, subprocess, sys
core = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
core.stdout.readline()
print(core.pid, flush=True)
core.stdin.write(sys.argv[1].encode() + b"\\n")
core.stdin.flush()
sys.stdout.write(core.stdout.readline().decode())
sys.stdout.flush()
core.stdout.readline()
"""


def strike_core(node: str, bundle: Path, fault: str, method: str, params: dict[str, Any]) -> bool:
    """Lets the core kill itself; whether it answered before."""
    core = Core(node, bundle, {"TURN_JOURNAL_FAULT": f"{fault}:kill"})
    try:
        core.call(method, **params)
    except Gone:
        answered = False
    else:
        answered = True
    core.close()
    assert core.process.returncode == -9, f"{fault}: the step was not reached"
    return answered


def strike_parent(node: str, bundle: Path, fault: str, method: str, params: dict[str, Any]) -> bool:
    """Lets the core kill its parent; whether it answered before. The core ends by itself."""
    request = json.dumps({"jsonrpc": "2.0", "id": 1, "method": f"turn_journal.{method}", "params": params})
    parent = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PARENT, request, node, str(bundle), "serve"],
        env={"TURN_JOURNAL_FAULT": f"{fault}:kill_parent"},
        stdout=subprocess.PIPE,
        text=True,
        timeout=240,
        check=False,
    )
    assert parent.returncode == -9, f"{fault}: the step was not reached"
    pid, *answers = parent.stdout.splitlines()
    deadline = time.monotonic() + 20
    while not is_gone(int(pid)):
        assert time.monotonic() < deadline, f"{fault}: the core outlived its parent"
        time.sleep(0.01)
    return len(answers) > 0


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("victim", [strike_core, strike_parent], ids=["core", "parent"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_at_every_step(
    name: str, victim: Callable[..., bool], node: str, bundle: Path, core: Core, root: Path
) -> None:
    scenario = SCENARIOS[name]
    faults = [f"{step}:{side}" for step in scenario.steps for side in ("before", "after")]
    if victim is strike_parent and not SOAK:
        # To a core whose parent died, the sides of a step are nearly one: it goes on to the end of what it does.
        print(f"TURN_JOURNAL_SEED={SEED}")
        faults = [f"{step}:{random.Random(f'{SEED} {step}').choice(('before', 'after'))}" for step in scenario.steps]
    roots = {fault: root / str(number) for number, fault in enumerate(faults)}
    for fault in faults:
        prepare(core, path_of(roots[fault]), scenario)
    with ThreadPoolExecutor(2) as pool:
        answered = list(
            pool.map(lambda fault: victim(node, bundle, fault, scenario.method, scenario.params(roots[fault])), faults)
        )
    for fault, was_answered in zip(faults, answered, strict=True):
        check(core, roots[fault], scenario, fault, was_answered)
    print(f"crash matrix, {name}, SIGKILL of the {victim.__name__.removeprefix('strike_')}: {len(faults)} cells")


def test_no_step_is_forgotten() -> None:
    source = (REPOSITORY / "ts" / "src" / "store" / "Disk.ts").read_text("utf-8")
    steps = re.findall(r'"([a-z.]+)"', source.partition("STEPS = [")[2].partition("]")[0])
    played = {step for scenario in SCENARIOS.values() for step in scenario.steps}
    # A process that is killed undoes nothing.
    assert set(steps) - {"rollback"} == played | set(REPAIR)


@pytest.mark.timeout(600)
def test_killed_while_it_repairs(node: str, bundle: Path, core: Core, root: Path) -> None:
    """The turn is damaged as before, or repaired; what is cut is kept, and the repair can be made again."""
    faults = [f"{step}:{side}" for step in REPAIR for side in ("before", "after")]
    damaged: dict[str, tuple[Path, bytes, str]] = {}
    for number, fault in enumerate(faults):
        path = path_of(root / str(number))
        for completed in range(3):
            core.call("write", path=str(path), journal=journal(completed))
        history = path.with_name(f"{TURN}.history.jsonl")
        first, *rest = history.read_bytes().splitlines(keepends=True)
        cut = b"".join(rest).replace(b'"seq":2', b'"seq":7')
        history.write_bytes(first + cut)
        damaged[fault] = path, cut, core.call("repair", path=str(path))["plan"]
    with ThreadPoolExecutor(2) as pool:
        strikes = [
            pool.submit(strike_core, node, bundle, fault, "repair", {"path": str(path), "plan": plan})
            for fault, (path, _, plan) in damaged.items()
        ]
        for strike in strikes:
            strike.result()
    for fault, (path, cut, _) in damaged.items():
        assert json.loads(path.read_bytes()) == journal(2), fault
        found = core.call("repair", path=str(path))
        if found["plan"] is not None:
            assert core.call("repair", path=str(path), plan=found["plan"])["done"], fault
        assert core.call("read", path=str(path))["journal"] == journal(2), fault
        assert core.call("write", path=str(path), journal=DONE)["appended"], fault
        (turn,) = core.call("verify", runtime_root=str(path.parents[3]))["turns"]
        assert (turn["ok"], turn["unfinished"], turn["transitions"]) == (True, False, 3), fault
        assert cut in [kept.read_bytes() for kept in path.parent.glob("*.cut-*")], fault
        assert not list(path.parent.glob("*.tmp")), fault
    print(f"crash matrix, repair, SIGKILL of the core: {len(faults)} cells")


def prepare(core: Core, path: Path, scenario: Scenario) -> None:
    for document in scenario.before:
        if scenario.foreign:
            path.parent.mkdir(parents=True)
            path.write_text(json.dumps(document, indent=2) + "\n", "utf-8")
        else:
            core.call("write", path=str(path), journal=document)


def check(core: Core, root: Path, scenario: Scenario, fault: str, was_answered: bool) -> None:
    path = path_of(root)
    standing = core.call("read", path=str(path))["journal"] if path.exists() else None
    allowed = scenario.allowed[-1:] if was_answered else scenario.allowed
    assert standing in allowed, fault
    turns = core.call("verify", runtime_root=str(root))["turns"]
    assert [turn["problem"] for turn in turns if turn["problem"] is not None] == [], fault
    following = DONE
    if scenario.method == "prune":
        core.call("prune", **scenario.params(root))
    else:
        following = journal(0 if standing is None else len(standing["completed_phases"]) + 1)
    assert core.call("write", path=str(path), journal=following)["ok"], fault
    (turn,) = core.call("verify", runtime_root=str(root), goal_id=GOAL, turn_key=TURN)["turns"]
    assert (turn["ok"], turn["unfinished"]) == (True, False), fault
    assert [file.name for file in path.parent.iterdir() if file.name.endswith(".tmp")] == [], fault
