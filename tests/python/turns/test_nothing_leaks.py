"""Messages and journals carry no prompt, output, path or secret: a marker is planted in each and looked for."""

from __future__ import annotations

import logging
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.process.hosts.test_agent_hosts import WORK, Bench
from tests.python.turns.world import (
    RESULT,
    KilledError,
    Ledger,
    ScriptedHost,
    Turn,
    rate_limited,
    with_session,
)

from turn_journal_runtime.errors import TurnJournalError
from turn_journal_runtime.hosts import CallableHost, SubprocessHost
from turn_journal_runtime.turns import HostFailedError, TurnResult

if TYPE_CHECKING:
    from collections.abc import Callable

PROMPT, OUTPUT, PATH, CREDENTIAL = "marker-prompt", "marker-output", "marker-path", "marker-credential"
MARKERS = (PROMPT, OUTPUT, PATH, CREDENTIAL)


def raising(text: str) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise RuntimeError(text)

    return fail


def agent_fails(turn: Turn, folder: Path) -> TurnResult:
    bench = Bench("codex", folder / PATH / "bench")
    return turn.run(
        bench.host(*WORK, ["message", OUTPUT], ["fail", f"429 Too Many Requests {CREDENTIAL}"]), host_input=PROMPT
    )


def program_writes_nonsense(turn: Turn, folder: Path) -> TurnResult:
    program = folder / PATH
    program.write_text(f"#!/bin/sh\ncat >&2\necho {OUTPUT} $CREDENTIAL\n")
    program.chmod(0o700)
    return turn.run(SubprocessHost([str(program)], env={"CREDENTIAL": CREDENTIAL, "PATH": "/bin"}), host_input=PROMPT)


def program_is_missing(turn: Turn, folder: Path) -> TurnResult:
    return turn.run(SubprocessHost([str(folder / PATH), CREDENTIAL]), host_input=PROMPT)


def function_raises(turn: Turn, folder: Path) -> TurnResult:
    def loop(context: Any, request: Any) -> dict[str, Any]:
        context.model(lambda: "fine", request={"prompt": request.input})
        raise OSError(2, CREDENTIAL, str(folder / PATH))

    return turn.run(CallableHost(loop), host_input=PROMPT)


def result_breaks_the_contract(turn: Turn, folder: Path) -> TurnResult:
    return turn.run(ScriptedHost(lambda request: {"output": OUTPUT, "path": PATH}), host_input=PROMPT)


def result_is_too_large(turn: Turn, folder: Path) -> TurnResult:
    return turn.run(ScriptedHost({**RESULT, "output": OUTPUT * 10_000}), host_input=PROMPT)


def result_is_no_json(turn: Turn, folder: Path) -> TurnResult:
    return turn.run(ScriptedHost(lambda request: {**RESULT, OUTPUT: {1, 2}}), host_input=PROMPT)


def validation_refuses(turn: Turn, folder: Path) -> TurnResult:
    refused = turn.run(ScriptedHost(), validate=lambda result: OUTPUT, host_input=PROMPT)
    assert refused.reason == OUTPUT  # told to the caller of validate, and to nobody else
    return turn.run(ScriptedHost(), host_input=PROMPT)


def provider_raises(turn: Turn, folder: Path) -> TurnResult:
    return turn.run(ScriptedHost(), writeback=raising(f"{OUTPUT} {CREDENTIAL} {folder / PATH}"), host_input=PROMPT)


def session_is_lost(turn: Turn, folder: Path) -> TurnResult:
    host = ScriptedHost(with_session("s-1", rate_limited(resumable=True)))
    turn.run(host, host_input=PROMPT)
    return turn.run(host, host_input=PROMPT, retry_failed=True)


def resolver_raises(turn: Turn, folder: Path) -> None:
    turn.run(ScriptedHost(rate_limited(resumable=True)), host_input=PROMPT)
    turn.run(ScriptedHost(), retry_failed=True, session_binding_resolver=raising(CREDENTIAL), host_input=PROMPT)


def effect_is_uncertain(turn: Turn, folder: Path) -> None:
    deadly = Ledger()
    deadly.dies = KilledError(CREDENTIAL)
    turn.kill(ScriptedHost(), spend=deadly, host_input=PROMPT)
    turn.run(ScriptedHost(), spend=Ledger(), host_input=PROMPT)


def host_names_a_strange_failure(turn: Turn, folder: Path) -> TurnResult:
    return turn.run(ScriptedHost(HostFailedError(kind=CREDENTIAL)), host_input=PROMPT)


WAYS = [
    agent_fails,
    program_writes_nonsense,
    program_is_missing,
    function_raises,
    result_breaks_the_contract,
    result_is_too_large,
    result_is_no_json,
    validation_refuses,
    provider_raises,
    session_is_lost,
    resolver_raises,
    effect_is_uncertain,
    host_names_a_strange_failure,
]


@pytest.mark.parametrize("way", WAYS, ids=[way.__name__ for way in WAYS])
def test_no_marker_is_found(way: Any, root: Path | str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    turn = Turn(root, is_async=False)
    (tmp_path / "elsewhere").mkdir()
    told: list[str] = []
    try:
        result = way(turn, tmp_path / "elsewhere")
    except TurnJournalError as error:
        told += [str(error), repr(error.details), "".join(traceback.format_exception_only(error))]
    else:
        told += [repr(result)]
        if isinstance(result.cause, TurnJournalError):
            told += [str(result.cause), repr(result.cause.details)]
    told += [record.getMessage() for record in caplog.records]
    stored = turn.stored
    assert '"turn_key"' in stored
    for marker in MARKERS:
        assert not [text for text in told if marker in text], "a message tells"
        assert marker not in stored, "it is stored"
    for path in root.rglob("*") if isinstance(root, Path) else ():
        assert path.is_dir() or path.stat().st_mode & 0o077 == 0, f"{path.name} is open to others"
