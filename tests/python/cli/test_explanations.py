"""Every name of the contract is explained, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

from turn_journal_runtime.cli.explanations import EFFECTS, REASONS, VIOLATIONS
from turn_journal_runtime.cli.inspection_report import report_of
from turn_journal_runtime.cli.output import Line

ROOT = Path(__file__).parents[3]


def _schema() -> dict[str, dict[str, dict[str, dict[str, object]]]]:
    text = (ROOT / "schemas" / "turn_journal.inspect.result.json").read_text(encoding="utf-8")
    definitions: dict[str, dict[str, dict[str, dict[str, object]]]] = json.loads(text)["$defs"]
    return definitions


def test_the_violations_are_those_of_the_core_in_its_order() -> None:
    items = _schema()["Inspection"]["properties"]["violations"]["items"]
    assert isinstance(items, dict)
    assert list(VIOLATIONS) == items["enum"]


def test_the_effects_are_those_of_the_core() -> None:
    assert list(EFFECTS) == list(_schema()["RecordedEffects"]["properties"])


def test_every_reason_that_the_core_gives_is_explained() -> None:
    recovery = (ROOT / "ts/src/journal/Recovery.ts").read_text(encoding="utf-8")
    policy = (ROOT / "ts/src/journal/RetryPolicy.ts").read_text(encoding="utf-8")
    assessment = json.loads((ROOT / "schemas/session_recovery.assess.result.json").read_text(encoding="utf-8"))
    given = set(re.findall(r'decide\("\w+", "(\w+)"', recovery))
    given |= set(re.findall(r'(?:\?\?|reason:) "(\w+_\w+_\w+)"', recovery))
    given |= set(re.findall(r'\["\w+", "(\w+)"\]', recovery))
    given |= set(re.findall(r'failed\("(\w+)"\)', policy))
    refusals = re.findall(r'\["[^]]*"session_binding_missing"[^]]*\]', json.dumps(assessment))
    given |= set(json.loads(refusals[0]))
    corpus = (ROOT / "tests/contract/corpus/inspections.jsonl").read_text(encoding="utf-8").splitlines()
    given |= {json.loads(line)["expected"]["recovery_decision"]["reason"] for line in corpus}
    assert len(given) >= 20
    assert given - set(REASONS) == set()


def test_the_page_on_the_contract_says_the_same() -> None:
    page = (ROOT / "docs/turn-journal.md").read_text(encoding="utf-8")
    rows = {name: (means, do) for name, means, do in re.findall(r"^\| `(\w+)` \| ([^|]+) \| ([^|]+) \|$", page, re.M)}
    for name, explanation in VIOLATIONS.items():
        assert tuple(map(_sentence, rows[name])) == explanation, name
    reasons = re.findall(r"^\| [^|]+ \| `(?:continue|return_existing|blocked)` \| ([^|]+) \|", page, re.M)
    named = {name for cell in reasons for name in re.findall(r"`(\w+)`", cell)}
    assert len(named) >= 12
    assert named <= set(REASONS)


def _sentence(cell: str) -> str:
    return f"{cell[0].upper()}{cell[1:]}."


def test_each_explanation_says_what_is_wrong_and_what_to_do() -> None:
    for name, explanation in {**VIOLATIONS, **REASONS}.items():
        assert explanation.why.endswith("."), name
        assert explanation.what_to_do.endswith("."), name
        assert len(explanation.why) < 130, name


def test_every_inspection_of_the_corpus_has_a_verdict_first() -> None:
    seen = set()
    for line in (ROOT / "tests/contract/corpus/inspections.jsonl").read_text(encoding="utf-8").splitlines():
        inspection = json.loads(line)["expected"]
        report = report_of("goal/turn", inspection)
        first = report.blocks[0]
        assert isinstance(first, Line)
        verdict = re.split(r"\W", first.text)[0]
        seen.add(verdict)
        if inspection["recovery_decision"]["can_continue"]:
            assert verdict == "MAY"
        else:
            assert verdict == ("OVER" if inspection["replay_legal"] else "BLOCKED")
        assert report.document is inspection
        assert report.code == 0
    assert seen == {"MAY", "OVER", "BLOCKED"}
