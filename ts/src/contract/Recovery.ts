/** The recovery decision and the audit of the last recovery: turn-journal.md section 5. */
import * as Schema from "effect/Schema"
import { RECOVERY_AUDIT_SCHEMA, RECOVERY_DECISION_SCHEMA } from "./Names.ts"

export const CHECK_KINDS = [
  "journal_consistency",
  "host_retry_policy",
  "host_session_binding",
  "prepared_effect_readback"
] as const

export const CHECK_OUTCOMES = ["passed", "failed", "required"] as const

export const RecoveryCheck = Schema.Struct({
  kind: Schema.Literals(CHECK_KINDS),
  outcome: Schema.Literals(CHECK_OUTCOMES),
  reason: Schema.optionalKey(Schema.String),
  step_kind: Schema.optionalKey(Schema.String)
}).annotate({ identifier: "RecoveryCheck" })
export type RecoveryCheck = typeof RecoveryCheck.Type

export const RECOVERY_ACTIONS = ["continue", "return_existing", "blocked"] as const

export const RecoveryDecision = Schema.Struct({
  schema_version: Schema.Literal(RECOVERY_DECISION_SCHEMA),
  action: Schema.Literals(RECOVERY_ACTIONS),
  can_continue: Schema.Boolean,
  resume_from: Schema.NullOr(Schema.String),
  reinvoke_host: Schema.Boolean,
  reason: Schema.String,
  retry_failed: Schema.Boolean,
  checks: Schema.Array(RecoveryCheck)
}).annotate({ identifier: "RecoveryDecision" })
export type RecoveryDecision = typeof RecoveryDecision.Type

export const RecoveryAudit = Schema.Struct({
  schema_version: Schema.Literal(RECOVERY_AUDIT_SCHEMA),
  planned: RecoveryDecision,
  actual: Schema.Struct({
    status: Schema.Literals(["started", "finished"]),
    journal_status: Schema.String,
    completed_phases: Schema.Array(Schema.String),
    host_invoked: Schema.NullOr(Schema.Boolean)
  })
}).annotate({ identifier: "RecoveryAudit" })
export type RecoveryAudit = typeof RecoveryAudit.Type
