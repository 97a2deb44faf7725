/** The question and the answer of `session_recovery.assess`: session-recovery.md section 2. */
import * as Schema from "effect/Schema"
import { field } from "./Fields.ts"
import { RecoveryCheck } from "./Recovery.ts"

const Document = Schema.Record(Schema.String, Schema.Json)

/**
 * What the caller's binding resolver has said: `unavailable` there is none, `pending` it was not asked yet, `failed` it
 * raised, `resolved` it answered with a binding or null.
 */
export const BindingAnswer = Schema.Struct({
  status: field(
    Schema.Literals(["unavailable", "pending", "failed", "resolved"]),
    "Whether there is a resolver, whether it was asked, and whether it answered."
  ),
  binding: field(Schema.optionalKey(Schema.Json), "The session that it knows; null: there is none.")
}).annotate({ identifier: "BindingAnswer", description: "What the caller's resolver of sessions has said." })
export type BindingAnswer = typeof BindingAnswer.Type

export const AssessParams = Schema.Struct({
  request: field(Document, "The request that the host is to get."),
  journal: field(
    Schema.optionalKey(Schema.Json),
    "The failed turn's journal; absent: only the request and the binding are compared."
  ),
  binding: field(BindingAnswer, "What is known of the host's session.")
}).annotate({ description: "A request that is to resume the session of a failed turn." })
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
  status: field(
    Schema.Literals(["unchanged", "binding_needed", "resolved", "refused"]),
    "Whether the request stands, needs the resolver, resumes the session, or may not be sent."
  ),
  request: field(Document, "The request as it is to be sent."),
  check: field(Schema.NullOr(RecoveryCheck), "What was found of the session; null: nothing was looked at."),
  error: field(
    Schema.NullOr(
      Schema.Struct({
        reason: field(RefusalReason, "Why, as a name that programs can compare."),
        message: field(Schema.String, "Why, and what to do.")
      })
    ),
    "Why the session is not resumed; null: it is, or needs not be."
  )
}).annotate({ identifier: "Assessment", description: "Whether a host's session may be resumed." })
export type Assessment = typeof Assessment.Type
