"""Random writes, retries and re-reads of one turn over the façade, beside a small model of what must come of them."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import pytest
from hypothesis import note, seed
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.contract.cases import journal_of, operation_id
from tests.contract.randomness import SEED, tried

from turn_journal_runtime.errors import JournalNotFoundError, TurnJournalError
from turn_journal_runtime.journal import (
    inspect_turn_journal,
    load_turn_journal,
    turn_journal_path,
    write_turn_journal,
)

if TYPE_CHECKING:
    from turn_journal_runtime.bridge import RuntimeClient

AUDIT = journal_of("audited")["recovery_audit"]


class State(NamedTuple):
    """All that the model knows of a journal."""

    status: str
    done: int
    failed_at: str | None = None
    note: int | None = None
    audited: bool = False


class Kind(NamedTuple):
    """A kind of turn: how its journals look, and what the model says of them."""

    journal: dict[str, Any]
    phases: list[str]
    statuses: list[str]
    plain: bool

    def fits(self, state: State) -> bool:
        last = len(self.phases)
        match state.status:
            case "started":
                return state.done == 0
            case "in_progress":
                return self.plain or state.done <= 5
            case "scheduler_action_required":
                return state.done == 5
            case "committed":
                return state.done == last
            case "stopped":
                return self.plain or state.done == 3
        return state.done < last and state.failed_at == self.phases[state.done]

    def grows(self, before: State, after: State) -> bool:
        if after.done == before.done:
            return True
        if after.done > before.done:
            return self.plain or (before.done, after.done) in {(0, 2), (2, 3), (3, 4), (4, 5), (5, 7)}
        return (before.status, before.failed_at, after.status) == ("failed", "validation", "in_progress")

    def verdict(self, before: State | None, after: State, expects_another: bool) -> str:
        """`appended`, `replayed`, or the kind of the refusal."""
        conflict = "journal_transition_conflict"
        if not self.fits(after):
            return conflict
        if before == after:
            return "replayed"
        if expects_another:
            return "journal_previous_conflict"
        if before is None:
            return "appended" if after.status in ("started", "in_progress") and after.done == 0 else conflict
        goes = {
            "started": self.statuses,
            "in_progress": [status for status in self.statuses if status != "started"],
            "scheduler_action_required": ["scheduler_action_required", "committed"],
            "failed": ["failed", "in_progress"],
        }.get(before.status, [before.status])
        rests = before.status == after.status and before.status not in ("started", "in_progress")
        if after.status not in goes or not self.grows(before, after):
            return conflict
        return conflict if rests and before._replace(audited=after.audited) != after else "appended"

    def following(self, before: State | None) -> list[State]:
        """Every journal that may be appended, without notes and audits."""
        states = []
        for status in self.statuses:
            for done in range(len(self.phases) + 1):
                failed_at = self.phases[done] if status == "failed" and done < len(self.phases) else None
                states.append(State(status, done, failed_at))
        return [state for state in states if self.verdict(before, state, expects_another=False) == "appended"]

    def action(self, state: State) -> str:
        """What is to be done with such a turn when no retry is asked for."""
        if state.status not in ("started", "in_progress", "scheduler_action_required"):
            return "return_existing"
        return "continue" if state.done < len(self.phases) else "blocked"

    def document(self, state: State) -> dict[str, Any]:
        journal = self.journal | {"status": state.status, "completed_phases": self.phases[: state.done]}
        if state.failed_at is not None:
            journal["receipt"] = {"failed_phase": state.failed_at}
        if state.note is not None:
            journal["note"] = state.note
        if state.audited:
            journal["recovery_audit"] = AUDIT
        return journal


TRANSACTION = Kind(
    journal_of("opened"),
    journal_of("committed")["completed_phases"],
    ["in_progress", "scheduler_action_required", "committed", "stopped", "failed"],
    plain=False,
)
CUSTOM = Kind(
    journal_of("custom"),
    journal_of("custom committed")["completed_phases"],
    ["started", "in_progress", "committed", "stopped", "failed"],
    plain=True,
)


class Turn(RuleBasedStateMachine):
    """One turn in a folder of its own."""

    kind: ClassVar[Kind]
    client: ClassVar[RuntimeClient]

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        names = {key: self.kind.journal[key] for key in ("goal_id", "turn_key")}
        self.path = turn_journal_path(self.root, **names)
        self.question = names | {"agent_id": "coder"}
        self.stored: State | None = None
        self.writes = 0

    @initialize()
    def begin(self) -> None:
        note(f"TURN_JOURNAL_SEED={SEED}")

    def write(self, state: State, *, expects_another: bool = False, **expectations: Any) -> None:
        """Writes, and holds the outcome against the model."""
        expected = self.kind.verdict(self.stored, state, expects_another)
        journal = self.kind.document(state)
        try:
            result = write_turn_journal(self.path, journal, **expectations, client=self.client)
        except TurnJournalError as error:
            assert error.kind == expected  # noqa: PT017 - which of the three comes of it is the model's to say
        else:
            assert ("appended" if result["appended"] else "replayed") == expected
            assert result["appended"] != result["replayed"]
            assert result["operation_id"] == operation_id(journal)
            self.stored = state

    @rule(
        choice=st.integers(0, 99),
        done=st.integers(0, 7),
        at=st.integers(0, 7),
        note=st.sampled_from([None, None, None, 1]),
        audited=st.booleans(),
    )
    def write_any(self, choice: int, done: int, at: int, note: int | None, audited: bool) -> None:
        """Any journal of the turn."""
        status = self.kind.statuses[choice % len(self.kind.statuses)]
        phases = self.kind.phases
        failed_at = phases[at % len(phases)] if status == "failed" else None
        self.write(State(status, min(done, len(phases)), failed_at, note, audited))

    @rule(choice=st.integers(0, 999), ends=st.integers(0, 9))
    def write_next(self, choice: int, ends: int) -> None:
        """A journal that follows; seldom one that ends the turn, so that the walks are long."""
        following = self.kind.following(self.stored)
        going_on = [state for state in following if state.status not in ("committed", "stopped")]
        states = following if ends == 0 else going_on or following
        if states:
            self.write(states[choice % len(states)])

    @precondition(lambda self: self.stored is not None)
    @rule()
    def write_again(self) -> None:
        """A retry of what is acknowledged is a replay, whatever it expects."""
        assert self.stored is not None
        self.write(self.stored, expected_previous=None)

    @rule(done=st.integers(0, 7), right=st.booleans())
    def write_after(self, done: int, right: bool) -> None:
        """A write that says what it follows."""
        state = State("in_progress", min(done, len(self.kind.phases)), note=2)
        actual = None if self.stored is None else operation_id(self.kind.document(self.stored))
        self.write(state, expects_another=not right, expected_previous=actual if right else f"sha256:{'0' * 64}")

    @precondition(lambda self: self.stored is not None)
    @rule()
    def write_for_another(self) -> None:
        """Another effect, another plan, another path: refused, and nothing changes."""
        journal = self.kind.document(self.stored or State("in_progress", 0))
        plan = journal["plan"] | {"note": 1}
        for change, kind in (
            ({"plan": plan}, "journal_plan_conflict"),
            ({"goal_id": "other"}, "journal_path_mismatch"),
            ({"turn_key": "other"}, "journal_path_mismatch"),
        ):
            with pytest.raises(TurnJournalError) as refused:
                write_turn_journal(self.path, journal | change, client=self.client)
            assert refused.value.kind == kind
        with pytest.raises(TurnJournalError) as refused:
            write_turn_journal(self.path, journal, expected_effect_id="other", client=self.client)
        assert refused.value.kind == "invalid_request"

    @rule(now=st.integers(0, 7))
    def kill_the_core(self, now: int) -> None:
        """The process is gone, what is acknowledged stands, and the next call has a new one."""
        if now == 0 and self.client.pid is not None:
            os.kill(self.client.pid, signal.SIGKILL)

    @precondition(lambda self: self.stored is not None)
    @rule(retry=st.booleans())
    def inspect(self, retry: bool) -> None:
        """Inspection says what the model says."""
        assert self.stored is not None
        found = inspect_turn_journal(self.root, **self.question, retry_failed=retry, client=self.client)
        is_open = self.kind.action(self.stored) != "return_existing"
        assert (found["journal_consistent"], found["replay_legal"]) == (True, not is_open)
        retried = retry and self.stored.status == "failed"
        assert found["recovery_decision"]["action"] == ("continue" if retried else self.kind.action(self.stored))
        assert (found["last_recovery"] is not None) == self.stored.audited

    @invariant()
    def stands_as_acknowledged(self) -> None:
        try:
            journal = load_turn_journal(self.path, client=self.client)
        except JournalNotFoundError:
            assert self.stored is None
        else:
            assert self.stored is not None
            assert journal == self.kind.document(self.stored)

    def teardown(self) -> None:
        shutil.rmtree(self.root, ignore_errors=True)


@pytest.mark.parametrize("kind", [TRANSACTION, CUSTOM], ids=["transaction", "custom phases"])
def test_a_turn_does_what_the_model_says(kind: Kind, client: RuntimeClient) -> None:
    machine = type("Turn", (Turn,), {"kind": kind, "client": client})
    print(f"TURN_JOURNAL_SEED={SEED}")
    run_state_machine_as_test(seed(SEED)(machine), settings=tried(8, stateful_step_count=30))
