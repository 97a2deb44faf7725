"""The commands on turns and their store, against real stores; `conftest.py` holds every JSON answer to its schema."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any

import pytest

from turn_journal_runtime import CallableHost, load_turn_journal, run_turn, turn_journal_path, write_turn_journal
from turn_journal_runtime.bridge import default_client
from turn_journal_runtime.documents import VerifyReport
from turn_journal_runtime.errors import JournalCorruptError, JournalStoreError

if TYPE_CHECKING:
    from pathlib import Path

    from turn_journal_runtime import DueTurn

    from .conftest import Command

PLAIN: dict[str, Any] = {
    "schema_version": "loopx_turn_journal_v0",
    "goal_id": "g",
    "agent_id": "a",
    "plan": {"phases": ["fetch", "store"]},
}


def _write(root: Path, key: str, *steps: tuple[str, int]) -> Path:
    path = turn_journal_path(root, goal_id="g", turn_key=key)
    for status, completed in steps:
        journal = {**PLAIN, "turn_key": key, "status": status, "completed_phases": ["fetch", "store"][:completed]}
        write_turn_journal(path, journal)
    return path


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three turns: over, open, and damaged."""
    _write(tmp_path, "over", ("started", 0), ("in_progress", 1), ("committed", 2))
    _write(tmp_path, "open", ("started", 0), ("in_progress", 1))
    _write(tmp_path, "torn", ("started", 0)).write_text("{", encoding="utf-8")
    return tmp_path


#: How the names of a turn's files end: a shell completes each of them.
FILES = (".json", ".history.jsonl", ".lock", ".lease")


def _die(_: Any) -> dict[str, Any]:
    raise KeyboardInterrupt


@pytest.fixture
def stopped(tmp_path: Path) -> Path:
    """A store with one turn whose driver was interrupted while its host worked."""
    with pytest.raises(KeyboardInterrupt):
        run_turn(tmp_path, goal_id="g", agent_id="a", todo_id="t", host=CallableHost(_die))
    return tmp_path


def test_inspect_says_the_verdict_first_and_fits_the_schema(command: Command, root: Path) -> None:
    for key, verdict in (("over", "OVER"), ("open", "MAY GO ON from store")):
        inspection = command("inspect", f"g/{key}", "-r", root, "-a", "a", "-f", "json").json
        assert inspection["ok"]
        shown = command("inspect", f"g/{key}", "-r", root)
        assert (shown.code, shown.out.startswith(verdict)) == (0, True)
        assert shown.out.index("Why") < shown.out.index("What to do")


def test_a_blocked_replay_is_an_answer_and_names_why(command: Command, root: Path) -> None:
    shown = command("inspect", "g/over", "-r", root, "-a", "somebody")
    assert shown.code == 0
    assert shown.out.startswith("BLOCKED")
    assert "owner_mismatch" in shown.out
    assert "Leave it to its owner" in shown.out


def test_a_turn_is_named_by_path_by_key_and_by_the_beginning_of_its_hash(command: Command, stopped: Path) -> None:
    (turn,) = command("list", "-r", stopped, "-f", "json").json
    key = turn["turn_key"]
    path = turn_journal_path(stopped, goal_id="g", turn_key=key)
    answers = [
        command("inspect", f"g/{key}", "-r", stopped, "-f", "json").json,
        command("inspect", f"g/{key[:19]}", "-r", stopped, "-f", "json").json,
        command("inspect", f"g/{key[7:15]}", "-r", stopped, "-f", "json").json,
        command("inspect", f"g/{key[7:]}", "-r", stopped, "-f", "json").json,
        *(command("inspect", path.with_name(path.stem + end), "-f", "json").json for end in FILES),
    ]
    assert answers[0]["recovery_decision"]["can_continue"] is True
    assert answers == [answers[0]] * len(answers)
    assert command("inspect", "g/sha256:000000", "-r", stopped).code == 3
    assert command("inspect", "g/000000", "-r", stopped).code == 3
    # A key that is spelt out is no short form of another.
    _write(stopped, key[7:15], ("started", 0))
    assert command("show", f"g/{key[7:15]}", "-r", stopped, "-f", "json").json["turn_key"] == key[7:15]


def test_list_shows_damaged_turns_as_damaged(command: Command, root: Path) -> None:
    turns = command("list", "-r", root, "-f", "json").json
    assert {turn["turn_key"]: turn["damage"] and turn["damage"]["kind"] for turn in turns} == {
        "open": None,
        "over": None,
        "torn": "journal_corrupt",
    }
    assert "damaged" in command("list", "-r", root).out
    assert [turn["turn_key"] for turn in command("list", "-r", root, "-s", "committed", "-f", "json").json] == [
        "over",
        "torn",
    ]


