/** The recovery decision and the audit of the last recovery: turn-journal.md section 5. */
import * as Schema from "effect/Schema"
import { COMPLETED, field, STATUS } from "./Fields.ts"
import { RECOVERY_AUDIT_SCHEMA, RECOVERY_DECISION_SCHEMA } from "./Names.ts"

export const CHECK_KINDS = [
  "journal_consistency",
  "host_retry_policy",
  "host_session_binding",
  "prepared_effect_readback"
] as const

export const CHECK_OUTCOMES = ["passed", "failed", "required"] as const

export const RecoveryCheck = Schema.Struct({
  kind: field(Schema.Literals(CHECK_KINDS), "What was looked at."),
  outcome: field(Schema.Literals(CHECK_OUTCOMES), "How it was found; `required`: the caller has to look."),
  reason: field(Schema.optionalKey(Schema.String), "Why it did not pass."),
  step_kind: field(Schema.optionalKey(Schema.String), "The step whose effect has to be read back.")
}).annotate({ identifier: "RecoveryCheck", description: "One thing that a recovery depends on." })
export type RecoveryCheck = typeof RecoveryCheck.Type

export const RECOVERY_ACTIONS = ["continue", "return_existing", "blocked"] as const

export const RecoveryDecision = Schema.Struct({
  schema_version: field(Schema.Literal(RECOVERY_DECISION_SCHEMA), "The name of this document's schema."),
  action: field(Schema.Literals(RECOVERY_ACTIONS), "What is to be done with the turn."),
  can_continue: field(Schema.Boolean, "Whether the turn may go on."),
  resume_from: field(Schema.NullOr(Schema.String), "The phase that it goes on with; null: there is none."),
  reinvoke_host: field(Schema.Boolean, "Whether the host is called again."),
  reason: field(Schema.String, "Why, as a name that programs can compare."),
  retry_failed: field(Schema.Boolean, "Whether a failed turn was asked to be tried again."),
  checks: field(Schema.Array(RecoveryCheck), "What was looked at, in order.")
}).annotate({ identifier: "RecoveryDecision", description: "Whether an interrupted turn goes on, and where." })
export type RecoveryDecision = typeof RecoveryDecision.Type

export const RecoveryAudit = Schema.Struct({
  schema_version: field(Schema.Literal(RECOVERY_AUDIT_SCHEMA), "The name of this document's schema."),
  planned: field(RecoveryDecision, "What was decided."),
  actual: field(
    Schema.Struct({
      status: field(Schema.Literals(["started", "finished"]), "How far the recovery came."),
      journal_status: STATUS,
      completed_phases: COMPLETED,
      host_invoked: field(Schema.NullOr(Schema.Boolean), "Whether the host was called; null: that is not known.")
    }),
    "What came of it."
  )
}).annotate({ identifier: "RecoveryAudit", description: "The last recovery of a turn, as its journal records it." })
export type RecoveryAudit = typeof RecoveryAudit.Type
