"""What a person does with runs: list, look, settle, approve; and what the answers exit with."""

from __future__ import annotations

import re
import shlex
import shutil
from typing import TYPE_CHECKING

import pytest

from turn_journal_runtime import CallableHost, run_turn
from turn_journal_runtime.errors import InvalidJournalError, RunNotFoundError, TurnSuspended, UncertainEffectError
from turn_journal_runtime.run_journal import DurableRun, JournalEvent, RunJournal

if TYPE_CHECKING:
    from pathlib import Path

    from .conftest import Command


def _pay(run: DurableRun, paid: list[int]) -> int:
    """The loop of an agent: pay, ask, report."""

    def pay(amount: int) -> dict[str, int]:
        paid.append(amount)
        return {"paid": amount}

    with run:
        run.tool("pay", {"amount": 5}, pay)
        allowed = run.approval("Publish?", {"page": "index"})
        return 1 if allowed else 0


@pytest.fixture
def db(tmp_path: Path) -> Path:
    """A journal with a finished run, and one that died while it paid."""
    path = tmp_path / "runs.db"
    with RunJournal(path) as journal:
        with DurableRun(journal, "finished", agent="a", task="t") as run:
            run.tool("look", {"at": "x"}, lambda at: at.upper())
        journal.open_run("died", agent="b")
        call = {"name": "pay", "args": {"amount": 5}, "idempotency_key": "died:0:pay"}
        journal.append(JournalEvent("died", 0, "tool_call", call))
    return path


def test_runs_tells_interrupted_runs_apart(command: Command, db: Path) -> None:
    found = command("runs", "--db", db, "-f", "json").json
    assert [(run["run_id"], run["status"], run["interrupted"], run["events"]) for run in found] == [
        ("finished", "done", False, 2),
        ("died", "running", True, 1),
    ]
    assert [run["run_id"] for run in command("runs", "--db", db, "--interrupted", "-f", "json").json] == ["died"]


def test_a_run_that_is_driven_is_not_interrupted(command: Command, db: Path) -> None:
    with RunJournal(db) as journal:
        run = DurableRun(journal, "died")
        run.start()
        assert command("runs", "--db", db, "--interrupted", "-f", "json").json == []
        run.release()


def test_run_show_says_first_what_waits_for_a_person(command: Command, db: Path) -> None:
    shown = command("run", "show", "died", "--db", db).out
    assert shown.index("turn-journal settle died 0") < shown.index("tool_call")
    assert "died:0:pay" in shown