def test_watching_needs_a_terminal(command: Command, root: Path) -> None:
    assert command("list", "-r", root, "--watch").code == 2


def test_history_is_a_timeline(command: Command, root: Path) -> None:
    transitions = command("history", "g/over", "-r", root, "-f", "json").json
    assert [transition["status"] for transition in transitions] == ["started", "in_progress", "committed"]
    second = command("history", "g/over", "-r", root, "--at", "2", "-f", "json").json
    assert (second["status"], second["completed_phases"]) == ("in_progress", ["fetch"])


def test_a_turn_is_shown_as_it_is_now(command: Command, root: Path) -> None:
    journal = load_turn_journal(turn_journal_path(root, goal_id="g", turn_key="open"))
    assert command("show", "g/open", "-r", root, "-f", "json").json == journal
    assert json.loads(command("show", "g/open", "-r", root).out) == journal


def test_a_journal_in_markdown_is_a_block_of_code(command: Command, root: Path) -> None:
    shown = command("history", "g/over", "-r", root, "--at", "2", "-f", "markdown").out
    first, *journal, last = shown.splitlines()
    assert (first, last) == ("```json", "```")
    assert json.loads("\n".join(journal)) == command("history", "g/over", "-r", root, "--at", "2", "-f", "json").json


def test_history_says_what_each_transition_changed(command: Command, root: Path) -> None:
    (change,) = command("history", "g/over", "-r", root, "--diff", "--at", "2", "-f", "json").json
    assert change["changes"] == [
        {"path": "completed_phases[0]", "after": "fetch"},
        {"path": "status", "before": "started", "after": "in_progress"},
    ]
    shown = command("history", "g/over", "-r", root, "--diff").out
    assert '~ status: "in_progress" → "committed"' in shown


def test_verify_finds_what_was_changed_and_exits_with_4(command: Command, tmp_path: Path) -> None:
    path = _write(tmp_path, "over", ("started", 0), ("in_progress", 1), ("committed", 2))
    clean = command("verify", "-r", tmp_path, "-f", "json")
    assert clean.code == 0
    assert clean.json.keys() == VerifyReport.__annotations__.keys()
    assert clean.json["transitions"] == 3
    history = path.with_name("over.history.jsonl")
    history.write_bytes(history.read_bytes().replace(b'"in_progress"', b'"in_Progress"', 1))
    before = history.read_bytes()
    found = command("verify", "g/over", "-r", tmp_path, "-f", "json")
    assert (found.code, found.json["ok"], found.json["problems"][0]["problem"]["line"]) == (4, False, 2)
    assert command("verify", "-r", tmp_path).out.startswith("Damaged: 1 of 1 turn with")
    assert history.read_bytes() == before


def test_exported_heads_show_that_an_end_was_cut(command: Command, tmp_path: Path) -> None:
    path = _write(tmp_path, "over", ("started", 0), ("in_progress", 1))
    history = path.with_name("over.history.jsonl")
    early = (path.read_bytes(), history.read_bytes())
    _write(tmp_path, "over", ("committed", 2))
    heads = tmp_path / "heads.json"
    exported = command("heads", "-r", tmp_path)
    heads.write_text(exported.out, encoding="utf-8")
    assert command("verify", "-r", tmp_path, "--heads", heads).code == 0
    path.write_bytes(early[0])
    history.write_bytes(early[1])
    assert command("verify", "-r", tmp_path).code == 0
    cut = command("verify", "-r", tmp_path, "--heads", heads, "-f", "json")
    assert (cut.code, cut.json["problems"][0]["turn_key"]) == (4, "over")


def test_repair_says_first_and_cuts_only_when_told(command: Command, tmp_path: Path) -> None:
    path = _write(tmp_path, "over", ("started", 0), ("in_progress", 1), ("committed", 2))
    history = path.with_name("over.history.jsonl")
    history.write_bytes(history.read_bytes().replace(b'"in_progress"', b'"in_Progress"'))
    before = history.read_bytes()
    # A command is a new process: its core has not seen this history before.
    default_client().close()
    said = command("repair", "g/over", "-r", tmp_path, "-f", "json")
    assert (said.code, said.json["done"], history.read_bytes() == before) == (0, False, True)
    done = command("repair", "g/over", "-r", tmp_path, "--yes", "-f", "json")
    assert done.code == 0, done.err
    assert done.json["done"]
    assert "to repair" in command("repair", "g/over", "-r", tmp_path, "--yes").out
    assert command("verify", "-r", tmp_path).code == 0


