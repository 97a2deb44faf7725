"""Pruning a root: the runs of turns that are over go with them, those of all other turns stay and are replayed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from tests.python.turns.world import AGENT, GOAL, KilledError, ReadableLedger, Turn, rate_limited

from turn_journal_runtime import (
    aio,
    give_up_turn,
    inspect_turn_journal,
    prune_turn_journals,
    recoverable_turns,
    verify_turn_journal,
)
from turn_journal_runtime.bridge import default_client
from turn_journal_runtime.errors import JournalConflictError, UncertainEffectError
from turn_journal_runtime.hosts import CallableHost
from turn_journal_runtime.run_journal import DurableRun, RunJournal, TurnContext, current_idempotency_key
from turn_journal_runtime.run_journal.schema import RUN_TABLES
from turn_journal_runtime.turns import retention
from turn_journal_runtime.turns.plan import plan_turn
from turn_journal_runtime.turns.root import open_root

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractContextManager
    from pathlib import Path

    from turn_journal_runtime.documents import PrunedTurn


class Prune(Protocol):
    def __call__(self, root: Path | str, **how: Any) -> list[PrunedTurn]: ...


@pytest.fixture(params=["sync", "async"])
def prune(request: pytest.FixtureRequest) -> Prune:
    def pruned(root: Path | str, **how: Any) -> list[PrunedTurn]:
        how = {"older_than": 0, **how}
        if request.param == "sync":
            return prune_turn_journals(root, **how)
        return asyncio.run(aio.prune_turn_journals(root, **how))

    return pruned


@pytest.fixture
def runs(root: Path | str) -> Iterator[RunJournal]:
    """The root's own run journal, for looking at it."""
    journal: AbstractContextManager[RunJournal] = open_root(root, default_client()).runs()
    with journal as opened:
        yield opened


class Booking:
    """An agent with one tool, which counts what it did."""

    def __init__(self) -> None:
        self.booked: list[str] = []

    def __call__(self, turn: TurnContext) -> dict[str, Any]:
        turn.tool("book", {"city": "Lisbon"}, self._book)
        return {"result_kind": "validated_progress"}

    def _book(self, city: str) -> str:
        self.booked.append(city)
        return f"booked {city}"


def key_of(todo_id: str) -> str:
    return plan_turn(goal_id=GOAL, agent_id=AGENT, todo_id=todo_id).turn_key


def said(turns: list[PrunedTurn]) -> list[tuple[str, bool, list[str], list[str]]]:
    return [(turn["turn_key"], turn["operation_id"] is not None, turn["runs"], turn["runs_left"]) for turn in turns]


def test_the_run_of_a_turn_that_is_over_goes_with_it(root: Path | str, runs: RunJournal, prune: Prune) -> None:
    Turn(root, is_async=False).run(CallableHost(Booking()), todo_id="over")
    key = key_of("over")
    assert prune(root, older_than=3600) == []
    assert prune(root, keep=1) == []
    planned = prune(root, dry_run=True)
    assert said(planned) == [(key, True, [key], [])]
    assert runs.events(key)
    assert said(prune(root)) == said(planned)
    for table in RUN_TABLES:
        assert runs._database.read(f"SELECT 1 FROM {table}") == []  # noqa: S608
    assert prune(root) == [], "and nothing is pruned twice"


def test_the_closed_run_of_a_turn_that_may_go_on_stays_and_is_replayed(
    root: Path | str, runs: RunJournal, prune: Prune
) -> None:
    """The host is done and its run closed; its turn is cut off before it is written back, or has failed."""
    turn, agent, other = Turn(root, is_async=False), Booking(), Booking()
    ledger = ReadableLedger()
    ledger.fails = KilledError()
    with pytest.raises(KilledError):
        turn.run(CallableHost(agent), writeback=ledger)
    failed = turn.run(CallableHost(other), todo_id="failed", validate=lambda _: False)
    assert failed.status == "failed"
    cut_off = key_of("todo")
    for key in (cut_off, key_of("failed")):
        found = runs.run_meta(key)
        assert found is not None
        assert found.status == "done"
    assert prune(root) == []
    assert runs.prune(0) == [], "nor does a run journal take them for its own"
    ledger.heal()
    assert turn.run(CallableHost(agent), writeback=ledger).status == "committed"
    assert (agent.booked, other.booked) == (["Lisbon"], ["Lisbon"])
    assert said(prune(root)) == [(cut_off, True, [cut_off], [])]
    assert runs.run_meta(key_of("failed")) is not None


