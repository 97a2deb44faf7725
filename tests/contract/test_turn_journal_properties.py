"""What holds of every journal, over the façade: random ones, near the rules and far from them."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, seed
from hypothesis import strategies as st
from tests.contract.cases import journal_of, operation_id
from tests.contract.randomness import SEED, any_json, documents, reordered, text, tried

from turn_journal_runtime.journal import (
    interpret_turn_journal_projection,
    load_turn_journal,
    turn_journal_path,
    write_turn_journal,
)

if TYPE_CHECKING:
    from turn_journal_runtime.bridge import RuntimeClient
    from turn_journal_runtime.documents import Inspection


@pytest.fixture(autouse=True)
def _seed_of_the_run() -> None:
    print(f"TURN_JOURNAL_SEED={SEED}")


@st.composite
def questions(draw: st.DrawFn) -> dict[str, Any]:
    document = draw(documents)
    names = {"goal_id": draw(text), "agent_id": draw(text), "turn_key": draw(text)}
    if draw(st.integers(0, 3)):
        names |= _names_of(document)
    check = st.none() | st.sampled_from(
        [
            {"kind": "host_session_binding", "outcome": "passed"},
            {"kind": "host_session_binding", "outcome": "failed", "reason": "r"},
            {"kind": "host_retry_policy", "outcome": "required", "step_kind": "s"},
        ]
    )
    return {
        "journal": document,
        **names,
        "retry_failed": draw(st.booleans()),
        "session_recovery_check": draw(check),
    }


def _names_of(document: Any) -> dict[str, str]:
    def objects(value: Any, *keys: str) -> dict[str, Any]:
        for key in keys:
            value = value.get(key) if isinstance(value, dict) else None
        return value if isinstance(value, dict) else {}

    journal = objects(document)
    envelope = objects(journal, "plan", "turn_envelope")
    names = {
        "goal_id": journal.get("goal_id"),
        "agent_id": envelope.get("agent_id") or journal.get("agent_id"),
        "turn_key": journal.get("turn_key"),
    }
    return {key: value for key, value in names.items() if isinstance(value, str)}


@seed(SEED)
@tried(400)
@given(question=questions())
def test_inspection_never_fails_never_changes_and_means_what_it_says(
    question: dict[str, Any], client: RuntimeClient
) -> None:
    before = copy.deepcopy(question)
    found = interpret_turn_journal_projection(**question, client=client)
    assert repr(question) == repr(before)
    decision = found["recovery_decision"]
    assert found["replay_legal"] == (found["violations"] == [])
    if found["replay_legal"]:
        assert found["journal_consistent"]
        assert found["tombstone_retained"]
    if decision["action"] == "continue":
        assert found["journal_consistent"]
        assert decision["resume_from"] is not None
    assert decision["can_continue"] == (decision["action"] == "continue")


@seed(SEED)
@tried(150)
@given(question=questions())
def test_inspection_is_a_function_of_the_document_whatever_the_order_of_its_keys(
    question: dict[str, Any], client: RuntimeClient
) -> None:
    def ask(journal: Any) -> Inspection:
        return interpret_turn_journal_projection(**question | {"journal": journal}, client=client)

    found = ask(question["journal"])
    assert ask(copy.deepcopy(question["journal"])) == found
    assert ask(reordered(question["journal"])) == found


@seed(SEED)
@tried(60)
@given(value=any_json, key=text)
def test_what_is_stored_is_read_as_it_was_and_named_alike_in_both_languages(
    value: Any, key: str, client: RuntimeClient, tmp_path_factory: pytest.TempPathFactory
) -> None:
    journal = journal_of("plain") | {"data": {key: value}}
    path = turn_journal_path(tmp_path_factory.mktemp("root"), goal_id=journal["goal_id"], turn_key=journal["turn_key"])
    written = write_turn_journal(path, journal, client=client)
    assert written["operation_id"] == operation_id(journal) == operation_id(reordered(journal))
    assert load_turn_journal(path, client=client) == journal
    assert write_turn_journal(path, reordered(journal), client=client)["replayed"]
