"""Every line of the method table in run-journal.md, section 1."""

from __future__ import annotations

import random
import sqlite3
import time
from typing import TYPE_CHECKING

import pytest

import turn_journal_runtime.run_journal as package
from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalStoreError,
    ReplayDivergenceError,
    RunNotFoundError,
    TurnJournalError,
)
from turn_journal_runtime.run_journal import (
    KIND_APPROVAL,
    KIND_ITERATION,
    KIND_MODEL_DECISION,
    KIND_TOOL_CALL,
    KIND_TOOL_RESULT,
    KIND_VERIFICATION,
    JournalEvent,
    RunJournal,
    RunMeta,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.python.run_journal.conftest import Address


def test_kinds_have_the_names_that_files_hold() -> None:
    kinds = {name: getattr(package, name) for name in package.__all__ if name.startswith("KIND_")}
    assert kinds == {
        "KIND_MODEL_DECISION": "model_decision",
        "KIND_TOOL_CALL": "tool_call",
        "KIND_TOOL_RESULT": "tool_result",
        "KIND_APPROVAL": "approval",
        "KIND_ITERATION": "iteration",
        "KIND_VERIFICATION": "verification",
    }


def test_dataclasses_have_the_fields_and_defaults_of_the_specification() -> None:
    before = time.time()
    event, run = JournalEvent("r", 1, KIND_ITERATION), RunMeta("r")
    assert (event.run_id, event.seq, event.kind, event.payload) == ("r", 1, "iteration", {})
    assert before <= event.created_at <= time.time()
    assert (run.agent, run.task, run.status, run.outcome, run.checkpoint_id) == ("", "", "running", None, None)
    assert run.metadata == {}
    assert JournalEvent("r", 1, KIND_ITERATION) != JournalEvent("r", 2, KIND_ITERATION)


# open_run


def test_open_run_registers_as_running(journal: RunJournal) -> None:
    before = time.time()
    journal.open_run("r", agent="coder", task="migrate", checkpoint_id="c", metadata={"team": "ü"})
    run = journal.run_meta("r")
    assert run is not None
    assert before <= run.created_at == run.updated_at <= time.time()
    assert run == RunMeta("r", "coder", "migrate", "running", None, "c", run.created_at, run.updated_at, {"team": "ü"})


def test_open_run_again_keeps_journal_and_creation_and_sets_running(journal: RunJournal) -> None:
    journal.open_run("r", agent="coder")
    journal.append(JournalEvent("r", 0, KIND_ITERATION, {"index": 0}))
    first = journal.run_meta("r")
    journal.close_run("r", "failed")
    journal.open_run("r")
    again = journal.run_meta("r")
    assert first is not None
    assert again is not None
    assert (again.status, again.outcome, again.created_at, again.agent) == ("running", None, first.created_at, "coder")
    assert again.updated_at > first.updated_at
    assert len(journal.events("r")) == 1


def test_open_run_again_binds_a_given_checkpoint_and_keeps_the_bound_one(journal: RunJournal) -> None:
    def bound() -> str | None:
        run = journal.run_meta("r")
        assert run is not None
        return run.checkpoint_id

    journal.open_run("r")
    seen = [bound()]
    journal.open_run("r", checkpoint_id="one")
    seen.append(bound())
    journal.open_run("r")
    seen.append(bound())
    journal.open_run("r", checkpoint_id="two")
    assert [*seen, bound()] == [None, "one", "one", "two"]


@pytest.mark.parametrize("run_id", ["", 7, None, b"r"])
def test_a_run_id_is_a_text(journal: RunJournal, run_id: str) -> None:
    with pytest.raises(InvalidJournalError):
        journal.open_run(run_id)


# set_checkpoint, close_run, run_meta


def test_set_checkpoint_binds_the_latest(journal: RunJournal) -> None:
    journal.open_run("r", checkpoint_id="one")
    journal.set_checkpoint("r", "two")
    run = journal.run_meta("r")
    assert run is not None
    assert run.checkpoint_id == "two"


def test_set_checkpoint_of_an_unknown_run_is_a_key_error(journal: RunJournal) -> None:
    with pytest.raises(KeyError, match="No run 'nobody' is recorded") as caught:
        journal.set_checkpoint("nobody", "c")
    assert isinstance(caught.value, RunNotFoundError)
    assert str(caught.value).startswith("No run"), "not quoted as a key"


@pytest.mark.parametrize(
    ("outcome", "status"),
    [
        ("done", "done"),
        ("succeeded", "succeeded"),
        ("failed", "failed"),
        ("cancelled", "cancelled"),
        ("ran out of ideas", "done"),
        ("running", "done"),
    ],
)
def test_close_run_is_terminal_and_keeps_the_outcome(journal: RunJournal, outcome: str, status: str) -> None:
    journal.open_run("r")
    journal.close_run("r", outcome)
    run = journal.run_meta("r")
    assert run is not None
    assert (run.status, run.outcome, journal.interrupted_runs()) == (status, outcome, [])


def test_close_run_defaults_to_done(journal: RunJournal) -> None:
    journal.open_run("r")
    journal.close_run("r")
    run = journal.run_meta("r")
    assert run is not None
    assert (run.status, run.outcome) == ("done", "done")


def test_close_run_of_an_unknown_run_is_not_acknowledged(journal: RunJournal) -> None:
    with pytest.raises(KeyError):
        journal.close_run("nobody")


def test_run_meta_of_an_unknown_run_is_none(journal: RunJournal) -> None:
    assert journal.run_meta("nobody") is None


# interrupted_runs, delete_run


def test_interrupted_runs_are_the_running_ones_oldest_first(journal: RunJournal) -> None:
    for run_id in ("c", "a", "b", "d"):
        journal.open_run(run_id)
    journal.close_run("b")
    journal.open_run("c")
    assert journal.interrupted_runs() == ["c", "a", "d"]


def test_delete_run_removes_a_run_and_all_that_is_stored_of_it(journal: RunJournal, path: Path) -> None:
    journal.open_run("r")
    journal.open_run("other")
    journal.append(JournalEvent("r", 0, KIND_ITERATION, {"index": 0}))
    journal.append(JournalEvent("other", 0, KIND_ITERATION, {"index": 0}))
    journal.delete_run("r")
    journal.delete_run("r")
    assert (journal.run_meta("r"), journal.events("r"), len(journal.events("other"))) == (None, [], 1)
    with sqlite3.connect(path) as reader:
        tables = [name for (name,) in reader.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        query = "SELECT 1 FROM {} WHERE run_id = 'r'"
        left = [table for table in tables if reader.execute(query.format(table)).fetchone()]
    reader.close()
    assert left == []


# append, append_many


def test_append_replaces_the_payload_and_keeps_the_place(journal: RunJournal) -> None:
    journal.append(JournalEvent("r", 0, KIND_TOOL_CALL, {"n": 1}, 1.0))
    journal.append(JournalEvent("r", 0, KIND_TOOL_RESULT, {"n": 2}, 2.0))
    journal.append(JournalEvent("r", 0, KIND_TOOL_CALL, {"n": 3}, 3.0))
    assert journal.events("r") == [
        JournalEvent("r", 0, KIND_TOOL_CALL, {"n": 3}, 3.0),
        JournalEvent("r", 0, KIND_TOOL_RESULT, {"n": 2}, 2.0),
    ]


def test_append_of_an_unknown_kind_is_a_value_error(journal: RunJournal) -> None:
    with pytest.raises(ValueError, match="'thought' is unknown"):
        journal.append(JournalEvent("r", 0, "thought"))
    assert journal.events("r") == []


@pytest.mark.parametrize("seq", [-1, 2**63, 1.0, True, "0", None])
def test_a_step_has_a_number_from_zero(journal: RunJournal, seq: int) -> None:
    with pytest.raises(InvalidJournalError):
        journal.append(JournalEvent("r", seq, KIND_ITERATION))
    assert journal.events("r") == []


@pytest.mark.parametrize("count", [0, 1, 199, 200, 201, 1000])
def test_append_many_stores_all_in_their_order(journal: RunJournal, count: int) -> None:
    events = [JournalEvent("r", n, KIND_MODEL_DECISION, {"n": n}, float(n)) for n in range(count)]
    journal.append_many(iter(events))
    assert journal.events("r") == events


def test_append_many_is_all_or_none(journal: RunJournal) -> None:
    journal.append(JournalEvent("r", 0, KIND_ITERATION, {"index": 0}))
    events = [JournalEvent("r", n, KIND_ITERATION, {"index": -n}) for n in range(500)]
    with pytest.raises(InvalidJournalError):
        journal.append_many([*events, JournalEvent("r", 500, KIND_ITERATION, {1: "a", "1": "key"})])  # type: ignore[dict-item]
    assert journal.replay_index("r") == {(0, KIND_ITERATION): {"index": 0}}


def test_append_many_that_fails_in_the_database_stores_nothing(journal: RunJournal) -> None:
    events = [JournalEvent("r", n, KIND_ITERATION, {"index": n}) for n in range(500)]
    events[450].created_at = None  # type: ignore[assignment]
    with pytest.raises(TurnJournalError):
        journal.append_many(events)
    assert journal.events("r") == []
    journal.append_many(events[:400])
    assert len(journal.events("r")) == 400, "the journal is usable after it"


# events, replay_index, last_iteration


def test_events_are_ordered_by_number_then_insertion(journal: RunJournal) -> None:
    order = [(2, KIND_TOOL_RESULT), (1, KIND_TOOL_RESULT), (1, KIND_TOOL_CALL), (2, KIND_APPROVAL), (0, KIND_ITERATION)]
    for seq, kind in order:
        journal.append(JournalEvent("r", seq, kind))
    assert [(event.seq, event.kind) for event in journal.events("r")] == [
        (0, KIND_ITERATION),
        (1, KIND_TOOL_RESULT),
        (1, KIND_TOOL_CALL),
        (2, KIND_TOOL_RESULT),
        (2, KIND_APPROVAL),
    ]


def test_replay_index_has_payloads_by_number_and_kind(journal: RunJournal) -> None:
    journal.append(JournalEvent("r", 0, KIND_TOOL_CALL, {"name": "x"}))
    journal.append(JournalEvent("r", 0, KIND_TOOL_RESULT, {"result": 1}))
    journal.append(JournalEvent("other", 0, KIND_TOOL_RESULT, {"result": 2}))
    assert journal.replay_index("r") == {
        (0, KIND_TOOL_CALL): {"name": "x"},
        (0, KIND_TOOL_RESULT): {"result": 1},
    }
    assert journal.replay_index("nobody") == {}


def test_last_iteration_is_the_highest_recorded_index(journal: RunJournal) -> None:
    assert journal.last_iteration("r") is None
    seed = random.randrange(2**32)
    print(f"seed: {seed}")
    indexes = random.Random(seed).sample(range(10_000), 200)
    for seq, index in enumerate(indexes):
        journal.append(JournalEvent("r", seq, KIND_ITERATION, {"index": index}))
    journal.append(JournalEvent("r", 1000, KIND_MODEL_DECISION, {"index": 10**9}))
    journal.append(JournalEvent("other", 0, KIND_ITERATION, {"index": 10**9}))
    assert journal.last_iteration("r") == max(indexes)
    highest = indexes.index(max(indexes))
    journal.append(JournalEvent("r", highest, KIND_ITERATION, {"index": -5}))
    assert journal.last_iteration("r") == sorted(indexes)[-2], "a replaced payload counts no more"


@pytest.mark.parametrize("payload", [{}, {"index": None}, {"index": "7"}, {"index": 2.5}, {"index": [9]}])
def test_what_is_no_integer_is_no_iteration(journal: RunJournal, payload: dict[str, object]) -> None:
    journal.append(JournalEvent("r", 0, KIND_ITERATION, payload))
    assert journal.last_iteration("r") is None
    journal.append(JournalEvent("r", 1, KIND_ITERATION, {"index": 3}))
    assert journal.last_iteration("r") == 3


def test_last_iteration_is_exact_beyond_64_bits(journal: RunJournal) -> None:
    for seq, index in enumerate([10**30, 10**30 + 1, 5]):
        journal.append(JournalEvent("r", seq, KIND_ITERATION, {"index": index}))
    assert journal.last_iteration("r") == 10**30 + 1


@pytest.mark.usefixtures("path")
def test_last_iteration_and_replay_index_use_an_index_and_not_the_whole_file(journal: RunJournal) -> None:
    # The plans, not the clock: a scan would be as slow as the file is large.
    from turn_journal_runtime.run_journal.schema import ITERATION_INDEX

    queries = [
        f"SELECT {ITERATION_INDEX} FROM journal WHERE run_id = 'r' AND kind = 'iteration' "  # noqa: S608
        f"ORDER BY {ITERATION_INDEX} DESC LIMIT 1",
        "SELECT seq, kind, payload FROM journal WHERE run_id = 'r' ORDER BY seq, rowid",
    ]
    plans = [journal._database.read(f"EXPLAIN QUERY PLAN {query}")[0][3] for query in queries]
    assert plans == [
        "SEARCH journal USING INDEX idx_journal_iteration (run_id=?)",
        "SEARCH journal USING INDEX sqlite_autoindex_journal_1 (run_id=?)",
    ]


# assert_replay_order


@pytest.fixture
def recorded(journal: RunJournal) -> RunJournal:
    for seq, kind in [(0, KIND_MODEL_DECISION), (1, KIND_TOOL_CALL), (1, KIND_TOOL_RESULT), (2, KIND_VERIFICATION)]:
        journal.append(JournalEvent("r", seq, kind))
    return journal


def test_assert_replay_order_accepts_the_recorded_steps(recorded: RunJournal) -> None:
    recorded.assert_replay_order(
        "r", [(0, KIND_MODEL_DECISION), (1, KIND_TOOL_CALL), (1, KIND_TOOL_RESULT), (2, KIND_VERIFICATION)]
    )
    recorded.assert_replay_order("r", [KIND_MODEL_DECISION, KIND_TOOL_CALL, KIND_TOOL_RESULT, KIND_VERIFICATION])
    recorded.assert_replay_order("nobody", [])


@pytest.mark.parametrize(
    ("expected", "at", "words"),
    [
        (
            [(0, "model_decision"), (2, "tool_call")],
            1,
            r"recorded is \(1, 'tool_call'\), the replay has \(2, 'tool_call'\)",
        ),
        ([(0, "model_decision")], 1, r"recorded is \(1, 'tool_call'\), the replay has nothing more"),
        (["tool_call"], 0, "recorded is 'model_decision', the replay has 'tool_call'"),
        (["model_decision", "tool_call", "tool_result", "verification", "iteration"], 4, "recorded is nothing more"),
        ([], 0, "the replay has nothing more"),
    ],
)
def test_assert_replay_order_names_the_first_difference(
    recorded: RunJournal, expected: list[str], at: int, words: str
) -> None:
    with pytest.raises(RuntimeError, match=words) as caught:
        recorded.assert_replay_order("r", expected)
    assert isinstance(caught.value, ReplayDivergenceError)
    assert caught.value.details["at"] == at


# close, and being a context manager


def test_a_closed_journal_refuses_with_a_typed_error(address: Address, tmp_path: Path) -> None:
    with RunJournal(address) as journal:
        journal.open_run("r")
    journal.close()
    for use in (
        lambda: journal.open_run("s"),
        lambda: journal.append(JournalEvent("r", 0, KIND_ITERATION)),
        lambda: journal.append_many([JournalEvent("r", 0, KIND_ITERATION)]),
        lambda: journal.events("r"),
        lambda: journal.settings,
        lambda: journal.backup(tmp_path / "copy.db"),
    ):
        with pytest.raises(JournalStoreError, match="closed"):
            use()
    with RunJournal(address) as again:
        assert again.interrupted_runs() == ["r"]


def test_a_journal_in_memory_holds_what_a_file_holds() -> None:
    with RunJournal(":memory:") as journal:
        journal.open_run("r")
        journal.append(JournalEvent("r", 0, KIND_ITERATION, {"index": 4}))
        assert (journal.path, journal.last_iteration("r"), journal.interrupted_runs()) == (":memory:", 4, ["r"])
