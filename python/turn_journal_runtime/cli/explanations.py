"""What the names of the contract mean and what to do about each: the texts of `inspect` and of docs/turn-journal.md.

One entry per violation and per reason of a recovery decision, in the order of turn-journal.md, sections 3 and 5. Tests
hold the keys to the core's schemas and to the page.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Explanation(NamedTuple):
    """What a name says, and what to do about it."""

    why: str
    what_to_do: str


_REBUILD: Final = "Plan the turn anew with `run_turn`; keep this file as evidence."

VIOLATIONS: Final[dict[str, Explanation]] = {
    "goal_identity_missing": Explanation(
        "The journal, its envelope, its settlement or the question names no goal.",
        "Name the goal in your question, and `goal_id` in the journal; a plain turn has it at the top level.",
    ),
    "goal_mismatch": Explanation(
        "The journal, its plan and the question name different goals.",
        "You have another goal's journal: check the path and the goal you asked for.",
    ),
    "goal_ref_binding_incomplete": Explanation(
        "Only one of plan and transaction has a `goal_ref`.",
        "Plan the turn again with both or none.",
    ),
    "goal_ref_binding_invalid": Explanation(
        "A `goal_ref` is malformed.",
        "Plan the turn again: `goal_id`, and `goal_instance_id` as `ginst_` and 32 hex digits.",
    ),
    "goal_ref_binding_mismatch": Explanation(
        "The two `goal_ref`s differ, or name another goal.",
        "The goal was replaced by a new instance: plan a new turn for that one.",
    ),
    "owner_identity_missing": Explanation(
        "No agent is named.",
        "Name the agent in your question, and `agent_id` in the journal; a plain turn has it at the top level.",
    ),
    "owner_mismatch": Explanation(
        "Another agent owns the turn.",
        "Leave it to its owner.",
    ),
    "settlement_identity_invalid": Explanation(
        "The settlement's identity is incomplete, or its effect id does not follow from it.",
        "Take the settlement from the orchestrator as it is; never edit it.",
    ),
    "settlement_turn_instance_mismatch": Explanation(
        "The settlement is of another attempt at this work.",
        "Plan the turn again.",
    ),
    "settlement_binding_mismatch": Explanation(
        "The settlement is for other work than the envelope selects.",
        "Plan the turn again: the selection changed after it was settled.",
    ),
    "turn_key_identity_missing": Explanation(
        "A place that has to name the turn's key does not.",
        "Name the key in your question, and `turn_key` in the journal; look at `host_result` and `receipt`, too.",
    ),
    "turn_key_mismatch": Explanation(
        "The journal, its result, its receipt and the question name different keys.",
        "A result of another turn was put in, or you asked for another turn.",
    ),
    "plan_phases_invalid": Explanation(
        "`plan.phases` is no list of distinct names, or `plan.host_phases` no part of it.",
        "Correct the plan and begin a new turn: plans do not change.",
    ),
    "completed_phases_invalid": Explanation(
        "`completed_phases` is no list.",
        "The journal is damaged: `turn-journal verify` says whether its history is whole.",
    ),
    "completed_phases_not_ordered_prefix": Explanation(
        "The completed phases are not the first ones in order.",
        "Another program wrote it, or it is damaged: `turn-journal history` shows where it went wrong.",
    ),
    "journal_status_phase_mismatch": Explanation(
        "The status and the number of phases contradict each other.",
        "Another program wrote it, or it is damaged: `turn-journal history` shows where it went wrong.",
    ),
    "journal_not_terminal": Explanation(
        "The turn is open.",
        "Nothing is wrong: see its recovery decision.",
    ),
    "journal_status_unsupported": Explanation(
        "This version does not know the status.",
        "Upgrade, or leave the turn to the program that wrote it.",
    ),
    "prepared_effect_attempts_invalid": Explanation(
        "`effect_attempts` is no object.",
        "Remove the key if no effect is pending.",
    ),
    "prepared_effect_count_invalid": Explanation(
        "Not exactly one effect is pending.",
        "Prepare one effect at a time; remove the key when it is resolved.",
    ),
    "prepared_effect_step_unsupported": Explanation(
        "No such step can be pending.",
        "Use `durable_writeback`, `quota_spend` or `terminal_closeout`; in a plain turn a phase of its plan.",
    ),
    "prepared_effect_identity_invalid": Explanation(
        "The attempt is not `prepared`, or its reference is not `<effect id>#<step>`.",
        "The attempt is of another turn: find out what was sent before you go on.",
    ),
    "prepared_effect_phase_invalid": Explanation(
        "The phases before the step are not exactly the completed ones.",
        "Resolve the effect before you complete its phase.",
    ),
    "prepared_effect_status_invalid": Explanation(
        "An effect is pending in a turn that is neither in progress nor failed.",
        "Find out whether it was sent before you close the turn.",
    ),
}

_RETRY_LATER: Final = "Start a new turn for the same work, or change what failed; this one stays as evidence."

REASONS: Final[dict[str, Explanation]] = {
    "journal_inconsistent": Explanation(
        "The journal contradicts itself or your question, so nothing it says can be relied on.",
        "Look at the violations. Nothing is run until they are gone.",
    ),
    "terminal_result_retained": Explanation(
        "The turn is over and its result is on record.",
        "Nothing to do: its recorded result is what a replay returns.",
    ),
    "failed_retry_not_requested": Explanation(
        "The turn failed, and nobody has asked for another attempt.",
        "Ask for one with `--retry-failed` (`retry_failed=True`), or leave it as it is.",
    ),
    "host_retry_contract_invalid": Explanation(
        "The record of the host's failure is not what the retry policy writes.",
        "Make it with `build_host_failure_record`, which knows the policy.",
    ),
    "host_retry_budget_exhausted": Explanation(
        "The host failed as often as the retry policy allows for this kind of failure.",
        _RETRY_LATER,
    ),
    "host_retry_not_available": Explanation(
        "The host ran out of output, which the same attempt would again.",
        "Make the task smaller or the budget larger, and plan a new turn.",
    ),
    "binding_check_unavailable": Explanation(
        "The host's session outlived it, and nobody said which session that is.",
        "Say who knows it: `--resolver module:function`, or `session_binding_resolver` in your program.",
    ),
    "host_session_binding_rejected": Explanation(
        "The live session is not the one this turn was working in.",
        "Nothing is resumed in a stranger's session. Restore the session, or plan a new turn.",
    ),
    "recovery_phase_unavailable": Explanation(
        "Every phase is completed, or the one that failed cannot be resumed.",
        "There is nothing to go on with: write the terminal status, or plan a new turn.",
    ),
    "recovery_budget_exhausted": Explanation(
        "The turn was recovered as often as is allowed, without coming to an end.",
        "Something kills it every time: find out what before you raise `max_recoveries`, or give the turn up.",
    ),
    "prepared_effect_unknown": Explanation(
        "An effect was about to be sent, and its provider cannot say whether it happened.",
        "Look at its target with the effect's reference, then let the provider's readback answer.",
    ),
    "resolve_prepared_effect": Explanation(
        "An effect was about to be sent when the turn stopped; whether it happened is asked first.",
        "Recover the turn: the provider's readback decides, and what happened is not sent again.",
    ),
    "resume_scheduler": Explanation(
        "The work is done and paid for; the scheduler has still to act.",
        "Recover the turn, or acknowledge it with `acknowledge_turn` when the scheduler has acted.",
    ),
    "retry_failed_phase": Explanation(
        "The turn failed, another attempt was asked for, and everything allows it.",
        "Recover the turn; completed phases are not repeated.",
    ),
    "resume_in_progress": Explanation(
        "The turn stopped in the middle, and its journal is sound.",
        "Recover the turn; completed phases are not repeated. `turn-journal give-up` ends one that shall not go on.",
    ),
    # What a session's check may say, taken over as the decision's reason: session-recovery.md, section 2.
    "host_recovery_shape_mismatch": Explanation(
        "`host_recovery` is no object.", "Make it with `build_host_recovery_record`."
    ),
    "host_recovery_schema_unsupported": Explanation(
        "`host_recovery` is of an unknown schema.",
        "Upgrade this package, or make it with `build_host_recovery_record`.",
    ),
    "host_recovery_kind_unsupported": Explanation(
        "`host_recovery` asks for something other than resuming the session.",
        "Make it with `build_host_recovery_record`.",
    ),
    "host_failure_phase_mismatch": Explanation(
        "A session is to be resumed for a turn that did not fail in its host.",
        "Leave `host_recovery` out of such a journal.",
    ),
    "binding_resolver_unavailable": Explanation(
        "The host's session outlived it, and there is no resolver to find it.",
        "Give a `session_binding_resolver` to `inspect_turn_journal` or `run_turn`.",
    ),
    "binding_resolution_failed": Explanation(
        "The session's resolver raised an error.",
        "It is chained to the error in your program; correct it and try again.",
    ),
    "turn_lineage_missing": Explanation(
        "The turn's envelope lacks goal, agent or todo.", "Without them no session can be matched. " + _REBUILD
    ),
    "session_binding_missing": Explanation(
        "There is no live session for this turn.",
        "Restore it, or plan a new turn that starts a new session.",
    ),
    "session_binding_schema_unsupported": Explanation(
        "The session's binding is of an unknown schema.",
        "The resolver has to return `loopx_turn_session_binding_v0`.",
    ),
    "session_binding_identity_mismatch": Explanation(
        "The live session is bound to another goal, agent or todo.",
        "Nothing is resumed in a stranger's session. Restore the right one, or plan a new turn.",
    ),
    "planned_session_action_unsupported": Explanation(
        "The plan neither starts nor resumes a session.",
        "Plan `start_new` or `resume`.",
    ),
    "session_id_invalid": Explanation(
        "The session's id is empty, too long or has control characters.",
        "The resolver has to return the id that the host gave.",
    ),
}

#: What `recorded_effects` says, by the name of the effect: (done, not done, not known).
EFFECTS: Final[dict[str, tuple[str, str, str]]] = {
    "host_invoked": ("the host ran", "the host was never started", "the host was started; what it did is not known"),
    "state_written": ("the result was written back", "nothing was written back", "the result may have been written"),
    "quota_spent": ("the quota was spent", "no quota was spent", "the quota may have been spent"),
    "scheduler_acknowledged": (
        "the scheduler acknowledged",
        "the scheduler did not acknowledge",
        "whether the scheduler acknowledged is not known",
    ),
}

#: One line per exit code, for `--help` and the reference.
EXIT_CODES: Final[dict[int, str]] = {
    0: "done; also when the answer is that a replay is blocked",
    1: "refused, or not all was done: a conflict, a busy turn, a core that cannot start; what was refused is unchanged",
    2: "the command line is wrong",
    3: "there is no such turn, run, step or store",
    4: "what is stored is damaged; it was left as it is",
    130: "interrupted with Ctrl-C",
}


def explain_reason(reason: str) -> Explanation:
    """The explanation of a decision's reason; unknown ones come from a caller's own session check."""
    return REASONS.get(reason, Explanation(f"The session check says: {reason}.", "Ask whoever made the check."))
