"""An inspection for a person: the verdict first, then why, then what to do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .explanations import EFFECTS, VIOLATIONS, Explanation, explain_reason
from .output import Block, Heading, Line, Points, Report

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..documents import Inspection

#: A violation that says only that the turn is still open.
_OPEN = "journal_not_terminal"
_PRUNED = ("OVER, and not to be taken up again: it was given up, and then pruned.", "bold red")
_BEGIN_ANOTHER = "Start a new turn for the same work."


def report_of(
    turn: str,
    inspection: Inspection,
    *,
    given_up: Mapping[str, Any] | None = None,
    pruned: bool = False,
    owner_assumed: bool = False,
    failure: str | None = None,
) -> Report:
    """The report of `turn-journal inspect`.

    Args:
        turn: What the turn is called.
        inspection: What the core says of it; it is the report's document, as it is.
        given_up: Who gave it up, when and why.
        pruned: Whether it was given up, and then pruned.
        owner_assumed: Whether the agent was taken from the journal itself.
        failure: What the turn failed of, as its journal tells it.
    """
    decision = inspection["recovery_decision"]
    verdict, style = _PRUNED if pruned else _verdict(inspection)
    reason = explain_reason(decision["reason"])
    # That an open turn is open is no second reason, neither why it may go on nor why it may not.
    violations = [name for name in inspection["violations"] if name != _OPEN] or (
        [] if decision["can_continue"] else inspection["violations"]
    )
    named = [(name, VIOLATIONS.get(name, Explanation(name, ""))) for name in violations]
    done = ", ".join(inspection["completed_phases"]) or "none"
    blocks: list[Block] = [
        Line(verdict, style),
        Line(f"{turn} · {inspection['journal_status'] or 'no status'} · completed phases: {done}", "dim"),
        Heading("Why"),
        Points(
            [
                f"{decision['reason']}: {reason.why}",
                *([failure] if failure else []),
                *(f"{name}: {text.why}" for name, text in named),
            ]
        ),
        Heading("What to do"),
        Points(
            list(
                dict.fromkeys(
                    [_BEGIN_ANOTHER if pruned else reason.what_to_do, *(text.what_to_do for _, text in named)]
                )
            )
        ),
        Heading("What the turn is known to have done"),
        Points([_effect(name, inspection) for name in EFFECTS]),
    ]
    checks = [
        f"{check['kind']}: {check['outcome']}" + (f" ({check['reason']})" if "reason" in check else "")
        for check in decision["checks"]
    ]
    if checks:
        blocks += [Heading("Checks"), Points(checks)]
    audit = inspection["last_recovery"]
    if given_up is not None:
        said = f"by {given_up.get('by')} at {given_up.get('at')}: {given_up.get('reason')}"
        blocks += [Heading("Given up"), Points([said])]
    elif audit is not None:
        planned, actual = audit["planned"], audit["actual"]
        begun = "ended" if actual["status"] == "finished" else "began, and did not end"
        blocks += [
            Heading("Last recovery"),
            Points(
                [
                    f"planned: {planned['action']}, {planned['reason']}"
                    + (f", from {planned['resume_from']}" if planned["resume_from"] else ""),
                    f"it {begun}: status {actual['journal_status']}, {len(actual['completed_phases'])} phases done",
                ]
            ),
        ]
    if owner_assumed:
        blocks.append(Line("The owner was taken from the journal and so not checked; give --agent to check it.", "dim"))
    return Report(inspection, blocks)


def failure_of(journal: Mapping[str, Any]) -> str | None:
    """What a failed turn failed of, in one line; None when it did not fail, or its journal does not tell."""
    receipt, failure = journal.get("receipt"), journal.get("host_failure")
    phase = receipt.get("failed_phase") if isinstance(receipt, dict) else None
    if journal.get("status") != "failed" or not isinstance(phase, str):
        return None
    kind = failure.get("kind") if isinstance(failure, dict) and phase == "host_execute" else None
    reason = journal.get("reason")
    told = f": {reason}" if isinstance(reason, str) and reason else ""
    return f"It failed at {phase}" + (f", {kind}" if isinstance(kind, str) else "") + told


def _verdict(inspection: Inspection) -> tuple[str, str]:
    decision = inspection["recovery_decision"]
    if decision["can_continue"]:
        host = "the host is started again" if decision["reinvoke_host"] else "the host is not started again"
        return f"MAY GO ON from {decision['resume_from']}; {host}.", "bold yellow"
    if inspection["replay_legal"] and decision["action"] == "blocked":
        return "OVER, and not to be tried again: its recorded failure is all there is.", "bold red"
    if inspection["replay_legal"] and inspection["journal_status"] == "failed":
        return "OVER: it failed, and nothing runs again unless another attempt is asked for.", "bold red"
    if inspection["replay_legal"]:
        return "OVER: its recorded result may be returned, and nothing runs again.", "bold green"
    return "BLOCKED: nothing may run, and no recorded result may be returned.", "bold red"


def _effect(name: str, inspection: Inspection) -> str:
    effects: dict[str, bool | None] = {**inspection["recorded_effects"]}  # type: ignore[dict-item]
    done, not_done, unknown = EFFECTS[name]
    known = effects[name]
    return f"{name}: {unknown if known is None else done if known else not_done}"