def test_a_failed_turn_goes_once_it_was_given_up_and_nobody_can_take_it_up_again(
    root: Path | str, runs: RunJournal, prune: Prune
) -> None:
    turn, agent, key = Turn(root, is_async=False), Booking(), key_of("todo")
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "turn_key": key}
    assert turn.run(CallableHost(agent), validate=lambda _: False).status == "failed"
    assert prune(root, given_up=True) == [], "it may still be retried"
    give_up_turn(root, **names, reason="It is obsolete.", by="ann")
    assert prune(root) == [], "nor without being asked for"
    asks = [inspect_turn_journal(root, **names, retry_failed=retry) for retry in (False, True)]
    assert said(prune(root, given_up=True, dry_run=True)) == [(key, True, [key], [])]
    assert turn.journal["host_result"]
    assert said(prune(root, given_up=True)) == [(key, True, [key], [])]
    assert runs.run_meta(key) is None
    assert turn.journal["host_result"] == {}
    assert [inspect_turn_journal(root, **names, retry_failed=retry) for retry in (False, True)] == asks
    assert verify_turn_journal(root)["ok"]
    left = turn.journal
    assert (turn.run(CallableHost(agent)).status, agent.booked) == ("failed", ["Lisbon"])
    assert recoverable_turns(root, retry_failed=True) == []
    again = give_up_turn(root, **names, reason="Again.", by="bob")
    assert (again.changed, again.by, again.reason) == (False, "ann", "It is obsolete.")
    with pytest.raises(JournalConflictError, match="was pruned"):
        turn.run(CallableHost(agent), retry_failed=True)
    assert (turn.journal, agent.booked, turn.is_driven) == (left, ["Lisbon"], False)
    assert prune(root, given_up=True) == []
    assert turn.run(CallableHost(agent), turn_instance_id="another").status == "committed"


@pytest.mark.parametrize("at", ["writeback", "spend"])
def test_what_may_have_happened_in_a_turn_that_was_given_up_is_still_told_when_it_is_pruned(
    root: Path | str, prune: Prune, at: str
) -> None:
    turn, ledger = Turn(root, is_async=False), ReadableLedger()
    ledger.fails = KilledError()
    with pytest.raises(KilledError):
        turn.run(CallableHost(Booking()), **{at: ledger})
    names: dict[str, Any] = {"goal_id": GOAL, "agent_id": AGENT, "turn_key": key_of("todo")}
    given = give_up_turn(root, **names, reason="It is obsolete.", by="ann")
    assert given.in_doubt
    before = inspect_turn_journal(root, **names)["recorded_effects"]
    assert None in before.values()
    assert len(prune(root, given_up=True)) == 1
    assert inspect_turn_journal(root, **names)["recorded_effects"] == before
    assert give_up_turn(root, **names, reason="Again.", by="bob").in_doubt == given.in_doubt


def test_a_retry_of_a_turn_that_was_pruned_leaves_a_run_with_a_step_in_doubt_as_it_is(
    root: Path | str, runs: RunJournal, prune: Prune
) -> None:
    def dies() -> None:
        raise KilledError

    turn, key = Turn(root, is_async=False), key_of("todo")
    turn.kill(CallableHost(lambda context: context.tool("send", {}, dies)))
    give_up_turn(root, goal_id=GOAL, agent_id=AGENT, turn_key=key, reason="It is obsolete.", by="ann")
    assert said(prune(root, given_up=True)) == [(key, True, [], [key])]
    closed, left = runs.run_meta(key), turn.journal
    assert closed is not None
    assert closed.status == "cancelled"
    with pytest.raises(JournalConflictError, match="was pruned"):
        turn.run(CallableHost(lambda context: {"result_kind": "done"}), retry_failed=True)
    assert (runs.run_meta(key), runs.interrupted_runs(), turn.journal) == (closed, [], left)


def test_a_turn_that_stopped_in_the_middle_goes_on_after_a_prune(
    root: Path | str, runs: RunJournal, prune: Prune
) -> None:
    did: list[str] = []

    def agent(turn: TurnContext) -> dict[str, Any]:
        turn.tool("first", {}, lambda: did.append("first"))
        if len(did) == 1:
            raise rate_limited()
        turn.tool("second", {}, lambda: did.append("second"))
        return {"result_kind": "validated_progress"}

    turn = Turn(root, is_async=False)
    assert turn.run(CallableHost(agent)).status == "failed"
    did.append("killed")
    assert prune(root) == []
    assert turn.run(CallableHost(agent), retry_failed=True).status == "committed"
    assert did == ["first", "killed", "second"]
    assert said(prune(root)) == [(key_of("todo"), True, [key_of("todo")], [])]
    assert runs.interrupted_runs(include_owned=True) == []


def test_all_runs_of_a_turn_go_those_that_were_begun_anew_and_those_inside_of_tools(
    root: Path | str, runs: RunJournal, prune: Prune
) -> None:
    def research(topic: str) -> str:
        with DurableRun(runs, current_idempotency_key() or "", agent="researcher") as inner:
            return str(inner.model(lambda: f"all about {topic}"))

    def agent(turn: TurnContext) -> dict[str, Any]:
        turn.tool("research", {"topic": "tides"}, research, restart_safe=True)
        return {"result_kind": "validated_progress"}

    turn, verdicts = Turn(root, is_async=False), [False, True]
    assert turn.run(CallableHost(agent), validate=lambda _: verdicts.pop(0)).status == "failed"
    assert turn.run(CallableHost(agent), validate=lambda _: verdicts.pop(0), retry_failed=True).status == "committed"
    mine = DurableRun(runs, "a run of my own in that journal")
    with mine:
        mine.iteration(0)
    key = key_of("todo")
    expected = [key, f"{key}.1", f"{key}.1:0:research", f"{key}:0:research"]
    assert said(prune(root)) == [(key, True, expected, [])]
    assert [run_id for (run_id,) in runs._database.read("SELECT run_id FROM runs")] == [mine.run_id]


