"""Runs that come from runs, where two part, and runs that move. run-journal.md, sections 4 and 5."""

from __future__ import annotations

import json
import random
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
from tests.python.run_journal.forms import Form, drive

from turn_journal_runtime.errors import (
    InvalidJournalError,
    JournalConflictError,
    ResumeBudgetExhaustedError,
    RunNotFoundError,
    TurnBusyError,
)
from turn_journal_runtime.run_journal import (
    KIND_ITERATION,
    KIND_MODEL_DECISION,
    DurableRun,
    JournalEvent,
    RunJournal,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.python.run_journal.conftest import Address


async def loop(run: Any, ran: list[Any], last: str = "c") -> list[Any]:
    def tool(n: int) -> int:
        ran.append((run.run_id, n))
        return n

    def model() -> str:
        ran.append(last)
        return last

    found: list[Any] = [await run.tool("t", {"n": n}, tool) for n in range(3)]
    return [*found, await run.model(model, request={"p": last})]


# Forks


def test_a_fork_replays_up_to_its_step_and_then_goes_its_own_way(form: Form, journal: RunJournal) -> None:
    ran: list[Any] = []
    drive(form, journal, "r", partial(loop, ran=ran), agent="coder", task="t", metadata={"m": 1})
    before = journal.events("r")
    journal.fork("r", "s", upto=1)
    assert journal.parent("s") == ("r", 1)
    assert journal.parent("r") is None
    fork = journal.run_meta("s")
    assert fork is not None
    assert (fork.agent, fork.task, fork.metadata, fork.status) == ("coder", "t", {"m": 1}, "running")
    ran.clear()
    assert drive(form, journal, "s", partial(loop, ran=ran, last="other")) == [0, 1, 2, "other"]
    assert ran == [("s", 2), "other"]
    assert journal.events("r") == before, "the original never changes"
    keys = [event.payload["idempotency_key"] for event in journal.events("s") if event.kind == "tool_call"]
    assert keys == ["r:0:t", "r:1:t", "s:2:t"], "an effect keeps the key that it happened under"


def test_a_fork_of_a_failed_step_has_its_failure(form: Form, journal: RunJournal) -> None:
    calls: list[int] = []

    async def failing(run: Any) -> str:
        def fails() -> None:
            calls.append(1)
            raise ValueError("no")

        try:
            await run.tool("t", {}, fails)
        except ValueError as error:
            await run.iteration(0)
            return str(error)
        return "worked"

    drive(form, journal, "r", failing)
    journal.fork("r", "s", upto=1)
    assert (drive(form, journal, "s", failing), calls) == ("no", [1])


def test_a_fork_needs_a_run_and_a_new_id(form: Form, journal: RunJournal) -> None:
    drive(form, journal, "r", partial(loop, ran=[]))
    journal.append(JournalEvent("bare", 0, KIND_ITERATION, {"index": 0}))
    with pytest.raises(RunNotFoundError):
        journal.fork("nobody", "s", upto=1)
    for taken in ("r", "bare"):
        with pytest.raises(JournalConflictError):
            journal.fork("r", taken, upto=1)
    with pytest.raises(InvalidJournalError):
        journal.fork("r", "", upto=1)
    for number in (-1, "all", 1.0, True, None):
        with pytest.raises(InvalidJournalError):
            journal.fork("r", "s", upto=number)  # type: ignore[arg-type]
    assert journal.run_meta("s") is None


# Differences


def test_equal_runs_do_not_differ_whatever_their_keys_and_labels(form: Form, journal: RunJournal) -> None:
    for run_id in ("a", "b"):
        drive(form, journal, run_id, lambda run: run.tool("t", {"x": 1}, lambda x: x, label=f"call {run.run_id}"))
    assert journal.diff("a", "b") is None


def test_the_first_step_at_which_runs_part_is_named_with_its_fields(form: Form, journal: RunJournal) -> None:
    async def steps(run: Any, q: str) -> None:
        await run.iteration(0)
        await run.tool("search", {"q": q, "n": 1}, lambda q, n: q)
        await run.model(lambda: q)

    drive(form, journal, "a", partial(steps, q="one"))
    drive(form, journal, "b", partial(steps, q="two"))
    found = journal.diff("a", "b")
    assert found is not None
    assert (found.seq, found.kind, found.fields) == (1, "tool_call", ("args.q",))
    assert (found.kinds, found.ended) == (("tool_call", "tool_call"), None)
    assert found.a is not None
    assert found.b is not None
    assert (found.a["args"]["q"], found.b["args"]["q"]) == ("one", "two")


@pytest.mark.parametrize(
    ("other", "seq", "kind", "kinds", "ended"),
    [
        ([], 0, KIND_ITERATION, (KIND_ITERATION, None), "b"),
        ([(0, KIND_ITERATION)], 1, KIND_MODEL_DECISION, (KIND_MODEL_DECISION, None), "b"),
        ([(0, KIND_ITERATION), (1, KIND_ITERATION)], 1, KIND_ITERATION, (KIND_MODEL_DECISION, KIND_ITERATION), None),
        ([(0, KIND_ITERATION), (2, KIND_MODEL_DECISION)], 1, KIND_MODEL_DECISION, (KIND_MODEL_DECISION, None), None),
        (
            [(0, KIND_ITERATION), (1, KIND_MODEL_DECISION), (5, KIND_ITERATION)],
            5,
            KIND_ITERATION,
            (None, KIND_ITERATION),
            "a",
        ),
    ],
)
def test_a_step_that_one_run_lacks_is_where_they_part(
    journal: RunJournal,
    other: list[tuple[int, str]],
    seq: int,
    kind: str,
    kinds: tuple[str | None, str | None],
    ended: str | None,
) -> None:
    for run_id, steps in (("a", [(0, KIND_ITERATION), (1, KIND_MODEL_DECISION)]), ("b", other)):
        journal.open_run(run_id)
        journal.append_many([JournalEvent(run_id, at, name) for at, name in steps])
    for one, two in (("a", "b"), ("b", "a")):
        found = journal.diff(one, two)
        assert found is not None
        assert (found.seq, found.kind, found.fields) == (seq, kind, ("kind",))
        as_asked = one == "a"
        assert found.kinds == (kinds if as_asked else kinds[::-1])
        assert found.ended == (ended if as_asked or ended is None else {"a": "b", "b": "a"}[ended])


def test_runs_longer_than_what_is_read_at_once_are_compared_to_their_ends(journal: RunJournal) -> None:
    for run_id, last in (("a", 1), ("b", 1), ("c", 2)):
        journal.open_run(run_id)
        journal.append_many(JournalEvent(run_id, at, KIND_ITERATION, {"index": at}) for at in range(700))
        journal.append_many(JournalEvent(run_id, at, KIND_MODEL_DECISION, {"n": 1}) for at in range(700))
        journal.append(JournalEvent(run_id, 700, KIND_ITERATION, {"index": last}))
    assert journal.diff("a", "b") is None
    found = journal.diff("a", "c")
    assert found is not None
    assert (found.seq, found.fields) == (700, ("index",))


def test_an_unknown_run_differs_from_nothing(journal: RunJournal) -> None:
    journal.open_run("a")
    for one, two in (("a", "b"), ("b", "a")):
        with pytest.raises(RunNotFoundError):
            journal.diff(one, two)


# Export and import


@pytest.fixture
def other(address: Address) -> RunJournal:
    return RunJournal(address.with_name("other.db"))


def exported(journal: RunJournal) -> list[str]:
    async def steps(run: Any) -> None:
        def fails() -> None:
            raise ValueError("no ü")

        await run.tool("t", {"n": 10**30, "f": 1.0, "deep": nested(120)}, lambda **args: args)
        with pytest.raises(ValueError, match="no"):
            await run.tool("t", {}, fails)
        await run.model(lambda: "x" * 100_000)

    journal.open_run("origin")
    journal.fork("origin", "r", upto=0)
    drive("sync", journal, "r", steps)
    return list(journal.export("r"))


def nested(depth: int) -> Any:
    value: Any = 0
    for _ in range(depth):
        value = [value]
    return value


def test_an_exported_run_is_the_same_run_elsewhere(journal: RunJournal, other: RunJournal) -> None:
    lines = exported(journal)
    assert all("\n" not in line and json.loads(line) for line in lines)
    assert other.import_run(f"{line}\n" for line in lines) == "r"
    assert other.events("r") == journal.events("r")
    assert other.run_meta("r") == journal.run_meta("r")
    assert other.parent("r") == journal.parent("r") == ("origin", 0)
    assert other.diff("r", "r") is None
    assert list(other.export("r")) == lines
    other.close()


def test_an_imported_run_is_resumed_with_its_failures_and_its_count(journal: RunJournal, other: RunJournal) -> None:
    async def steps(run: Any, dies: bool) -> None:
        def fails() -> None:
            assert dies, "it ran again"
            raise ValueError("no")

        with pytest.raises(ValueError, match="no"):
            await run.tool("t", {}, fails)
        await run.iteration(0)
        if dies:
            raise KeyboardInterrupt

    for _ in range(3):
        with pytest.raises(KeyboardInterrupt):
            drive("sync", journal, "r", partial(steps, dies=True))
    other.import_run(journal.export("r"))
    with pytest.raises(ResumeBudgetExhaustedError):
        drive("sync", other, "r", partial(steps, dies=False), max_resumes=2)
    drive("sync", other, "r", partial(steps, dies=False), max_resumes=3)
    other.close()


SPOILED: list[Callable[[list[str]], list[str]]] = [
    lambda lines: [],
    lambda lines: lines[:1],
    lambda lines: lines[:-1],
    lambda lines: lines[1:],
    lambda lines: [*lines[:2], *lines[3:]],
    lambda lines: [lines[0], lines[2], lines[1], *lines[3:]],
    lambda lines: [lines[0], lines[1].replace("1.0", "2.0"), *lines[2:]],
    lambda lines: [lines[0].replace("turn-journal-run", "other"), *lines[1:]],
    lambda lines: [*lines, lines[-1]],
    lambda lines: [line[: len(line) // 2] for line in lines],
    lambda lines: ["[]", "[]"],
    lambda lines: ["null"] * 3,
]


@pytest.mark.parametrize("spoil", SPOILED)
def test_a_cut_or_altered_export_is_refused_whole(
    journal: RunJournal, other: RunJournal, spoil: Callable[[list[str]], list[str]]
) -> None:
    lines = exported(journal)
    with pytest.raises(InvalidJournalError, match="Nothing was imported"):
        other.import_run(spoil(lines))
    assert other.run_meta("r") is None
    assert other.events("r") == []
    other.close()


def test_random_damage_to_an_export_is_never_imported(journal: RunJournal, other: RunJournal) -> None:
    whole = "\n".join(exported(journal))
    seed = random.randrange(2**32)
    print(f"seed: {seed}")
    dice = random.Random(seed)
    for _ in range(100):
        at = dice.randrange(len(whole))
        changed = whole[:at] + chr(dice.randrange(32, 127)) + whole[at + 1 :]
        if changed == whole:
            continue
        with pytest.raises(InvalidJournalError):
            other.import_run(changed.split("\n"))
    assert other.run_meta("r") is None
    other.close()


def test_a_run_that_is_there_is_replaced_only_on_request(journal: RunJournal, other: RunJournal) -> None:
    lines = exported(journal)
    other.open_run("r", task="mine")
    other.append(JournalEvent("r", 50, KIND_ITERATION, {"index": 50}))
    with pytest.raises(JournalConflictError, match="overwrite=True"):
        other.import_run(lines)
    assert other.last_iteration("r") == 50
    other.import_run(lines, overwrite=True)
    assert other.events("r") == journal.events("r")
    other.close()


def test_a_run_that_is_driven_is_not_replaced_and_not_deleted(journal: RunJournal, address: Address) -> None:
    with RunJournal(address) as second, DurableRun(second, "driven") as run:
        run.iteration(0)
        driven = list(second.export("driven"))
        with pytest.raises(TurnBusyError):
            journal.import_run(driven, overwrite=True)
        with pytest.raises(TurnBusyError):
            journal.delete_run("driven")
        assert len(journal.events("driven")) == 1


def test_what_is_not_there_cannot_be_exported(journal: RunJournal) -> None:
    with pytest.raises(RunNotFoundError):
        journal.export("nobody")
