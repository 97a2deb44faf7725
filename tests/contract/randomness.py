"""Random documents. TURN_JOURNAL_SEED repeats a run, TURN_JOURNAL_SOAK makes it long."""

from __future__ import annotations

import copy
import json
import os
import random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from tests.contract.cases import NAMED, journal_of

SEED = int(os.environ.get("TURN_JOURNAL_SEED") or random.randrange(2**31))
SOAK = os.environ.get("TURN_JOURNAL_SOAK") == "1"
SAFE = 2**53 - 1


def tried(examples: int, **more: Any) -> settings:
    """How often a property is tried."""
    return settings(
        max_examples=examples * 50 if SOAK else examples,
        deadline=None,
        database=None,
        print_blob=True,
        # One core serves all examples: it keeps nothing of a journal that is only inspected.
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
        **more,
    )


text = st.text(st.characters(codec="utf-8"), max_size=8)
numbers = st.integers(-SAFE, SAFE) | st.floats(allow_nan=False, allow_infinity=False)
any_json: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | numbers | text,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(text, inner, max_size=4),
    max_leaves=12,
)

PHASES: list[str] = journal_of("committed")["completed_phases"]
_KNOWN: list[Any] = [
    *PHASES,
    *[
        "terminal_closeout",
        "task_postcondition",
        "prepared",
        "think",
        "act",
        "check",
        "ship-it",
        "coder",
        "night-1",
        "t1",
    ],
    *["in_progress", "started", "scheduler_action_required", "committed", "stopped", "failed", "i1", "o1", "__proto__"],
    *["", " ", "\ufeff", "\u0085", "\u0000", None, True, False, 0, -0.0, 1, 1.0, 3, 2.0**53, 1e308, [], {}],
]
_known: st.SearchStrategy[Any] = st.sampled_from(_KNOWN)
_phases = st.integers(0, 8).map(lambda count: PHASES[:count])
_values = _known | _phases | any_json


def _pointers(value: Any, way: tuple[str, ...] = ()) -> set[tuple[str, ...]]:
    if not isinstance(value, dict):
        return set()
    return {(*way, key) for key in value}.union(*(_pointers(inner, (*way, key)) for key, inner in value.items()))


_PLACES = sorted(
    set[tuple[str, ...]]().union(*(_pointers(journal_of(name)) for name in NAMED))
    | {(key,) for key in ("effect_attempts", "effect_id", "note", "scheduler", "validation_stage", "host_result")}
)


@st.composite
def journals(draw: st.DrawFn, changes: int = 3) -> dict[str, Any]:
    """A named journal with a few changes, some of them where a rule looks."""
    journal: dict[str, Any] = json.loads(json.dumps(journal_of(draw(st.sampled_from(sorted(NAMED))))))
    for _ in range(draw(st.integers(0, changes))):
        *way, key = draw(st.sampled_from(_PLACES))
        parent: Any = journal
        for step in way:
            parent = parent.get(step) if isinstance(parent, dict) else None
        if not isinstance(parent, dict):
            continue
        if key in parent and draw(st.booleans()):
            del parent[key]
        else:
            # A copy: the next change may be made within it.
            parent[key] = copy.deepcopy(draw(_values))
    return journal


documents = journals() | any_json


def reordered(value: Any) -> Any:
    """The same value with the keys of all its objects the other way round."""
    if isinstance(value, list):
        return [reordered(item) for item in value]
    if isinstance(value, dict):
        return {key: reordered(value[key]) for key in reversed(value)}
    return value
