"""Runs as wholes: what moves them takes little memory and believes nothing, and one that is driven is not ended from
elsewhere. run-journal.md, sections 1, 4 and 5."""

from __future__ import annotations

import gc
import hashlib
import json
import tempfile
import tracemalloc
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalConflictError,
    JournalCorruptError,
    JournalStoreError,
    TurnBusyError,
)
from turn_journal_runtime.run_journal import KIND_ITERATION, KIND_MODEL_DECISION, DurableRun, JournalEvent, RunJournal

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.python.run_journal.conftest import Address
    from tests.python.run_journal.databases import Schema


def filled(journal: RunJournal, events: int, size: int = 10) -> None:
    journal.open_run("r", agent="a", task="t", metadata={"m": 1})
    for start in range(0, events, 500):
        journal.append_many(
            JournalEvent("r", at, KIND_MODEL_DECISION, {"text": f"{at}" + "x" * size})
            for at in range(start, min(start + 500, events))
        )


# Out


def test_a_long_run_moves_without_being_in_memory(journal: RunJournal, address: Address) -> None:
    filled(journal, 10_000, 4_000)
    with RunJournal(address.with_name("other.db")) as other:
        tracemalloc.start()
        try:
            other.import_run(journal.export("r"))
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 30_000_000, "40 MB have moved"
        assert [event.seq for event in other.events("r")] == list(range(10_000))
        assert list(other.export("r")) == list(journal.export("r"))


