"""Runs as documents: the same from a file and from a database, and into either. run-journal.md, section 5."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from turn_journal_runtime.errors import JournalConflictError, RunNotFoundError
from turn_journal_runtime.run_journal import KIND_ITERATION, DurableRun, JournalEvent, RunJournal, replica
from turn_journal_runtime.run_journal.copying import arrived, put_arrived, put_run, read_run, run_ids
from turn_journal_runtime.run_journal.replica import compare_run, copy_run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.python.run_journal.databases import Schema


def _fails() -> None:
    raise ValueError("no ü")


@pytest.fixture
def filled(journal: RunJournal) -> RunJournal:
    run = DurableRun(journal, "b", agent="ann", metadata={"n": 2**70})
    run.model(lambda: {"say": "ü"}, request={"prompt": "hello"})
    run.tool("t", {"f": 1.0, "n": -(10**30)}, lambda **args: args)
    with pytest.raises(ValueError, match="no"):
        run.tool("u", {}, _fails)
    run.release()
    journal.fork("b", "ä", upto=1)
    journal.open_run("a", task="nothing")
    journal.close_run("a", "given up")
    return journal


def test_run_ids_are_sorted_by_their_bytes_and_may_begin_after_one(filled: RunJournal) -> None:
    assert list(run_ids(filled)) == ["a", "b", "ä"]
    assert list(run_ids(filled, after="a")) == ["b", "ä"]
    assert list(run_ids(filled, after="ä")) == []


def test_a_run_is_the_same_document_wherever_it_is(filled: RunJournal, schema: Schema, tmp_path: Path) -> None:
    documents = [read_run(filled, run_id) for run_id in run_ids(filled)]
    assert [len(document["events"]) for document in documents] == [0, 4, 3]
    assert documents[1]["attempts"][0]["message"] == "no ü"
    assert documents[2]["parent"] == {"run_id": "b", "upto": 1}
    for address in (tmp_path / "copy.db", schema.with_name("copy")):
        with RunJournal(address) as copy:
            assert [put_run(copy, document) for document in documents] == ["a", "b", "ä"]
            assert [read_run(copy, run_id) for run_id in run_ids(copy)] == documents
            assert copy.events("b") == filled.events("b")
            assert copy.run_meta("b") == filled.run_meta("b")
            with DurableRun(copy, "b") as run:
                assert run.model(lambda: {}, request={"prompt": "hello"}) == {"say": "ü"}
                assert run.tool("t", {"f": 1.0, "n": -(10**30)}, lambda **_: {}) == {"f": 1.0, "n": -(10**30)}
                assert run.tool("u", {}, lambda: "now", restart_safe=True) == "now"


def test_a_run_that_is_there_is_replaced_only_on_request(filled: RunJournal) -> None:
    document = read_run(filled, "b")
    filled.append(JournalEvent("b", 9, KIND_ITERATION, {"index": 9}))
    with pytest.raises(JournalConflictError):
        put_run(filled, document)
    assert filled.last_iteration("b") == 9
    put_run(filled, document, overwrite=True)
    assert read_run(filled, "b") == document


def test_an_import_says_whether_it_replaced_anything(filled: RunJournal) -> None:
    lines = list(filled.export("b"))
    for there, is_replaced in (("a run", True), ("nothing", False), ("events without a run", True)):
        if there != "a run":
            filled.delete_run("b")
        if there == "events without a run":
            filled.append(JournalEvent("b", 7, KIND_ITERATION))
        with arrived(lines) as run:
            assert put_arrived(filled, run, overwrite=True) is is_replaced
        assert list(filled.export("b")) == lines


def test_a_copy_of_a_run_that_went_on_after_a_failure_since_is_extended(journal: RunJournal, tmp_path: Path) -> None:
    """What a failed attempt says of that is changed in its place; all else of it is as it was."""
    with RunJournal(tmp_path / "copy.db") as copy, DurableRun(journal, "r") as run:
        with pytest.raises(ValueError, match="no"):
            run.tool("u", {}, _fails)
        assert copy_run(journal, copy, "r") == "copied"
        run.finish()
        assert copy_run(journal, copy, "r") == "extended"
        assert (compare_run(journal, copy, "r"), copy.uncertain("r")) == ("same", [])
        copy._database.write("UPDATE step_attempts SET message = 'another one'", ())
        assert compare_run(journal, copy, "r") == "conflict"


@pytest.mark.parametrize("meanwhile", ["another copy of it", "a drive of its own"])
def test_a_copy_replaces_only_what_it_was_compared_with(
    journal: RunJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, meanwhile: str
) -> None:
    with RunJournal(tmp_path / "copy.db") as copy, DurableRun(journal, "r") as run:
        run.iteration(0)
        if meanwhile == "a drive of its own":
            assert copy_run(journal, copy, "r") == "copied"
            run.iteration(1)

        def late(*arguments: Any, **keywords: Any) -> str:
            monkeypatch.undo()
            if meanwhile == "another copy of it":
                assert copy_run(journal, copy, "r") == "copied"
            else:
                with DurableRun(copy, "r") as driven:
                    driven.iteration(0)
                    driven.iteration(5)
            return put_run(*arguments, **keywords)

        monkeypatch.setattr(replica, "put_run", late)
        if meanwhile == "another copy of it":
            assert copy_run(journal, copy, "r") == "same"
        else:
            assert copy_run(journal, copy, "r") == "conflict"
            assert copy.last_iteration("r") == 5


def test_what_is_not_there_is_no_document(journal: RunJournal) -> None:
    with pytest.raises(RunNotFoundError):
        read_run(journal, "nobody")


def test_a_backup_is_a_file_with_all_runs(filled: RunJournal, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    filled.backup(target)
    with RunJournal(target) as copy:
        for run_id in run_ids(filled):
            assert read_run(copy, run_id) == read_run(filled, run_id)
    with pytest.raises(JournalConflictError):
        filled.backup(target)
    assert sorted(file.name for file in tmp_path.iterdir() if file.name.startswith(".")) == []