def test_prune_says_first_and_leaves_tombstones_that_inspect_the_same(command: Command, tmp_path: Path) -> None:
    path = _write(tmp_path, "over", ("started", 0), ("in_progress", 1), ("committed", 2))
    _write(tmp_path, "open", ("started", 0))
    before, bytes_before = command("inspect", "g/over", "-r", tmp_path, "-a", "a", "-f", "json").json, path.read_bytes()
    said = command("prune", "--older-than", "0s", "-r", tmp_path, "-f", "json")
    assert ([turn["turn_key"] for turn in said.json["turns"]], path.read_bytes()) == (["over"], bytes_before)
    shown = command("prune", "--older-than", "0s", "-r", tmp_path).out.splitlines()
    assert (shown[0][:22], shown[-1]) == ("To be pruned: 1 turn. ", "g/over")
    command("prune", "--older-than", "0s", "-r", tmp_path, "--yes", "-f", "json")
    assert command("inspect", "g/over", "-r", tmp_path, "-a", "a", "-f", "json").json == before
    assert command("prune", "--older-than", "0s", "-r", tmp_path, "--yes", "-f", "json").json["turns"] == []


def test_what_a_tombstone_changed_is_not_known(command: Command, tmp_path: Path) -> None:
    _write(tmp_path, "over", ("started", 0), ("in_progress", 1), ("committed", 2))
    command("prune", "--older-than", "0s", "--yes", "-r", tmp_path)
    (one,) = command("history", "g/over", "-r", tmp_path, "--diff", "-f", "json").json
    assert (one["seq"], one["changes"]) == (4, None)
    assert "what was before was pruned" in command("history", "g/over", "-r", tmp_path, "--diff").out


def test_recover_says_what_would_happen_and_changes_nothing(command: Command, stopped: Path) -> None:
    (turn,) = command("recover", "-r", stopped, "-f", "json").json
    assert (turn["turn"]["agent_id"], turn["waits"], turn["outcome"]) == ("a", None, None)
    shown = command("recover", "-r", stopped).out
    assert "goes on from host_execute; the host is started again" in shown
    assert command("recover", "-r", stopped, "-f", "json").json == [turn]


driven: list[DueTurn] = []


def drive(due: DueTurn) -> Any:
    """The entry point of these tests."""
    driven.append(due)
    return run_turn(
        due.runtime_root,
        **due.names,
        host=CallableHost(lambda _: {"result_kind": "validated_progress"}),
    )


async def drive_async(due: DueTurn) -> Any:
    """The same, as a coroutine function."""
    return drive(due)


def leave(_: Any) -> None:
    """An entry point that ends its process."""
    sys.exit(3)


def broken(_: Any) -> None:
    """An entry point that fails."""
    raise ValueError("broken")


def test_recover_drives_a_turn_to_its_end(command: Command, stopped: Path) -> None:
    driven.clear()
    (turn,) = command("recover", "-r", stopped, "-e", f"{__name__}:drive", "--yes", "-f", "json").json
    assert turn["outcome"] == "committed"
    assert [(due.todo_id, due.agent_id, due.resume_from) for due in driven] == [("t", "a", "host_execute")]
    path = turn_journal_path(stopped, goal_id="g", turn_key=turn["turn"]["turn_key"])
    assert load_turn_journal(path)["status"] == "committed"
    assert command("recover", "-r", stopped, "-f", "json").json == []


def test_an_entry_point_that_fails_is_reported(command: Command, stopped: Path) -> None:
    outcome = command("recover", "-r", stopped, "-e", f"{__name__}:broken", "--yes", "-f", "json")
    assert (outcome.code, outcome.json[0]["outcome"]) == (1, "failed: ValueError: broken")


def test_an_async_entry_point_drives_as_a_sync_one_does(command: Command, stopped: Path) -> None:
    (turn,) = command("recover", "-r", stopped, "-e", f"{__name__}:drive_async", "--yes", "-f", "json").json
    assert turn["outcome"] == "committed"
    assert command("recover", "-r", stopped, "-f", "json").json == []


def test_an_entry_point_that_exits_ends_its_turn_and_not_the_command(command: Command, stopped: Path) -> None:
    outcome = command("recover", "-r", stopped, "-e", f"{__name__}:leave", "--yes", "-f", "json")
    assert (outcome.code, outcome.json[0]["outcome"]) == (1, "failed: SystemExit: 3")


