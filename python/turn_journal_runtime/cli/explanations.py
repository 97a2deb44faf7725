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
_WRITER: Final = "Correct the program that writes it, then write again; nothing was changed by this refusal."

VIOLATIONS: Final[dict[str, Explanation]] = {
    "goal_identity_missing": Explanation(
        "The journal, its envelope or its settlement identity names no goal.",
        "Write `goal_id` in each of them. A plain turn carries it at the top level.",
    ),
    "goal_mismatch": Explanation(
        "The goals that the journal, its plan and your question name are not the same.",
        "Ask with the goal that the turn was written for; if that is the one you asked with, the file was misplaced.",
    ),
    "goal_ref_binding_incomplete": Explanation(
        "One of `plan.goal_ref` and `plan.transaction.goal_ref` is missing.",
        "Write both or neither.",
    ),
    "goal_ref_binding_invalid": Explanation(
        "A goal reference is malformed.",
        "Write `goal_id` and a `goal_instance_id` of the form `ginst_` and 32 lower-case hex digits.",
    ),
    "goal_ref_binding_mismatch": Explanation(
        "The two goal references differ, or name another goal than you asked for.",
        "The goal was made anew since the turn was planned, or plans were mixed. Plan a new turn for the present goal.",
    ),
    "owner_identity_missing": Explanation(
        "The envelope or the settlement identity names no agent.",
        "Write `agent_id` in both. A plain turn carries it at the top level.",
    ),
    "owner_mismatch": Explanation(
        "The turn belongs to another agent than the one that asks.",
        "Ask as the agent that owns it; `turn-journal list` shows the turns. A turn never changes its owner.",
    ),
    "settlement_identity_invalid": Explanation(
        "The settlement identity is malformed, or its effect id is not the one that its parts make.",
        "Derive the effect id from goal, agent, todo (or obligation) and turn instance. " + _WRITER,
    ),
    "settlement_turn_instance_mismatch": Explanation(
        "The settlement is for another instance of the turn.",
        "Settlement and transaction were taken from two turns. " + _REBUILD,
    ),
    "settlement_binding_mismatch": Explanation(
        "The settlement is bound to other work than the turn selected.",
        "Its todo or obligation is not the one in the envelope. " + _REBUILD,
    ),
    "turn_key_identity_missing": Explanation(
        "The journal or its transaction carries no turn key.",
        "Write `turn_key` in both. A plain turn carries it at the top level.",
    ),
    "turn_key_mismatch": Explanation(
        "The turn keys in the journal, its result, its receipt and your question are not the same.",
        "Ask with the key the turn was written under; a result or receipt of another turn must not be copied in.",
    ),
    "plan_phases_invalid": Explanation(
        "`plan.phases` is no list of distinct names, or `plan.host_phases` names something else.",
        "Give `plan.phases` as a non-empty list of distinct names, and take `host_phases` from it.",
    ),
    "completed_phases_invalid": Explanation(
        "`completed_phases` is no list.",
        "The writer does not follow the contract. " + _WRITER,
    ),
    "completed_phases_not_ordered_prefix": Explanation(
        "The completed phases skip a phase, repeat one or are out of order.",
        "Phases are completed from the first one on. Read `turn-journal history` for where it went wrong.",
    ),
    "journal_status_phase_mismatch": Explanation(
        "The status does not go with the phases that are completed.",
        "For example `committed` before the last phase. Read `turn-journal history` for the last state that held.",
    ),
    "journal_not_terminal": Explanation(
        "The turn is not over.",
        "That is no fault: drive it on (`turn-journal recover`). It can be replayed once it has ended.",
    ),
    "journal_status_unsupported": Explanation(
        "The status is none of those the contract knows.",
        "It was written by a newer version or by hand. Upgrade this package, or correct the writer.",
    ),
    "prepared_effect_attempts_invalid": Explanation(
        "`effect_attempts` is no object.",
        "Remove it when no effect is under way, else write the one attempt. " + _WRITER,
    ),
    "prepared_effect_count_invalid": Explanation(
        "More or fewer than one effect is recorded as about to be sent.",
        "A turn prepares one effect at a time. Settle the ones that were sent, and record them as phases.",
    ),
    "prepared_effect_step_unsupported": Explanation(
        "The effect that is about to be sent is of an unknown step.",
        "Effects are `durable_writeback`, `quota_spend` and `terminal_closeout`; in a plain turn, its own phases.",
    ),
    "prepared_effect_identity_invalid": Explanation(
        "The prepared effect has another status than `prepared`, or another turn's reference.",
        "The reference is the effect id, `#` and the step. " + _WRITER,
    ),
    "prepared_effect_phase_invalid": Explanation(
        "The effect is prepared at a point where it is not its turn.",
        "Exactly the phases before its step must be completed. Find out by readback whether it was sent.",
    ),
    "prepared_effect_status_invalid": Explanation(
        "An effect is prepared in a turn that is over or waits for its scheduler.",
        "Whether the effect happened is not known: read it back at its target before anything is sent again.",
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
        "Give a `session_binding_resolver`, which the command line cannot: recover from your program or its "
        "`--entry` point.",
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
        "Something kills it every time: find out what before you raise `max_recoveries`.",
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
        "Recover the turn; completed phases are not repeated.",
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
    1: "refused: a conflict, a busy turn, a core that cannot start; nothing was changed",
    2: "the command line is wrong",
    3: "there is no such turn, run, step or store",
    4: "what is stored is damaged; it was left as it is",
}


def explain_reason(reason: str) -> Explanation:
    """The explanation of a decision's reason; unknown ones come from a caller's own session check."""
    return REASONS.get(reason, Explanation(f"The session check says: {reason}.", "Ask whoever made the check."))
