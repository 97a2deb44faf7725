"""The tables of docs/turn-journal.md name what there is: no more, no less, and in its order."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tests.contract.cases import ALL, journal_of

from turn_journal_runtime import build_host_failure_record

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "turn-journal.md").read_text("utf-8")
SCHEMA = json.loads((ROOT / "schemas" / "turn_journal.inspect.result.json").read_text("utf-8"))
CASES = ROOT / "tests" / "contract" / "turn_journal"


def rows(heading: str, table: int = 0) -> list[list[str]]:
    """The rows of a table under a heading, as texts of their cells."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found = re.findall(r"(?:^\|.*\|\n)+", section, re.MULTILINE)[table]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in found.splitlines()[2:]]


def named(cells: list[str]) -> list[str]:
    return [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]


def test_every_violation_is_explained_in_its_order() -> None:
    table = rows("Violations and what to do")
    assert (
        named([row[0] for row in table]) == SCHEMA["$defs"]["Inspection"]["properties"]["violations"]["items"]["enum"]
    )
    assert all(len(row) == 3 and all(row) for row in table)


def test_the_diagram_has_the_steps_that_are_accepted() -> None:
    accepted = set()
    for case in (case for case in ALL if case.file == "writes"):
        before = journal_of(case.request["stored"]) if "stored" in case.request else None
        for write, outcome in zip(case.request["writes"], case.expected, strict=True):
            if not outcome.get("appended"):
                continue
            journal = journal_of(write["journal"])
            if before is not None:
                accepted.add((before["status"], journal["status"]))
            before = journal
    drawn = set(re.findall(r"^  (\w+) --> (\w+)", PAGE, re.MULTILINE)) - {("started", "in_progress")}
    assert {step for step in drawn if step[0] != step[1]} == {step for step in accepted if step[0] != step[1]}


def test_every_decision_of_the_cases_is_explained() -> None:
    decided = {
        (decision["action"], decision["reason"])
        for name in ("recovery", "host-retry-policy", "plain-turns")
        for case in json.loads((CASES / f"{name}.json").read_text("utf-8"))["cases"]
        if "reason" in (decision := case["expected"].get("recovery_decision", {}))
    }
    # A session's check brings reasons of its own.
    decided.discard(("blocked", "session_binding_identity_mismatch"))
    explained = {(named([row[1]])[0], named([row[2]])[0]) for row in rows("Recovery decisions")}
    assert explained == decided


def test_every_refusal_of_the_cases_is_explained() -> None:
    refused = {
        outcome["refused"]
        for name in ("writes", "plain-writes")
        for case in json.loads((CASES / f"{name}.json").read_text("utf-8"))["cases"]
        for outcome in case["expected"]
        if "refused" in outcome
    }
    assert set(named([row[0] for row in rows("Refused writes")])) == refused | {"journal_corrupt"}


@pytest.mark.process
def test_the_retry_policy_is_the_core_s() -> None:
    for kinds, attempts, waits in rows("Recovery decisions", table=1):
        for kind in named([kinds]):
            retry = build_host_failure_record(kind, attempt=1).get("retry")
            if retry is None:
                assert not attempts.isdigit()
                continue
            assert int(attempts) == retry["max_attempts"]
            between = range(1, retry["max_attempts"])
            records = [build_host_failure_record(kind, attempt=attempt) for attempt in between]
            assert waits == ", ".join(str(record["retry"]["backoff_seconds"]) for record in records)
