/** The question and the answer of `session_recovery.assess`: session-recovery.md section 2. */
import * as Schema from "effect/Schema"
import { RecoveryCheck } from "./Recovery.ts"

const Document = Schema.Record(Schema.String, Schema.Json)

/**
 * What the caller's binding resolver has said: `unavailable` there is none, `pending` it was not asked yet, `failed` it
 * raised, `resolved` it answered with a binding or null.
 */
export const BindingAnswer = Schema.Struct({
  status: Schema.Literals(["unavailable", "pending", "failed", "resolved"]),
  binding: Schema.optionalKey(Schema.Json)
}).annotate({ identifier: "BindingAnswer" })
export type BindingAnswer = typeof BindingAnswer.Type

export const AssessParams = Schema.Struct({
  request: Document,
  /** The failed turn's journal; absent: only the request and the binding are compared. */
  journal: Schema.optionalKey(Schema.Json),
  binding: BindingAnswer
})
export type AssessParams = typeof AssessParams.Type

export const REFUSALS = {
  host_recovery_shape_mismatch: "The recorded host_recovery is no object: the failed turn cannot be resumed from it.",
  host_recovery_schema_unsupported: "The recorded host_recovery has a schema that this version does not know.",
  host_recovery_kind_unsupported: "The recorded host_recovery is of a kind that this version does not know.",
  host_failure_phase_mismatch: "Only a failed host_execute can be resumed in its session.",
  binding_resolver_unavailable: "No session binding resolver was given: pass session_binding_resolver.",
  binding_resolution_failed: "The session binding resolver raised: see the chained exception.",
  turn_lineage_missing: "The turn envelope names no goal, agent or selected todo to compare the session with.",
  session_binding_missing: "There is no live session for this turn: start it anew.",
  session_binding_schema_unsupported: "The session binding has a schema that this version does not know.",
  session_binding_identity_mismatch: "The live session belongs to another goal, agent or todo.",
  planned_session_action_unsupported: "The planned session action is neither start_new nor resume.",
  session_id_invalid: "The session binding has no usable session_id: 1 to 256 characters, no control characters."
} as const

export const RefusalReason = Schema.Literals(Object.keys(REFUSALS) as [keyof typeof REFUSALS])
export type RefusalReason = keyof typeof REFUSALS

/**
 * `unchanged`: nothing to recover, the request stands; `binding_needed`: ask the resolver and assess again;
 * `resolved`: the request resumes the session; `refused`: the check and the error say why not.
 */
export const Assessment = Schema.Struct({
  status: Schema.Literals(["unchanged", "binding_needed", "resolved", "refused"]),
  request: Document,
  check: Schema.NullOr(RecoveryCheck),
  error: Schema.NullOr(Schema.Struct({ reason: RefusalReason, message: Schema.String }))
}).annotate({ identifier: "Assessment" })
export type Assessment = typeof Assessment.Type