def test_until_when_a_run_sleeps(command: Command, tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    with RunJournal(db) as journal, DurableRun(journal, "r") as run, pytest.raises(TurnSuspended):
        run.sleep_until(32503680000, suspend=True)
    (listed,) = command("runs", "--db", db, "--interrupted", "-f", "json").json
    assert (listed["waits_for"], listed["due_at"]) == ([], 32503680000)
    assert "3000-01-01 00:00:00" in command("runs", "--db", db).out
    assert command("runs", "--db", db, "--waiting", "-f", "json").json == []
    shown = command("run", "show", "r", "--db", db).out
    assert "r · sleeps until 3000-01-01 00:00:00" in shown
    assert "sleep_until  until 3000-01-01 00:00:00" in shown
    sleeps = command("run", "show", "r", "--db", db, "-f", "json").json["pending_sleeps"]
    assert sleeps == [{"run_id": "r", "seq": 0, "until": 32503680000}]


def test_run_show_tells_what_failed_and_an_outcome_once(command: Command, tmp_path: Path) -> None:
    def late() -> str:
        raise TimeoutError

    db = tmp_path / "runs.db"
    with RunJournal(db) as journal, DurableRun(journal, "r") as run:
        with pytest.raises(KeyError):
            run.tool("look", {}, lambda: dict[str, str]()["nowhere"])
        with pytest.raises(TimeoutError):
            run.model(late, request={"prompt": "Where?"})
        run.model(lambda: "went on", request={"prompt": "What now?"})
    shown = command("run", "show", "r", "--db", db)
    lines = [re.split(r"\s{2,}", line.strip())[:3] for line in shown.out.splitlines()]
    assert ["0", "failed", "KeyError: 'nowhere'"] in lines
    assert (
        lines.index(["0", "failed", "KeyError: 'nowhere'"])
        == [line[:2] for line in lines].index(["0", "tool_call"]) + 1
    )
    assert ["1", "failed", "TimeoutError"] in lines
    assert shown.out.startswith("r · done\n")
    failure, _ = command("run", "show", "r", "--db", db, "-f", "json").json["failures"]
    assert (failure["seq"], failure["kind"], failure["error_type"]) == (0, "tool_call", "KeyError")


def test_a_run_goes_on_after_settle_and_approve(command: Command, tmp_path: Path) -> None:
    db, paid = tmp_path / "runs.db", list[int]()
    with RunJournal(db) as journal:
        journal.open_run("r")
        with pytest.raises(TurnSuspended):
            _pay(DurableRun(journal, "r"), paid)
        assert paid == [5]
        assert command("approve", "r", "1", "--by", "ada", "--db", db).code == 0
        assert _pay(DurableRun(journal, "r"), paid) == 1
        assert paid == [5]


def test_a_settled_step_is_not_run_again(command: Command, db: Path) -> None:
    paid: list[int] = []
    with RunJournal(db) as journal:
        with pytest.raises(UncertainEffectError):
            _pay(DurableRun(journal, "died"), paid)
        assert command("settle", "died", "0", "--result", '{"paid": 5}', "--db", db).code == 0
        with pytest.raises(TurnSuspended):
            _pay(DurableRun(journal, "died"), paid)
    assert paid == []


def test_what_a_drive_that_stops_says_to_type_can_be_typed(command: Command, tmp_path: Path) -> None:
    db = tmp_path / "my runs.db"
    with RunJournal(db) as journal:
        journal.open_run("trip one")
        call = {"name": "pay", "args": {"amount": 5}, "idempotency_key": "trip one:0:pay"}
        journal.append(JournalEvent("trip one", 0, "tool_call", call))
        for stopped, more in ((UncertainEffectError, ["--result", "5"]), (TurnSuspended, ["--by", "ada"])):
            with pytest.raises(stopped) as raised:
                _pay(DurableRun(journal, "trip one"), [])
            (typed, *_) = re.findall(r"`turn-journal ([^`]+?)(?: --result JSON)?`", str(raised.value))
            assert command(*shlex.split(typed), *more).code == 0
        assert _pay(DurableRun(journal, "trip one"), []) == 1
    with RunJournal(":memory:") as journal, pytest.raises(TurnSuspended) as raised:
        _pay(DurableRun(journal, "r"), [])
    assert "--db" not in str(raised.value)


def test_a_run_that_is_not_there_is_told_from_a_step_that_is_not(db: Path) -> None:
    with RunJournal(db) as journal:
        for run, told in (("nobody", "No run 'nobody' is recorded"), ("died", "step 9; `turn-journal run show`")):
            with pytest.raises(RunNotFoundError, match=told):
                journal.settle(run, 9, absent=True)
            with pytest.raises(RunNotFoundError, match=told):
                journal.approve(run, 9, True, by="ada")


def test_settling_otherwise_is_refused_and_changes_nothing(command: Command, db: Path) -> None:
    assert command("settle", "died", "0", "--result", "1", "--db", db).code == 0
    refused = command("settle", "died", "0", "--result", "2", "--db", db)
    assert (refused.code, "never overwritten" in refused.err) == (1, True)
    assert command("settle", "died", "0", "--result", "1", "--db", db).code == 0


def test_what_is_no_json_is_a_word_and_no_number(command: Command, db: Path) -> None:
    assert command("settle", "died", "0", "--result", "[NaN]", "--db", db).code == 2
    assert command("settle", "died", "0", "--result", "Infinity", "--db", db).code == 0
    with RunJournal(db) as journal:
        assert [event.payload for event in journal.events("died")][-1] == {"result": "Infinity"}


def test_denying_is_a_decision(command: Command, db: Path) -> None:
    with RunJournal(db) as journal:
        command("settle", "died", "0", "--absent", "--db", db)
        with pytest.raises(TurnSuspended):
            _pay(DurableRun(journal, "died"), [])
        assert command("approve", "died", "1", "--deny", "--by", "ada", "--db", db).code == 0
        assert _pay(DurableRun(journal, "died"), []) == 0


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("run", "show", "nobody"), 3),
        (("settle", "nobody", "0", "--absent"), 3),
        (("approve", "nobody", "0"), 3),
        (("settle", "died", "7", "--absent"), 3),
        (("approve", "died", "0"), 3),
        (("settle", "died", "0"), 2),
        (("settle", "died", "0", "--absent", "--result", "1"), 2),
        (("settle", "died", "0", "--result", "{half"), 2),
        (("settle", "died", "nought", "--absent"), 2),
        (("approve", "died", "0", "--deny", "--decision", "1"), 2),
    ],
)
def test_mistakes_have_their_exit_code_and_no_trace(
    command: Command, db: Path, arguments: tuple[str, ...], code: int
) -> None:
    before = db.read_bytes()
    outcome = command(*arguments, "--db", db)
    assert outcome.code == code
    assert "Traceback" not in outcome.err
    assert outcome.out == ""
    assert db.read_bytes() == before