def test_a_prune_that_was_killed_between_turn_and_run_is_made_good_by_the_next(
    root: Path | str, runs: RunJournal, prune: Prune, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = Turn(root, is_async=False)
    turn.run(CallableHost(Booking()), todo_id="over")
    turn.run(CallableHost(Booking()), todo_id="later")

    def killed(*_: Any, **__: Any) -> None:
        raise KilledError

    with monkeypatch.context() as patch:
        patch.setattr(retention, "_remove_runs", killed)
        with pytest.raises(KilledError):
            prune(root, goal_id=GOAL)
    key, later = key_of("over"), key_of("later")
    assert {run_id for (run_id,) in runs._database.read("SELECT run_id FROM runs")} == {key, later}
    assert prune(root, goal_id="other") == []
    # Those turns are neither old nor many: what was pruned is pruned.
    how = {"older_than": 3600, "keep": 5}
    expected: list[tuple[str, bool, list[str], list[str]]] = [(one, False, [one], []) for one in sorted((key, later))]
    assert sorted(said(prune(root, dry_run=True, **how))) == expected
    assert sorted(said(prune(root, **how))) == expected
    assert runs._database.read("SELECT run_id FROM runs") == []
    assert prune(root) == []


def test_a_run_that_is_driven_or_in_doubt_stays_and_is_named(root: Path | str, runs: RunJournal, prune: Prune) -> None:
    turn = Turn(root, is_async=False)
    turn.run(CallableHost(Booking()))
    key = key_of("todo")
    # A driver that has lost its turn and does not know it, and one that died while it paid.
    driver = DurableRun(runs, f"{key}.1")
    driver.start()
    with pytest.raises(KilledError), DurableRun(runs, f"{key}.2") as run:
        run.tool("pay", {}, _dying)
    left = [f"{key}.1", f"{key}.2"]
    assert said(prune(root)) == [(key, True, [key], left)]
    assert said(prune(root)) == [(key, False, [], left)]
    driver.release()
    with pytest.raises(UncertainEffectError), DurableRun(runs, f"{key}.2") as run:
        run.tool("pay", {}, _dying)
    assert said(prune(root)) == [(key, False, left[:1], left[1:])]
    runs.settle(f"{key}.2", 0, absent=True)
    assert said(prune(root)) == [(key, False, left[1:], [])]
    assert prune(root) == []


def _dying() -> None:
    raise KilledError


def test_runs_in_a_journal_that_turns_were_given_are_pruned_on_request_alone(
    root: Path | str, tmp_path: Path, prune: Prune
) -> None:
    turn, key = Turn(root, is_async=False), key_of("todo")
    with RunJournal(tmp_path / "mine.db") as mine:
        turn.run(CallableHost(Booking()), run_journal=mine)
        assert said(prune(root)) == [(key, True, [], [])]
        assert mine.events(key)
        assert mine.prune(0) == []
        assert said(prune(root, run_journal=mine)) == [(key, False, [key], [])]
        assert mine.events(key) == []
        assert mine.run_meta("none") is None, "it is not closed"


def test_a_root_without_runs_gets_no_run_journal(tmp_path: Path, prune: Prune) -> None:
    from tests.python.turns.world import ScriptedHost

    root = tmp_path / "root"
    Turn(root, is_async=False).run(ScriptedHost())
    assert said(prune(root)) == [(key_of("todo"), True, [], [])]
    assert not (root / "runs").exists()


def test_the_run_of_a_turn_that_cannot_be_read_stays(tmp_path: Path, prune: Prune) -> None:
    root, key = tmp_path / "root", key_of("todo")
    turn = Turn(root, is_async=False)
    turn.run(CallableHost(Booking()))
    whole = turn.path.read_bytes()
    turn.path.write_text("{")
    (left,) = prune(root)
    assert left["damage"] is not None
    assert (left["turn_key"], left["runs"], left["runs_left"]) == (key, [], [])
    with RunJournal(root / "runs" / "journal.db") as runs:
        assert runs.events(key)
    turn.path.write_bytes(whole)
    assert said(prune(root)) == [(key, True, [key], [])]


def test_where_the_runs_cannot_be_reached_no_turn_is_pruned(tmp_path: Path, prune: Prune) -> None:
    from turn_journal_runtime.errors import JournalCorruptError

    root = tmp_path / "root"
    Turn(root, is_async=False).run(CallableHost(Booking()))
    journal = root / "runs" / "journal.db"
    kept = journal.read_bytes()
    for file in journal.parent.glob("journal.db-*"):
        file.unlink()
    journal.write_bytes(b"no database" * 100)
    with pytest.raises(JournalCorruptError):
        prune(root)
    journal.write_bytes(kept)
    assert [turn["operation_id"] is not None for turn in prune(root)] == [True]
