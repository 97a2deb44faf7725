"""Connections that are lost, at every moment of a write. run-journal.md, sections 1 and 4."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Literal

import pytest
from tests.python.run_journal.proxy import Proxy

from turn_journal_runtime.errors import JournalConflictError, StoreUnavailableError
from turn_journal_runtime.run_journal import (
    KIND_APPROVAL,
    KIND_ITERATION,
    KIND_TOOL_CALL,
    DurableRun,
    JournalEvent,
    RunJournal,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.python.run_journal.databases import Schema

Moment = Literal["before", "after"]

pytestmark = pytest.mark.parametrize("moment", ["before", "after"])


@pytest.fixture
def proxy(schema: Schema) -> Iterator[Proxy]:
    with Proxy(schema) as proxy:
        yield proxy


@pytest.fixture
def journal(proxy: Proxy) -> Iterator[RunJournal]:
    with RunJournal(proxy.url) as journal:
        yield journal


def iteration(seq: int, text: str = "") -> JournalEvent:
    return JournalEvent("r", seq, KIND_ITERATION, {"index": seq, "text": text})


@pytest.mark.parametrize("prepared", [False, True])
def test_an_append_whose_connection_is_lost_is_made_once(
    journal: RunJournal, proxy: Proxy, moment: Moment, prepared: bool
) -> None:
    for seq in range(20 if prepared else 0):
        journal.append(iteration(seq))
    proxy.cut(moment, b"<marked>")
    journal.append(iteration(20, "<marked>"))
    proxy.cut(moment, b"<marked again>")
    journal.append_many([iteration(20, "<marked again>"), iteration(21)])
    assert proxy.cuts == 2
    assert [event.payload["text"] for event in journal.events("r")][-2:] == ["<marked again>", ""]


def test_an_append_that_arrives_late_does_not_undo_a_later_one(
    journal: RunJournal, schema: Schema, moment: Moment
) -> None:
    """The server may carry out what it was sent long after the connection was lost and the append was sent again."""
    del moment
    from turn_journal_runtime.run_journal.postgres import journal as module

    first = iteration(0, "first")
    key = journal._key()  # type: ignore[attr-defined]
    for text in ("second", "third"):
        journal.append(iteration(0, text))
    assert journal._database.write(module._APPEND, (*journal._row(first), *key)) == 0
    assert [event.payload["text"] for event in journal.events("r")] == ["third"]
    with RunJournal(schema) as another:
        another.append(iteration(0, "another's"))
    assert [event.payload["text"] for event in journal.events("r")] == ["another's"]


def test_a_step_whose_connection_is_lost_is_recorded_once(journal: RunJournal, proxy: Proxy, moment: Moment) -> None:
    ran: list[str] = []
    with DurableRun(journal, "r") as run:
        proxy.cut(moment, b"<call>")
        run.tool("<call>", {}, lambda: ran.append("call"))
        proxy.cut(moment, b"<result>")
        run.tool("t", {}, _answering)
        proxy.cut(moment, b"<failed>")
        with pytest.raises(ValueError, match="<failed>"):
            run.tool("t", {}, _failing)
        proxy.cut(moment, b"succeeded")
        run.finish("succeeded")
    assert (ran, proxy.cuts) == (["call"], 4)
    found = journal.run_meta("r")
    assert found is not None
    assert (found.status, len(journal.events("r"))) == ("succeeded", 5)
    attempts = journal._database.read("SELECT COUNT(*) FROM step_attempts")
    assert attempts == [(1,)]


def _answering() -> str:
    return "<result>"


def _failing() -> None:
    raise ValueError("<failed>")


def test_a_transaction_whose_commit_is_lost_is_made_once(journal: RunJournal, proxy: Proxy, moment: Moment) -> None:
    journal.open_run("closed")
    journal.open_run("r")
    journal.append(JournalEvent("r", 0, KIND_APPROVAL, {"question": "Pay?", "binds": None}))
    journal.append(JournalEvent("r", 1, KIND_TOOL_CALL, {"name": "t", "args": {}, "idempotency_key": "k"}))
    lines = list(journal.export("r"))
    steps: tuple[Callable[[], object], ...] = (
        lambda: journal.approve("r", 0, "yes", by="ann"),
        lambda: journal.settle("r", 1, result=5),
        lambda: journal.fork("r", "forked", upto=0),
        lambda: journal.import_run(lines, overwrite=True),
        lambda: journal.delete_run("r"),
        lambda: journal.import_run(lines),
        lambda: journal.close_run("closed"),
        _expecting(["closed"], lambda: journal.prune(0)),
    )
    for number, step in enumerate(steps):
        proxy.cut(moment, b"COMMIT\0")
        step()
        assert proxy.cuts == number + 1
    assert journal.parent("forked") == ("r", 0)
    assert len(journal.events("forked")) == 1
    with pytest.raises(JournalConflictError):
        journal.fork("r", "forked", upto=0)


def test_questions_whose_end_is_lost_are_answered(journal: RunJournal, proxy: Proxy, moment: Moment) -> None:
    journal.open_run("closed")
    journal.close_run("closed")
    proxy.cut(moment, b"ROLLBACK\0")
    assert journal.prune(0, dry_run=True) == ["closed"]
    assert proxy.cuts == 1


def _expecting(answer: object, step: Callable[[], object]) -> Callable[[], None]:
    def expect() -> None:
        assert step() == answer

    return expect


def test_a_claim_whose_commit_is_lost_is_counted_once(journal: RunJournal, proxy: Proxy, moment: Moment) -> None:
    journal.open_run("r")
    journal.append(iteration(0))
    proxy.cut(moment, b"COMMIT\0")
    with DurableRun(journal, "r", max_resumes=1) as run:
        run.start()
        assert proxy.cuts == 1
        assert journal._database.read("SELECT fence, resumes FROM run_drives") == [(1, 1)]
        run.iteration(0)


def test_a_read_whose_connection_is_lost_is_whole(journal: RunJournal, proxy: Proxy, moment: Moment) -> None:
    journal.append_many(iteration(seq, "x" * 100) for seq in range(5000))
    proxy.cut(moment, b"ORDER BY seq, rowid")
    assert len(journal.events("r")) == 5000
    assert (proxy.cuts, len(journal.replay_index("r"))) == (1, 5000)


def test_a_server_that_stays_away_is_a_typed_error_that_says_what_is_known(
    proxy: Proxy, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURN_JOURNAL_POSTGRES_TIMEOUT", "3")
    with RunJournal(proxy.url) as journal:
        journal.open_run("r")
        proxy.cut(moment, b"<marked>")
        stopper = threading.Timer(0, proxy.__exit__, (None, None, None))
        stopper.start()
        stopper.join()
        began = time.monotonic()
        with pytest.raises(StoreUnavailableError) as caught:
            journal.append(iteration(0, "<marked>"))
        assert time.monotonic() - began < 25
        assert caught.value.is_retryable
        assert caught.value.kind in ("store_unavailable", "store_outcome_unknown")
        with pytest.raises(StoreUnavailableError, match="nothing was changed"):
            journal.fork("r", "s", upto=0)


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        (lambda journal: journal.append(iteration(0, "<marked>")), "store_outcome_unknown"),
        (lambda journal: journal.run_meta("<marked>"), "store_unavailable"),
        (lambda journal: journal.events("<marked>"), "store_unavailable"),
    ],
    ids=["a write", "a query", "a query in parts"],
)
def test_what_was_sent_to_a_server_that_stays_away_is_not_known_where_it_changes_something(
    proxy: Proxy,
    moment: Moment,
    monkeypatch: pytest.MonkeyPatch,
    use: Callable[[RunJournal], object],
    kind: str,
) -> None:
    monkeypatch.setenv("TURN_JOURNAL_POSTGRES_TIMEOUT", "2")
    with RunJournal(proxy.url) as journal:
        journal.open_run("r")
        proxy.cut(moment, b"<marked>", then="close")
        with pytest.raises(StoreUnavailableError) as caught:
            use(journal)
    assert (caught.value.kind, proxy.cuts) == (kind, 1)


def test_a_commit_that_cannot_be_looked_up_is_not_known(
    proxy: Proxy, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURN_JOURNAL_POSTGRES_TIMEOUT", "3")
    with RunJournal(proxy.url) as journal:
        journal.open_run("r")
        proxy.cut(moment, b"COMMIT\0", then="close")
        with pytest.raises(StoreUnavailableError) as caught:
            journal.fork("r", "s", upto=0)
    assert caught.value.kind == "store_outcome_unknown"


def test_a_server_that_says_nothing_is_waited_for_as_long_as_the_setting_says(
    proxy: Proxy, moment: Moment, monkeypatch: pytest.MonkeyPatch
) -> None:
    del moment
    monkeypatch.setenv("TURN_JOURNAL_POSTGRES_TIMEOUT", "2")
    proxy.cut_off()
    began = time.monotonic()
    with pytest.raises(StoreUnavailableError):
        RunJournal(proxy.url)
    assert time.monotonic() - began < 9
