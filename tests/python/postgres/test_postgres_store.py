"""The public functions on turns in a database: as on turns in folders, and without a secret in what they say."""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import traceback
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest

from turn_journal_runtime import (
    JournalConflictError,
    JournalNotFoundError,
    JournalStoreError,
    StoreUnavailableError,
    TurnBusyError,
    aio,
    inspect_turn_journal,
    list_turn_journals,
    load_turn_journal,
    prune_turn_journals,
    recoverable_turn_journals,
    turn_heads,
    turn_history,
    turn_journal_path,
    verify_turn_journal,
    write_turn_journal,
)
from turn_journal_runtime.bridge import RuntimeClient, default_client

if TYPE_CHECKING:
    from pathlib import Path

    from tests.python.cli.conftest import Command

PLAIN: Final[dict[str, Any]] = {
    "schema_version": "loopx_turn_journal_v0",
    "goal_id": "g",
    "agent_id": "a",
    "turn_key": "k",
    "plan": {"phases": ["fetch", "store"]},
}
STEPS: Final = [("started", 0), ("in_progress", 1), ("committed", 2)]
SECRET: Final = "s3cret-and-long"  # noqa: S105


def _journal(status: str, completed: int, **more: Any) -> dict[str, Any]:
    return {**PLAIN, "status": status, "completed_phases": ["fetch", "store"][:completed], **more}


def _write_all(root: str | Path) -> str | Path:
    path = turn_journal_path(root, goal_id="g", turn_key="k")
    for status, completed in STEPS:
        write_turn_journal(path, _journal(status, completed))
    return path


def test_a_turn_in_a_database_is_written_read_inspected_listed_and_verified(root: str, tmp_path: Path) -> None:
    path = _write_all(root)
    assert path == f"{root}#goals/g/turns/k.json"
    assert write_turn_journal(path, _journal("committed", 2))["replayed"]
    assert load_turn_journal(path) == _journal("committed", 2)
    assert load_turn_journal(path, at=1) == _journal("started", 0)
    _write_all(tmp_path)
    inspections = [inspect_turn_journal(where, goal_id="g", agent_id="a", turn_key="k") for where in (root, tmp_path)]
    assert inspections[0] == inspections[1]
    for ask in (list_turn_journals, recoverable_turn_journals):
        assert [_undated(turn) for turn in ask(root)] == [_undated(turn) for turn in ask(tmp_path)]
    assert [one["seq"] for one in turn_history(path)] == [1, 2, 3]
    heads = list(turn_heads(root))
    report = verify_turn_journal(root, heads=heads)
    assert (report["ok"], report["turns"], report["transitions"]) == (True, 1, 3)
    assert [turn["turn_key"] for turn in prune_turn_journals(root, older_than=0)] == ["k"]
    assert verify_turn_journal(root, heads=heads)["ok"]
    with pytest.raises(JournalNotFoundError):
        load_turn_journal(turn_journal_path(root, goal_id="g", turn_key="other"))


def _undated(turn: Any) -> Any:
    return {**turn, "updated_at": None}


def test_asyncio_has_the_same(root: str) -> None:
    async def drive() -> Any:
        path = turn_journal_path(root, goal_id="g", turn_key="k")
        await aio.write_turn_journal(path, _journal("started", 0))
        return await aio.load_turn_journal(path)

    assert asyncio.run(drive()) == _journal("started", 0)


def test_two_processes_see_the_same_turn(root: str) -> None:
    path = turn_journal_path(root, goal_id="g", turn_key="k")
    with RuntimeClient() as another:
        write_turn_journal(path, _journal("started", 0), client=another)
        assert load_turn_journal(path) == _journal("started", 0)
        write_turn_journal(path, _journal("in_progress", 1))
        assert load_turn_journal(path, client=another) == _journal("in_progress", 1)
        # What the other one remembers is not the last any more: it decides on what stands.
        with pytest.raises(JournalConflictError):
            write_turn_journal(path, _journal("started", 0), client=another)


