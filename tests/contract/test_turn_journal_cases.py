"""The contract cases over the façade and the real process. ts/test/journal/Contract.test.ts runs the same ones."""

from __future__ import annotations

import hashlib
import json
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any

import pytest
import rfc8785
from tests.contract.cases import ALL, NAMED, Case, filled_in, journal_of, operation_id

from turn_journal_runtime.errors import InvalidJournalError, JournalCorruptError, TurnJournalError
from turn_journal_runtime.journal import (
    interpret_turn_journal_projection,
    load_turn_journal,
    turn_journal_path,
    write_turn_journal,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from turn_journal_runtime.bridge import RuntimeClient


def run_inspect(case: Case, root: Path, client: RuntimeClient) -> None:
    asked = case.question | case.request
    found = interpret_turn_journal_projection(
        journal_of(asked.pop("journal")),
        goal_id=asked.pop("goal_id"),
        agent_id=asked.pop("agent_id"),
        turn_key=asked.pop("turn_key"),
        retry_failed=asked.pop("retry_failed", False),
        session_recovery_check=asked.pop("session_recovery_check", None),
        client=client,
    )
    assert asked == {}
    assert found == filled_in(case.expected, found)


def run_write(case: Case, root: Path, client: RuntimeClient) -> None:
    writes = case.request["writes"]
    path = _path_of(case.request.get("path"), journal_of(writes[0]["journal"]), root)
    if "stored" in case.request:
        put(path, json.dumps(journal_of(case.request["stored"])))
    assert [_outcome(path, client, **write) for write in writes] == case.expected


def _outcome(path: Path, client: RuntimeClient, journal: Any, **expectations: Any) -> Any:
    journal = journal_of(journal)
    previous = expectations.get("expected_previous")
    if isinstance(previous, dict):
        expectations["expected_previous"] = operation_id(journal_of(previous["operation_id_of"]))
    before = path.read_bytes() if path.exists() else None
    try:
        result = write_turn_journal(path, journal, **expectations, client=client)
    except TurnJournalError as error:
        if (path.read_bytes() if path.exists() else None) != before:
            pytest.fail(f"refused with {error.kind}, and changed what is stored")
        return {"refused": error.kind}
    assert result["operation_id"] == operation_id(journal)
    assert load_turn_journal(path, client=client) == journal
    return {key: value for key, value in result.items() if key in ("appended", "replayed", "effect_id")}


def _path_of(path: str | None, journal: Any, root: Path) -> Path:
    if path is not None:
        return root / path
    return turn_journal_path(root, goal_id=journal["goal_id"], turn_key=journal["turn_key"])


def put(path: Path, text: str) -> None:
    """Stores a journal the way another program would: without a history."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, "utf-8")


def run_address(case: Case, root: Path, client: RuntimeClient) -> None:
    if "path" in case.expected:
        assert turn_journal_path(root, **case.request).relative_to(root).as_posix() == case.expected["path"]
        return
    with pytest.raises(InvalidJournalError) as refused:
        turn_journal_path(root, **case.request)
    assert (refused.value.kind, refused.value.details["field"]) == ("invalid_request", case.expected["refused"])
    # The core has the same rules, and refuses what gets past these.
    with pytest.raises(InvalidJournalError) as refused:
        client.call("turn_journal.inspect_stored", {"runtime_root": str(root), "agent_id": "coder", **case.request})
    assert refused.value.kind == "invalid_request"


def run_path(case: Case, root: Path, client: RuntimeClient) -> None:
    """The core shows what it takes a path for by the turn that it lets in there."""
    path = root.joinpath(*PurePosixPath(case.request["path"]).parts)
    plain = journal_of("plain")
    stranger = plain | {"goal_id": "stranger", "turn_key": "stranger"}
    if not path.name.endswith(".json"):
        with pytest.raises(InvalidJournalError) as refused:
            write_turn_journal(path, stranger, client=client)
        assert (refused.value.kind, refused.value.details["field"]) == ("invalid_request", "path")
        return
    if case.expected is None:
        write_turn_journal(path, stranger, client=client)
        return
    for field in ("goal_id", "turn_key"):
        with pytest.raises(InvalidJournalError) as refused:
            write_turn_journal(path, plain | case.expected | {field: "stranger"}, client=client)
        assert (refused.value.kind, refused.value.details["field"]) == ("journal_path_mismatch", field)
    write_turn_journal(path, plain | case.expected, client=client)
    assert path == turn_journal_path(root.joinpath(*path.relative_to(root).parts[:-4]), **case.expected)


def run_operation_id(case: Case, root: Path, client: RuntimeClient) -> None:
    value = case.request["value"]
    assert {"canonical": rfc8785.dumps(value).decode(), "operation_id": operation_id(value)} == case.expected
    # The last key of the plain journal in canonical order is turn_key: the value's own form closes the journal's.
    plain = journal_of("plain")
    canonical = rfc8785.dumps(plain)[:-1] + f',"x":{case.expected["canonical"]}}}'.encode()
    path = turn_journal_path(root, goal_id=plain["goal_id"], turn_key=plain["turn_key"])
    written = write_turn_journal(path, plain | {"x": value}, client=client)
    assert written["operation_id"] == f"sha256:{hashlib.sha256(canonical).hexdigest()}"


def run_json(case: Case, root: Path, client: RuntimeClient) -> None:
    plain = journal_of("plain")
    path = turn_journal_path(root, goal_id=plain["goal_id"], turn_key=plain["turn_key"])
    put(path, f'{json.dumps(plain)[:-1]},"x":{case.request["text"]}}}')
    if "refused" in case.expected:
        with pytest.raises(JournalCorruptError):
            load_turn_journal(path, client=client)
    else:
        found = load_turn_journal(path, client=client)["x"]
        assert found == case.expected["value"]
        assert type(found) is type(case.expected["value"]) or found == int(found)


RUNNERS: dict[str, Callable[[Case, Path, RuntimeClient], None]] = {
    "inspect": run_inspect,
    "write": run_write,
    "address": run_address,
    "path": run_path,
    "operation_id": run_operation_id,
    "json": run_json,
}


@pytest.mark.parametrize("case", ALL, ids=str)
def test_case(case: Case, tmp_path: Path, client: RuntimeClient) -> None:
    RUNNERS[case.method](case, tmp_path, client)


@pytest.mark.parametrize("name", NAMED)
def test_named_journal(name: str) -> None:
    assert isinstance(journal_of(name), dict)
