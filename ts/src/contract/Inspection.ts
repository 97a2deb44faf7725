/** What an inspection says of a journal: turn-journal.md sections 3 and 4. */
import * as Schema from "effect/Schema"
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

/** What the original turn is known to have done; null: not known. */
export const RecordedEffects = Schema.Struct({
  host_invoked: Known,
  state_written: Known,
  quota_spent: Known,
  scheduler_acknowledged: Known
}).annotate({ identifier: "RecordedEffects" })
export type RecordedEffects = typeof RecordedEffects.Type

export const Inspection = Schema.Struct({
  ok: Schema.Literal(true),
  schema_version: Schema.Literal(INSPECTION_SCHEMA),
  decision: Schema.Literals(["replay_legal", "replay_blocked"]),
  journal_status: Schema.String,
  replay_legal: Schema.Boolean,
  goal_matches: Schema.Boolean,
  owner_matches: Schema.Boolean,
  turn_key_matches: Schema.Boolean,
  phases_form_ordered_prefix: Schema.Boolean,
  completed_phases: Schema.Array(Schema.String),
  tombstone_retained: Schema.Boolean,
  violations: Schema.Array(Violation),
  journal_consistent: Schema.Boolean,
  recovery_decision: RecoveryDecision,
  last_recovery: Schema.NullOr(RecoveryAudit),
  recorded_effects: RecordedEffects,
  effects: Schema.Tuple([])
}).annotate({ identifier: "Inspection" })
export type Inspection = typeof Inspection.Type