def test_a_lease_fences(root: str) -> None:
    path = turn_journal_path(root, goal_id="g", turn_key="k")
    acquire = {"path": path, "holder": {"pid": os.getpid()}, "ttl_ms": 60_000}
    client = default_client()
    first = client.call("turn_lease.acquire", acquire)["number"]
    with pytest.raises(TurnBusyError) as busy:
        client.call("turn_lease.acquire", acquire)
    assert busy.value.details["holder"] == {"pid": os.getpid()}
    client.call("turn_lease.acquire", {**acquire, "take_over": True})
    write = {"path": path, "journal": _journal("started", 0), "lease": first}
    with pytest.raises(JournalConflictError) as lost:
        client.call("turn_journal.write", write)
    assert lost.value.kind == "turn_lease_lost"


def test_a_database_without_tables_says_which_command_makes_them(postgres_url: str) -> None:
    with pytest.raises(JournalStoreError, match="turn-journal store migrate") as missing:
        list(list_turn_journals(postgres_url))
    assert missing.value.kind == "store_schema_missing"


def test_a_database_that_is_away_is_an_error_that_may_be_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURN_JOURNAL_POSTGRES_TIMEOUT", "1")
    with RuntimeClient() as client, pytest.raises(StoreUnavailableError) as away:
        load_turn_journal("postgresql://nobody@127.0.0.1:1/none#goals/g/turns/k.json", client=client)
    assert away.value.is_retryable
    assert (away.value.kind, away.value.details["code"]) == ("store_unavailable", "ECONNREFUSED")
    assert isinstance(pickle.loads(pickle.dumps(away.value)), StoreUnavailableError)  # noqa: S301


@pytest.mark.parametrize("port", ["1", "not-a-port"])
def test_what_is_secret_in_a_url_is_said_nowhere(
    port: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TURN_JOURNAL_POSTGRES_TIMEOUT", "1")
    root = f"postgresql://user:{SECRET}@127.0.0.1:{port}/none?password={SECRET}"
    path = turn_journal_path(root, goal_id="g", turn_key="k")
    with RuntimeClient() as client:
        for call in (
            lambda: write_turn_journal(path, _journal("started", 0), client=client),
            lambda: list(list_turn_journals(root, client=client)),
            lambda: client.call("store.migrate", {"runtime_root": root}),
            lambda: client.call("turn_lease.holder", {"path": path, "odd": 1}),
        ):
            with pytest.raises(Exception) as failed:  # noqa: PT011 (whatever it is, it says nothing)
                call()
            error = failed.value
            said = [str(error), repr(error), json.dumps(getattr(error, "details", None))]
            # The frames of this test have the URL as a local; their text has not.
            said += traceback.format_exception(error)
            assert SECRET not in "".join(said)
    assert SECRET not in "".join(capfd.readouterr())


def test_the_command_line_migrates_reads_and_keeps_the_secret(postgres_url: str, command: Command) -> None:
    with_secret = urlsplit(postgres_url)
    url = with_secret._replace(netloc=with_secret.netloc.replace("@", f":{SECRET}@")).geturl()
    missing = command("list", "-r", url, "-f", "json")
    assert (missing.code, json.loads(missing.err)["error"]["kind"]) == (1, "store_schema_missing")
    made = command("store", "migrate", url, "-f", "json").json
    assert made["turns"]["applied"][0] == "0001_turns"
    assert made["runs"]
    assert made["queue"]
    again = command("store", "migrate", url, "-f", "json").json
    assert (again["turns"]["applied"], again["runs"], again["queue"]) == ([], [], [])
    path = _write_all(url)
    listed = command("list", "-r", url, "-f", "json")
    assert [turn["turn_key"] for turn in listed.json] == ["k"]
    answers = [listed, command("list", "-r", url), command("verify", "-r", url), command("store", "migrate", url)]
    for turn in ("g/k", str(path)):
        answers += [command(name, turn, "-r", url) for name in ("inspect", "history")]
    for answer in answers:
        assert answer.code == 0, answer.err
    for answer in (missing, *answers):
        assert SECRET not in answer.out + answer.err
