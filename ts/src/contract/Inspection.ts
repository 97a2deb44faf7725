/** What an inspection says of a journal: turn-journal.md sections 3 and 4. */
import * as Schema from "effect/Schema"
import { COMPLETED, field, STATUS } from "./Fields.ts"
import { INSPECTION_SCHEMA } from "./Names.ts"
import { RecoveryAudit, RecoveryDecision } from "./Recovery.ts"

/** Every violation, in the order in which they are reported. */
export const VIOLATIONS = [
  "goal_identity_missing",
  "goal_mismatch",
  "goal_ref_binding_incomplete",
  "goal_ref_binding_invalid",
  "goal_ref_binding_mismatch",
  "owner_identity_missing",
  "owner_mismatch",
  "settlement_identity_invalid",
  "settlement_turn_instance_mismatch",
  "settlement_binding_mismatch",
  "turn_key_identity_missing",
  "turn_key_mismatch",
  "plan_phases_invalid",
  "completed_phases_invalid",
  "completed_phases_not_ordered_prefix",
  "journal_status_phase_mismatch",
  "journal_not_terminal",
  "journal_status_unsupported",
  "prepared_effect_attempts_invalid",
  "prepared_effect_count_invalid",
  "prepared_effect_step_unsupported",
  "prepared_effect_identity_invalid",
  "prepared_effect_phase_invalid",
  "prepared_effect_status_invalid"
] as const
export const Violation = Schema.Literals(VIOLATIONS)
export type Violation = typeof Violation.Type

const Known = Schema.NullOr(Schema.Boolean)

export const RecordedEffects = Schema.Struct({
  host_invoked: field(Known, "Whether the host was called."),
  state_written: field(Known, "Whether the work was written back."),
  quota_spent: field(Known, "Whether the quota was spent."),
  scheduler_acknowledged: field(Known, "Whether the scheduler acknowledged.")
}).annotate({
  identifier: "RecordedEffects",
  description: "What the original turn is known to have done; null: that is not known."
})
export type RecordedEffects = typeof RecordedEffects.Type

export const Inspection = Schema.Struct({
  ok: field(Schema.Literal(true), "Always true: what is wrong with a journal is a violation, and no error."),
  schema_version: field(Schema.Literal(INSPECTION_SCHEMA), "The name of this document's schema."),
  decision: field(Schema.Literals(["replay_legal", "replay_blocked"]), "`replay_legal` in words."),
  journal_status: STATUS,
  replay_legal: field(Schema.Boolean, "Whether the turn is over, and its journal may be replayed as a record."),
  goal_matches: field(Schema.Boolean, "Whether the journal is of the goal that was asked for."),
  owner_matches: field(Schema.Boolean, "Whether it is of the agent that was asked for."),
  turn_key_matches: field(Schema.Boolean, "Whether it is of the turn that was asked for."),
  phases_form_ordered_prefix: field(Schema.Boolean, "Whether the completed phases are the first ones of the plan."),
  completed_phases: COMPLETED,
  tombstone_retained: field(Schema.Boolean, "Whether the turn has a status that is over."),
  violations: field(Schema.Array(Violation), "The rules that the journal breaks, in the order of the contract."),
  journal_consistent: field(Schema.Boolean, "Whether the journal agrees with itself and with what was asked for."),
  recovery_decision: field(RecoveryDecision, "What may happen to the turn."),
  last_recovery: field(Schema.NullOr(RecoveryAudit), "The last recovery; null: the journal records none."),
  recorded_effects: field(RecordedEffects, "What the turn is known to have done."),
  effects: field(Schema.Tuple([]), "Always empty: an inspection has no effects.")
}).annotate({ identifier: "Inspection", description: "What the rules say of a journal." })
export type Inspection = typeof Inspection.Type