def test_of_large_payloads_few_are_in_memory(
    journal: RunJournal, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 48 MB, which the server would send at once."""
    monkeypatch.setattr("turn_journal_runtime.run_journal.transfer._IN_MEMORY", 1)
    sent: list[int] = []
    if not isinstance(address, Path):
        from turn_journal_runtime.run_journal.postgres.session import Cursor

        def execute(cursor: Any, *statement: Any, **options: Any) -> Any:
            made = plain(cursor, *statement, **options)
            sent.append(cursor.rowcount)
            return made

        plain = Cursor.execute
        monkeypatch.setattr(Cursor, "execute", execute)
    for run_id in ("r", "s"):
        journal.open_run(run_id)
        for at in range(48):
            journal.append(JournalEvent(run_id, at, KIND_MODEL_DECISION, {"text": f"{at:04}" + "x" * 2**20}))
    uses: list[Callable[[], object]] = [
        lambda: next(journal.export("r")),
        lambda: journal.diff("r", "s"),
        lambda: journal.fork("r", "f", upto=46),
    ]
    for use in uses:
        tracemalloc.start()
        try:
            use()
            _, most = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert most < 48 * 2**20
    # A fork of 47 events is one statement, which sends none of them.
    assert sorted(sent)[-3:] == ([4, 4, 47] if sent else [])
    assert list(journal.export("f"))[1:48] == list(journal.export("r"))[1:48]


def test_an_export_is_of_one_moment_however_late_it_is_read(journal: RunJournal) -> None:
    filled(journal, 600)
    lines = journal.export("r")
    first = next(lines)
    journal.append(JournalEvent("r", 600, KIND_ITERATION, {"index": 0}))
    journal.close_run("r", "failed")
    rest = list(lines)
    assert json.loads(rest[-1])["lines"] == 601
    assert (json.loads(first)["run"]["status"], len(rest)) == ("running", 601)


def test_a_damaged_payload_is_told_before_a_line_is_given(journal: RunJournal) -> None:
    filled(journal, 600)
    journal._database.write("UPDATE journal SET payload = '{' WHERE seq = ?", (599,))
    with pytest.raises(JournalCorruptError, match="step 599"):
        journal.export("r")
    journal._database.write("UPDATE runs SET metadata = '{'", ())
    with pytest.raises(JournalCorruptError, match="metadata"):
        journal.export("r")


def test_a_run_that_finds_no_room_to_wait_says_so(
    journal: RunJournal, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(journal, 10)
    monkeypatch.setattr("turn_journal_runtime.run_journal.transfer._IN_MEMORY", 1)
    assert len(list(journal.export("r"))) == 12
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "nowhere"))
    lines = tmp_path / "lines"
    with pytest.raises(JournalStoreError, match="TMPDIR"):
        lines.write_text("\n".join(journal.export("r")))
    assert not lines.exists()


def test_an_export_that_nobody_reads_leaves_no_file_open(journal: RunJournal, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(journal, 10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for in_memory in (2**20, 1):
            monkeypatch.setattr("turn_journal_runtime.run_journal.transfer._IN_MEMORY", in_memory)
            journal.export("r")
            assert next(journal.export("r"))
            round_about = [journal.export("r")]
            round_about.append(round_about)  # type: ignore[arg-type]
            del round_about
            gc.collect()


# In


def _sealed(*lines: Any) -> list[str]:
    texts = [json.dumps(line, separators=(",", ":")) for line in lines]
    digest = hashlib.sha256("".join(f"{text}\n" for text in texts).encode()).hexdigest()
    return [*texts, json.dumps({"lines": len(texts), "sha256": digest})]


def _edited(lines: list[str], line: int, *path: str, to: Any) -> list[str]:
    """An export with another value at one place, whose last line vouches for it all the same."""
    found = [json.loads(text) for text in lines[:-1]]
    place = found[line]
    for name in path[:-1]:
        place = place[name]
    place[path[-1]] = to
    return _sealed(*found)


EDITS: list[tuple[int, tuple[str, ...], Any]] = [
    (0, ("run", "run_id"), 5),
    (0, ("run", "run_id"), ""),
    (0, ("run", "agent"), None),
    (0, ("run", "created_at"), "today"),
    (0, ("run", "metadata"), "{}"),
    (0, ("run", "status"), "asleep"),
    (0, ("fence",), "1"),
    (0, ("resumes",), True),
    (0, ("parent",), "r"),
    (0, ("parent",), {"run_id": "r", "upto": "1"}),
    (1, ("event",), []),
    (1, ("event", "seq"), "first"),
    (1, ("event", "seq"), 1.5),
    (1, ("event", "kind"), None),
    (1, ("event", "payload"), "text"),
    (1, ("event", "payload"), None),
    (1, ("event", "created_at"), None),
    (-1, ("attempt", "seq"), "x"),
    (-1, ("attempt", "next_seq"), "x"),
]


@pytest.fixture
def lines(journal: RunJournal) -> list[str]:
    """An export with an event and a failed attempt."""

    def fails(word: str) -> None:
        raise ValueError("the word is hush")

    with DurableRun(journal, "r", agent="a", task="hush", metadata={"secret": "hush"}) as run:
        run.model(lambda: "hush", request={"p": "hush"})
        with pytest.raises(ValueError, match="word"):
            run.tool("t", {"word": "hush"}, fails)
    return list(journal.export("r"))


@pytest.mark.parametrize(("line", "place", "to"), EDITS)
def test_an_export_with_a_field_of_another_type_is_refused_whole(
    journal: RunJournal, lines: list[str], line: int, place: tuple[str, ...], to: Any
) -> None:
    journal.delete_run("r")
    journal.import_run(_edited(lines, 0, "run", "task", to="as it should be"))
    before = list(journal.export("r"))
    with pytest.raises(InvalidJournalError):
        journal.import_run(_edited(lines, line, *place, to=to), overwrite=True)
    assert list(journal.export("r")) == before


def test_an_export_of_a_newer_version_says_that_it_is_and_what_to_do(journal: RunJournal, lines: list[str]) -> None:
    newer = _edited(lines, 0, "version", to=2)
    with pytest.raises(JournalStoreError, match="version 2") as caught:
        journal.import_run(newer, overwrite=True)
    assert (caught.value.kind, "upgrade" in caught.value.message) == ("store_unsupported", True)
    with pytest.raises(InvalidJournalError, match="vouch"):
        journal.import_run([*newer[:1], *newer[2:]], overwrite=True)
    assert list(journal.export("r")) == lines


def _hushed(payload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(payload).replace("hush", "…"))
    return found


def test_what_may_not_be_stored_is_not_imported(journal: RunJournal, lines: list[str], address: Address) -> None:
    assert "hush" in "".join(lines)
    with RunJournal(address.with_name("other.db"), redact=_hushed) as other:
        other.import_run(lines)
        redacted = list(other.export("r"))
        assert "hush" not in "".join(redacted)
        assert len(redacted) == len(lines)
        other.import_run(redacted, overwrite=True)
        assert list(other.export("r")) == redacted


def test_what_may_not_be_kept_at_all_is_empty(lines: list[str], address: Address) -> None:
    with RunJournal(address.with_name("other.db"), redact=lambda _: {}) as other:
        other.open_run("opened", agent="a", task="t", metadata={"m": 1})
        other.import_run(lines)
        for run_id in ("opened", "r"):
            meta = other.run_meta(run_id)
            assert meta is not None
            assert (meta.agent, meta.task, meta.metadata) == ("", "", {})
        attempts = [json.loads(line)["attempt"] for line in other.export("r") if "attempt" in json.loads(line)]
        assert {(one["error_type"], one["message"]) for one in attempts} == {("Exception", "")}


# Ended


def test_a_run_that_is_driven_elsewhere_is_not_closed(journal: RunJournal, address: Address) -> None:
    with RunJournal(address) as second:
        with DurableRun(second, "r") as run:
            run.iteration(0)
            with pytest.raises(TurnBusyError):
                journal.close_run("r", "cancelled")
            run.iteration(1)
        meta = journal.run_meta("r")
        assert meta is not None
        assert meta.status == "done"


@pytest.mark.parametrize(
    "end", [lambda journal: journal.close_run("r", "cancelled"), lambda journal: journal.delete_run("r")]
)
def test_a_driver_that_counted_as_dead_records_nothing_after_the_end(
    schema: Schema, end: Callable[[RunJournal], None]
) -> None:
    with RunJournal(schema) as journal, RunJournal(schema) as second:
        run = DurableRun(second, "r")
        run.start()
        run.iteration(0)
        with schema.connection() as beside:
            beside.execute("UPDATE turn_journal_run_owners SET expires_at = now() - interval '1 minute'")
        end(journal)
        events = journal.events("r")
        with pytest.raises(TurnBusyError):
            run.iteration(1)
        assert journal.events("r") == events
        run.release()


def test_a_closed_run_is_forked_and_goes_on(journal: RunJournal) -> None:
    def drive(run_id: str, steps: int) -> None:
        with DurableRun(journal, run_id) as run:
            for step in range(steps):
                run.iteration(step)
            if run_id == "r":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        drive("r", 1)
    journal.close_run("r", "cancelled")
    assert journal.interrupted_runs() == []
    with pytest.raises(JournalConflictError, match="has ended"):
        drive("r", 2)
    journal.fork("r", "s", upto=0)
    drive("s", 2)
    assert len(journal.events("s")) == 2
