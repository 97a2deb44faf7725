"""Turns that are over and the runs inside of them, made small together. runtime.md, section 6.

Which turns are over the core says, by pruning them. Their runs go after them, so that a kill in between leaves runs
without need, which the next prune finds, and never a turn that goes on without its run: that would do its steps again.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

from .. import store_flows
from ..flow import Ask, Call

if TYPE_CHECKING:
    from ..documents import PrunedTurn
    from ..flow import Flow
    from ..run_journal import RunJournal
    from .root import TurnRoot

#: Keys that one call of the core looks for.
_KEYS_A_CALL: Final = 10_000


def prune_flow(
    root: TurnRoot,
    given: RunJournal | None,
    *,
    older_than: float,
    keep: int | None,
    goal_id: str | None,
    given_up: bool,
    dry_run: bool,
) -> Flow[list[PrunedTurn]]:
    """Prunes the turns of a root, then removes the runs of all that were pruned, now or before."""
    with ExitStack() as opened:
        # First of all: where the runs cannot be reached, their turns stay as well.
        journal: RunJournal | None = given
        if journal is None:
            journal = yield Ask(lambda: opened.enter_context(root.runs_there()))
        turns = yield from store_flows.prune(
            root.address, older_than=older_than, keep=keep, goal_id=goal_id, given_up=given_up, dry_run=dry_run
        )
        pruned: list[PrunedTurn] = [{**turn, "runs": [], "runs_left": []} for turn in turns]
        if journal is None:
            return pruned
        runs: dict[str, list[str]] = yield Ask(_runs_of_turns, (journal,))
        unknown = sorted(runs.keys() - {turn["turn_key"] for turn in pruned})
        for at in range(0, len(unknown), _KEYS_A_CALL):
            keys = unknown[at : at + _KEYS_A_CALL]
            params = {"runtime_root": root.address, "goal_id": goal_id, "turn_keys": keys}
            found = yield Call("turn_journal.find_pruned", params)
            pruned += map(_pruned_before, found["turns"])
        yield Ask(partial(_remove_runs, journal, pruned, runs, dry_run=dry_run))
        return pruned


def _pruned_before(turn: dict[str, str]) -> PrunedTurn:
    return {
        "goal_id": turn["goal_id"],
        "turn_key": turn["turn_key"],
        "damage": None,
        "operation_id": None,
        "runs": [],
        "runs_left": [],
    }


def _runs_of_turns(journal: RunJournal) -> dict[str, list[str]]:
    """The runs of turns, by the turns' keys."""
    from ..run_journal.copying import run_ids
    from ..run_journal.retention import turn_of

    found: dict[str, list[str]] = {}
    for run_id in run_ids(journal):
        turn_key = turn_of(run_id)
        if turn_key is not None:
            found.setdefault(turn_key, []).append(run_id)
    return found


def _remove_runs(journal: RunJournal, pruned: list[PrunedTurn], runs: dict[str, list[str]], *, dry_run: bool) -> None:
    """Removes the runs of pruned turns, and notes at each turn what became of its own."""
    from ..run_journal.retention import remove_all

    over = [turn for turn in pruned if turn["damage"] is None and turn["turn_key"] in runs]
    # Once each: a folder that was copied by hand may have a key in two goals.
    going = dict.fromkeys(run_id for turn in over for run_id in runs[turn["turn_key"]])
    gone = remove_all(journal, list(going), dry_run=dry_run)
    for turn in over:
        turn["runs"] = [run_id for run_id in runs[turn["turn_key"]] if gone[run_id]]
        turn["runs_left"] = [run_id for run_id in runs[turn["turn_key"]] if gone[run_id] is False]
