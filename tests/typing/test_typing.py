"""The package's types are complete, and wrong uses of it are refused by both type checkers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
WRONG_USES = Path(__file__).with_name("wrong_uses.py")
#: The lines that must not type-check say so.
EXPECTED = {
    number
    for number, line in enumerate(WRONG_USES.read_text(encoding="utf-8").splitlines(), 1)
    if line.rstrip().endswith("# wrong")
}


def _pyright(*arguments: str) -> dict[str, object]:
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--outputjson", *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_every_public_symbol_has_a_known_type() -> None:
    report = _pyright("--verifytypes", "turn_journal_runtime", "--ignoreexternal")
    completeness = report["typeCompleteness"]
    assert isinstance(completeness, dict)
    unknown = [
        symbol["name"]
        for symbol in completeness["symbols"]
        if symbol["isExported"] and (symbol["isTypeAmbiguous"] or not symbol["isTypeKnown"])
    ]
    assert unknown == []
    assert completeness["exportedSymbolCounts"]["withKnownType"] > 500
    assert completeness["pyTypedPath"].endswith("py.typed")


def test_pyright_refuses_each_wrong_use_and_nothing_else() -> None:
    diagnostics = _pyright(str(WRONG_USES))["generalDiagnostics"]
    assert isinstance(diagnostics, list)
    lines = {one["range"]["start"]["line"] + 1 for one in diagnostics if one["severity"] == "error"}
    assert lines == EXPECTED


def test_mypy_refuses_each_wrong_use_and_nothing_else() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--hide-error-context", str(WRONG_USES)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
    )
    lines = {int(line) for line in re.findall(r"wrong_uses\.py:(\d+): error", done.stdout)}
    assert lines == EXPECTED, done.stdout
