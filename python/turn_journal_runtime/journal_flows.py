"""The conversations behind the public functions on turn journals; `journal` and `aio` drive them."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, Any, Final

from .address import absolute
from .flow import Call, Flow
from .session_recovery import SessionBindingResolver, assessment_flow

if TYPE_CHECKING:
    import os

    from .documents import Inspection, Journal, RecoveryCheck, StoredJournal, WriteResult


class Unset(enum.Enum):
    """The type of `UNSET`."""

    UNSET = "unset"


#: The reason of a decision that lacks a check of the host's session.
BINDING_CHECK_UNAVAILABLE: Final = "binding_check_unavailable"

#: Not given, where None means something else.
UNSET: Final = Unset.UNSET


def interpret(
    journal: Any,
    *,
    goal_id: str,
    agent_id: str,
    turn_key: str,
    retry_failed: bool = False,
    session_recovery_check: RecoveryCheck | None = None,
) -> Flow[Inspection]:
    inspection: Inspection = yield Call(
        "turn_journal.inspect",
        {
            "journal": journal,
            "goal_id": goal_id,
            "agent_id": agent_id,
            "turn_key": turn_key,
            "retry_failed": retry_failed,
            "session_recovery_check": session_recovery_check,
        },
    )
    return inspection


def write(
    path: str | os.PathLike[str],
    journal: Any,
    *,
    expected_effect_id: str | None,
    expected_previous: str | Unset | None,
    lease: int | None = None,
) -> Flow[WriteResult]:
    params: dict[str, Any] = {
        "path": absolute(path),
        "journal": journal,
        "expected_effect_id": expected_effect_id,
    }
    if not isinstance(expected_previous, Unset):
        params["expected_previous"] = expected_previous
    if lease is not None:
        params["lease"] = lease
    result: WriteResult = yield Call("turn_journal.write", params)
    return result


def read(path: str | os.PathLike[str], at: int | None = None) -> Flow[StoredJournal]:
    stored: StoredJournal = yield Call("turn_journal.read", {"path": absolute(path), "at": at})
    return stored


def load(path: str | os.PathLike[str], at: int | None) -> Flow[Journal]:
    stored = yield from read(path, at)
    return stored["journal"]


def inspect(
    runtime_root: str | os.PathLike[str],
    path: str | os.PathLike[str],
    *,
    goal_id: str,
    agent_id: str,
    turn_key: str,
    retry_failed: bool,
    session_binding_resolver: SessionBindingResolver | None,
) -> Flow[Inspection]:
    inspection: Inspection = yield Call(
        "turn_journal.inspect_stored",
        {
            "runtime_root": absolute(runtime_root),
            "goal_id": goal_id,
            "agent_id": agent_id,
            "turn_key": turn_key,
            "retry_failed": retry_failed,
            "session_recovery_check": None,
        },
    )
    if inspection["recovery_decision"]["reason"] != BINDING_CHECK_UNAVAILABLE:
        return inspection
    # The core wants to know of the host's session. The journal that is assessed is the one that is inspected again,
    # whatever is written meanwhile.
    journal = yield from load(path, None)
    plan = journal.get("plan")
    plan = plan if isinstance(plan, dict) else {}
    request = {"session": plan.get("session"), "turn_envelope": plan.get("turn_envelope")}
    assessment = yield from assessment_flow(request, journal, session_binding_resolver=session_binding_resolver)
    return (
        yield from interpret(
            journal,
            goal_id=goal_id,
            agent_id=agent_id,
            turn_key=turn_key,
            retry_failed=retry_failed,
            session_recovery_check=assessment.check,
        )
    )
