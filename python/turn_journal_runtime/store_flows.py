"""The conversations behind the public functions on a whole store; `store` and `aio` drive them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from .address import absolute
from .flow import Call, Flow

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator

    from .documents import PrunedTurn, RepairResult, TurnHead, TurnTransition, VerifiedTurn, VerifyReport

#: How many heads one call of the core compares.
_HEADS_A_CALL = 1000


class Listing(NamedTuple):
    """A long answer, asked for page by page so that it is never in memory as a whole."""

    method: str
    field: str
    params: dict[str, Any]

    def page(self, after: Any) -> Call:
        """The call for the page after that one; None: the first."""
        return Call(self.method, {**self.params, "after": after})


def each(listing: Listing) -> Generator[Call, Any, list[Any]]:
    """Every item of a listing that is known to be short."""
    items: list[Any] = []
    after = None
    while True:
        page = yield listing.page(after)
        items += page[listing.field]
        after = page["next"]
        if after is None:
            return items


def turns(runtime_root: str | os.PathLike[str], goal_id: str | None, status: str | None) -> Listing:
    return Listing("turn_journal.list", "turns", {**_where(runtime_root, goal_id), "status": status})


def recoverable(runtime_root: str | os.PathLike[str], goal_id: str | None, retry_failed: bool) -> Listing:
    return Listing("turn_journal.recoverable", "turns", {**_where(runtime_root, goal_id), "retry_failed": retry_failed})


def heads(runtime_root: str | os.PathLike[str], goal_id: str | None) -> Listing:
    return Listing("turn_journal.heads", "heads", _where(runtime_root, goal_id))


def history(path: str | os.PathLike[str]) -> Flow[list[TurnTransition]]:
    return (yield from each(Listing("turn_journal.history", "transitions", {"path": absolute(path)})))


def find_settlement(
    runtime_root: str | os.PathLike[str], *, goal_id: str, agent_id: str, todo_id: str, turn_instance_id: str
) -> Flow[str | None]:
    found = yield Call(
        "turn_journal.find_settlement",
        {
            **_where(runtime_root, goal_id),
            "agent_id": agent_id,
            "todo_id": todo_id,
            "turn_instance_id": turn_instance_id,
        },
    )
    turn_key: str | None = found["turn_key"]
    return turn_key


def verify(
    runtime_root: str | os.PathLike[str],
    *,
    goal_id: str | None,
    turn_key: str | None,
    heads: list[TurnHead] | None,
    progress: Callable[[VerifiedTurn], None] | None,
) -> Flow[VerifyReport]:
    params = {**_where(runtime_root, goal_id), "turn_key": turn_key}
    parts = [None] if heads is None else [heads[at : at + _HEADS_A_CALL] for at in range(0, len(heads), _HEADS_A_CALL)]
    report: VerifyReport = {"ok": True, "turns": 0, "transitions": 0, "unfinished": 0, "problems": []}
    for part in parts:
        listing = Listing("turn_journal.verify", "turns", {**params, "heads": part})
        after = None
        while True:
            page = yield listing.page(after)
            for turn in page["turns"]:
                _count(report, turn)
                if progress is not None:
                    progress(turn)
            after = page["next"]
            if after is None:
                break
    return report


def _count(report: VerifyReport, turn: VerifiedTurn) -> None:
    report["turns"] += 1
    report["transitions"] += turn["transitions"]
    report["unfinished"] += turn["unfinished"]
    if not turn["ok"]:
        report["ok"] = False
        report["problems"].append(turn)


def prune(
    runtime_root: str | os.PathLike[str],
    *,
    older_than: float,
    keep: int | None,
    goal_id: str | None,
    given_up: bool,
    dry_run: bool,
) -> Flow[list[PrunedTurn]]:
    terms = {"older_than": older_than, "keep": keep, "given_up": given_up, "dry_run": dry_run}
    params = {**_where(runtime_root, goal_id), **terms}
    return (yield from each(Listing("turn_journal.prune", "turns", params)))


def repair(path: str | os.PathLike[str], plan: str | None) -> Flow[RepairResult]:
    result: RepairResult = yield Call("turn_journal.repair", {"path": absolute(path), "plan": plan})
    return result


def _where(runtime_root: str | os.PathLike[str], goal_id: str | None) -> dict[str, Any]:
    return {"runtime_root": absolute(runtime_root), "goal_id": goal_id}