def test_a_run_inside_a_turn_goes_by_the_short_name_that_tables_show(command: Command, tmp_path: Path) -> None:
    db, turn = tmp_path / "runs.db", f"sha256:{'ab12' * 16}"
    with RunJournal(db) as journal:
        for run_id in (turn, f"{turn}.1", f"sha256:{'cd34' * 16}"):
            journal.open_run(run_id)
            call = {"name": "pay", "args": {}, "idempotency_key": f"{run_id}:0:pay"}
            journal.append(JournalEvent(run_id, 0, "tool_call", call))
        shown = command("runs", "--db", db).out
        assert [line.split()[0] for line in shown.splitlines()[1:]] == [
            "sha256:ab12ab12ab12",
            "sha256:ab12ab12ab12.1",
            "sha256:cd34cd34cd34",
        ]
        hint = "turn-journal settle sha256:ab12ab12ab12.1 0 --db "
        assert hint in command("run", "show", "sha256:ab12ab12ab12.1", "--db", db).out
        assert command("settle", "sha256:ab12ab12ab12.1", "0", "--absent", "--db", db, "-f", "json").json["run_id"] == (
            f"{turn}.1"
        )
        journal.open_run(f"sha256:ab12ab12ab12{'9' * 52}")
        assert command("run", "show", "sha256:ab12ab12ab12", "--db", db).code == 2
        assert command("run", "show", turn, "--db", db).code == 0