@pytest.mark.parametrize("entry", ["no_such_module:f", "json:no_such_name", "json:__doc__", "nobody"])
def test_an_entry_point_that_is_none_is_a_usage_error(command: Command, stopped: Path, entry: str) -> None:
    assert command("recover", "-r", stopped, "-e", entry, "--yes").code == 2


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("inspect", "g/none"), 3),
        (("inspect", "g/torn"), 4),
        (("inspect", "no-slash"), 2),
        (("inspect", "g/../escape"), 2),
        (("inspect", "../x"), 2),
        (("show", "g/none"), 3),
        (("show", "g/torn"), 4),
        (("history", "g/none"), 3),
        (("history", "g/over", "--at", "99"), 3),
        (("history", "g/over", "--at", "99", "--diff"), 3),
        (("repair", "g/none"), 3),
        (("repair", "g/none", "--yes"), 3),
        (("recover", "g/none"), 3),
        (("prune",), 2),
        (("prune", "--older-than", "soon"), 2),
        (("verify", "--heads", "/no/such/file"), 3),
        (("verify", "--heads", "pyproject.toml"), 2),
        (("list", "-f", "yaml"), 2),
        (("verify", "g/none"), 3),
        (("verify", "--goal", "nobody"), 3),
        (("heads", "--goal", "nobody"), 3),
        (("verify", "g/torn"), 4),
        (("recover", "g/over"), 1),
        (("recover", "--resolver", "json"), 2),
        (("nonsense",), 2),
    ],
)
def test_mistakes_have_their_exit_code_and_no_trace(
    command: Command, root: Path, arguments: tuple[str, ...], code: int
) -> None:
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*.json*")}
    outcome = command(*arguments, *(() if arguments[0] == "nonsense" else ("-r", root)))
    assert outcome.code == code, outcome.err
    assert "Traceback" not in outcome.err + outcome.out
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*.json*")} == before


@pytest.mark.parametrize("heads", ["{}", "[1]", '[{"goal_id": "g"}]', '[{"goal_id": 1, "turn_key": "t"}]', "no json"])
def test_heads_that_are_none_are_a_mistake_that_is_named(command: Command, root: Path, heads: str) -> None:
    file = root / "heads.json"
    file.write_text(heads, encoding="utf-8")
    outcome = command("verify", "-r", root, "--heads", file)
    assert outcome.code == 2
    assert "no export of `turn-journal heads" in " ".join(outcome.err.split())


def test_an_error_of_a_turn_says_what_to_do_next(command: Command, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert f"`turn-journal repair g/torn --root {root}`" in command("inspect", "g/torn", "-r", root).err
    monkeypatch.setenv("TURN_JOURNAL_ROOT", str(root))
    assert "`turn-journal repair g/torn`" in command("inspect", "g/torn").err
    assert "`turn-journal list`" in command("inspect", "g/none", "-r", root).err
    assert "`turn-journal repair" not in command("inspect", "g/torn", "-r", root, "-f", "json").err


def test_what_an_error_says_to_type_can_be_typed_and_repeats_no_password(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def damaged(*_: Any, **__: Any) -> Any:
        raise JournalCorruptError("It is damaged.")

    monkeypatch.setattr("turn_journal_runtime.cli.turns.load_turn_journal", damaged)
    asked = command("inspect", "my goal/t", "-r", tmp_path)
    assert f"`turn-journal repair 'my goal/t' --root {tmp_path}`" in asked.err
    refused = command("inspect", "postgresql://nobody:hush@host/x#goals/g/turns/t.json").err
    assert ("hush" in refused, "`turn-journal repair TURN`" in refused) == (False, True)


@pytest.mark.parametrize("arguments", [("list",), ("recover",), ("prune", "--older-than", "1d")])
def test_that_there_are_no_turns_is_said_and_not_that_all_are_well(
    command: Command, root: Path, tmp_path: Path, arguments: tuple[str, ...]
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "fresh" / "goals").mkdir(parents=True)
    assert command(*arguments, "-r", tmp_path / "empty").out.endswith("empty, which has no goals/.\n")
    assert command(*arguments, "-r", tmp_path / "fresh").out.endswith("There are no turns in " + f"{tmp_path}/fresh.\n")
    assert command(*arguments, "-r", root, "-g", "typo").out == f"There are no turns of goal typo in {root}.\n"
    assert "no turns" not in command(*arguments, "-r", root, "-g", "g").out
    assert command(*arguments, "-r", root, "-g", "typo").code == 0


def test_a_root_that_is_not_there_is_not_said_to_have_turns(command: Command, tmp_path: Path) -> None:
    refused = command("inspect", "g/t", "-r", tmp_path / "none")
    assert (refused.code, "There is no folder" in refused.err, "`turn-journal list`" in refused.err) == (3, True, False)


def test_a_server_that_does_not_answer_is_to_be_looked_for(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURN_JOURNAL_POSTGRES_TIMEOUT", "0.3")
    default_client().close()  # how long it tries is settled when the core starts
    outcome = command("list", "-r", "postgresql://nobody:hush@127.0.0.1:1/none")
    default_client().close()
    assert (outcome.code, "hush" in outcome.err) == (1, False)
    assert "See that the server runs" in outcome.err


def test_an_error_names_the_file_that_it_is_about(
    command: Command, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise JournalStoreError("It could not be read.", kind="store_io_failed", details={"path": str(root / "x.json")})

    monkeypatch.setattr("turn_journal_runtime.cli.verification.turn_heads", refuse)
    assert (
        command("heads", "-r", root, "-f", "table").err.strip().endswith(f"It could not be read. ({root / 'x.json'})")
    )


def test_what_is_blocked_is_not_told_that_nothing_is_wrong(command: Command, root: Path) -> None:
    shown = command("inspect", "g/open", "-r", root, "-a", "somebody").out
    assert "owner_mismatch" in shown
    assert "Nothing is wrong" not in shown


def test_a_turn_that_may_not_be_read_is_not_called_damaged(
    command: Command, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: Any, **__: Any) -> Any:
        yield {
            "goal_id": "g",
            "turn_key": "t",
            "damage": {"kind": "store_io_failed", "message": "EACCES"},
            "updated_at": None,
        }

    # Who runs the tests may be allowed to read anything.
    monkeypatch.setattr("turn_journal_runtime.cli.listing.list_turn_journals", refused)
    assert command("list", "-r", root).out.splitlines()[1].split() == ["g/t", "unreadable", "store_io_failed"]


def test_the_root_comes_from_the_option_the_variable_or_the_folder(
    command: Command, root: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path_factory.mktemp("elsewhere"))
    assert command("list").code == 2
    assert command("list", "-r", "missing").code == 3
    monkeypatch.setenv("TURN_JOURNAL_ROOT", str(root))
    assert len(command("list", "-f", "json").json) == 3
    monkeypatch.delenv("TURN_JOURNAL_ROOT")
    monkeypatch.chdir(root)
    assert len(command("list", "-f", "json").json) == 3


def test_a_damaged_turn_does_not_keep_the_others_from_being_listed_as_markdown(command: Command, root: Path) -> None:
    lines = command("list", "-r", root, "-f", "markdown").out.splitlines()
    assert lines[:2] == ["| turn | status | completed | updated |", "| --- | --- | --- | --- |"]
    assert len(lines) == 5


def test_the_doctor_finds_that_everything_works_and_leaves_nothing(command: Command, tmp_path: Path) -> None:
    outcome = command("doctor", "-r", tmp_path, "-f", "json")
    assert outcome.code == 0, outcome.out
    assert {check["check"] for check in outcome.json["checks"]} >= {"Node", "core", "store", "locks", "disk"}
    assert os.listdir(tmp_path) == []


def test_the_doctor_says_that_a_folder_cannot_be_written_to(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> str:
        raise PermissionError(13, "Permission denied", str(tmp_path))

    # Who runs the tests may be allowed to write anywhere.
    monkeypatch.setattr("tempfile.mkdtemp", refuse)
    outcome = command("doctor", "-r", tmp_path, "-f", "json")
    found = {check["check"]: check for check in outcome.json["checks"]}
    assert (outcome.code, found["folder"]["outcome"]) == (1, "failed")
    assert found["folder"]["found"] == f"{tmp_path} cannot be written to: Permission denied"


def test_a_file_that_cannot_be_read_is_said_without_a_trace(
    command: Command, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise PermissionError(13, "Permission denied", "goals")

    monkeypatch.setattr("turn_journal_runtime.cli.verification.count_turns", refuse)
    outcome = command("verify", "-r", root, "-f", "json")
    assert outcome.code == 1
    assert json.loads(outcome.err)["error"] == {
        "kind": "io_failed",
        "message": "goals: Permission denied",
        "details": {},
    }


def test_the_doctor_says_what_is_missing(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURN_JOURNAL_NODE", "/no/such/node")
    outcome = command("doctor", "-f", "json")
    found = {check["check"]: check for check in outcome.json["checks"]}
    assert (outcome.code, found["Node"]["outcome"], found["core"]["outcome"]) == (1, "failed", "failed")
    assert "TURN_JOURNAL_NODE" in found["Node"]["found"]


@pytest.mark.process
def test_the_demo_proves_that_nothing_ran_twice(command: Command) -> None:
    outcome = command("demo", "-f", "json")
    assert (outcome.code, outcome.json["ok"], outcome.json["model_calls"]) == (0, True, 1)