def test_a_user_without_a_name_says_who_decides(command: Command, db: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody() -> str:
        raise KeyError("getpwuid(): uid not found: 12345")

    monkeypatch.setattr("getpass.getuser", nobody)
    outcome = command("approve", "died", "0", "--db", db)
    assert (outcome.code, "say who decides" in outcome.err) == (2, True)


def test_a_tool_that_has_run_and_whose_result_could_not_be_recorded_is_told_as_such(
    command: Command, tmp_path: Path
) -> None:
    endless: list[object] = []
    endless.append(endless)
    with (
        RunJournal(tmp_path / "runs.db") as journal,
        pytest.raises(InvalidJournalError),
        DurableRun(journal, "r") as run,
    ):
        run.tool("pay", {}, lambda: endless)
    shown = command("run", "show", "r", "--db", tmp_path / "runs.db").out
    assert "The tool at step 0 of run 'r' has run and its result cannot be recorded" in " ".join(shown.split())


def test_the_runs_of_turns_are_found_where_the_turns_are(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, elsewhere = tmp_path / "turns", tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setenv("TURN_JOURNAL_HOME", str(elsewhere))
    driven = run_turn(root, goal_id="g", agent_id="a", todo_id="t", host=CallableHost(lambda turn: turn.model(dict)))
    monkeypatch.chdir(elsewhere)
    assert command("runs").code == 3
    assert [run["run_id"] for run in command("runs", "--root", root, "-f", "json").json] == [driven.turn_key]
    monkeypatch.chdir(root)
    assert [run["run_id"] for run in command("runs", "-f", "json").json] == [driven.turn_key]
    assert command("run", "show", driven.turn_key, "-f", "json").code == 0
    assert command("runs", "--root", elsewhere).code == 3
    assert command("runs", "--db", "runs/journal.db").code == 0
    shutil.rmtree("runs")
    with RunJournal() as journal:
        journal.open_run("mine")
    assert [run["run_id"] for run in command("runs", "-f", "json").json] == ["mine"]


def test_the_runs_that_wait_for_somebody_are_listed_with_what_for(command: Command, db: Path) -> None:
    with RunJournal(db) as journal:
        with pytest.raises(TurnSuspended), DurableRun(journal, "asks") as run:
            run.approval("Publish?", {"page": "index"})
        journal.open_run("only stopped")
    waiting = command("runs", "--db", db, "--waiting", "-f", "json").json
    assert {run["run_id"]: run["waits_for"] for run in waiting} == {"died": ["outcome"], "asks": ["decision"]}
    assert {run["run_id"]: run["waits_for"] for run in command("runs", "--db", db, "-f", "json").json} == {
        "finished": [],
        "died": ["outcome"],
        "asks": ["decision"],
        "only stopped": [],
    }
    heads = {name: command("run", "show", name, "--db", db).out.splitlines()[0] for name in ("died", "asks")}
    assert heads == {
        "died": "died · interrupted: an outcome is not known",
        "asks": "asks · waits for a decision",
    }
    assert "drive it again to go on" in command("run", "show", "only stopped", "--db", db).out
    command("approve", "asks", "0", "--db", db)
    command("settle", "died", "0", "--absent", "--db", db)
    assert command("runs", "--db", db, "--waiting").out == "No such runs are recorded here.\n"


def test_what_to_type_next_names_the_place_that_was_named(command: Command, tmp_path: Path) -> None:
    with RunJournal(tmp_path / "runs" / "journal.db") as journal:
        journal.open_run("r")
        journal.append(JournalEvent("r", 0, "tool_call", {"name": "pay", "args": {}, "idempotency_key": "k"}))
        assert f"turn-journal settle r 0 --root {tmp_path} --result" in command("run", "show", "r", "-r", tmp_path).out


def test_no_journal_is_made_by_looking(command: Command, tmp_path: Path) -> None:
    assert command("runs", "--db", tmp_path / "none.db").code == 3
    assert list(tmp_path.iterdir()) == []


def test_a_damaged_file_exits_with_4_and_is_left_alone(command: Command, tmp_path: Path) -> None:
    damaged = tmp_path / "runs.db"
    damaged.write_bytes(b"this is no database" * 100)
    outcome = command("runs", "--db", damaged, "-f", "json")
    assert outcome.code == 4
    assert '"kind"' in outcome.err
    assert damaged.read_bytes() == b"this is no database" * 100


def test_a_hostile_name_cannot_steer_the_terminal(command: Command, tmp_path: Path) -> None:
    db = tmp_path / "runs.db"
    with RunJournal(db) as journal:
        journal.open_run("r", task="\x1b]0;owned\x07\x1b[2J\u202ereversed", agent="a|b")
    for format in ("table", "markdown"):
        shown = command("runs", "--db", db, "-f", format).out
        assert "\x1b" not in shown
        assert "\u202e" not in shown
        assert "\\u001b]0;owned" in shown.replace("\\\\", "\\")
    assert "a\\|b" in command("runs", "--db", db, "-f", "markdown").out
    assert command("runs", "--db", db, "-f", "json").json[0]["task"].startswith("\x1b]0;owned")


LOOP = """
from turn_journal_runtime import DurableRun

def before(journal, run_id):
    print("looking")
    with DurableRun(journal, run_id) as run:
        tool, args = ("look", {"at": "x"}) if run_id == "finished" else ("pay", {"amount": 5})
        run.tool(tool, args, lambda **_: open("ran", "w"))

async def after(journal, run_id):
    before(journal, run_id)
    raise KeyError("new")

def other(journal, run_id):
    with DurableRun(journal, run_id) as run:
        run.tool("pay", {"amount": 5}, lambda **_: open("ran", "w"))
"""


def test_run_check_says_which_runs_a_loop_parts_from(
    command: Command, db: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    module = f"loops_{tmp_path.name}"
    (tmp_path / f"{module}.py").write_text(LOOP)
    before = db.read_bytes()

    same = command("run", "check", "--entry", f"{module}:before", "--db", db, "-f", "json")
    assert (same.code, [(run["run_id"], run["replays"], run["replayed"]) for run in same.json]) == (
        0,
        [("finished", True, 1), ("died", True, 1)],
    )
    assert "All of them replay." in command("run", "check", "--entry", f"{module}:before", "--db", db).out

    changed = command("run", "check", "--entry", f"{module}:other", "--db", db, "-f", "json")
    assert (changed.code, [run["replays"] for run in changed.json]) == (1, [False, True])
    assert changed.json[0]["problem"]["kind"] == "replay_divergence"
    only = command("run", "check", "died", "--entry", f"{module}:other", "--db", db, "-f", "json")
    assert (only.code, len(only.json)) == (0, 1)

    fails = command("run", "check", "finished", "--entry", f"{module}:after", "--db", db)
    assert fails.code == 1
    assert "KeyError" in fails.out
    assert command("run", "check", "nobody", "--entry", f"{module}:after", "--db", db).code == 3
    assert command("run", "check", "--entry", "nowhere:loop", "--db", db).code == 2
    assert not (tmp_path / "ran").exists()
    assert db.read_bytes() == before
