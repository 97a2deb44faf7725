/** The record that a failed host leaves: turn-journal.md section 5, session-recovery.md section 1. */
import * as Schema from "effect/Schema"
import { field } from "./Fields.ts"
import { HOST_FAILURE_SCHEMA } from "./Names.ts"

export const HOST_FAILURE_KINDS = [
  "auth_failed",
  "contract_rejected",
  "executor_timeout",
  "output_budget_exhausted",
  "provider_capacity",
  "provider_overloaded",
  "quota_exhausted",
  "rate_limited",
  "session_missing",
  "transport_lost",
  "unknown"
] as const
export const HostFailureKind = Schema.Literals(HOST_FAILURE_KINDS)
export type HostFailureKind = typeof HostFailureKind.Type

const KIND = field(HostFailureKind, "How the host failed.")
const ATTEMPT = field(Schema.Int.check(Schema.isGreaterThanOrEqualTo(1)), "Which attempt it was, counted from 1.")

export const HostFailureParams = Schema.Struct({ kind: KIND, attempt: ATTEMPT }).annotate({
  description: "A failure of a host."
})
export type HostFailureParams = typeof HostFailureParams.Type

export const HostFailure = Schema.Struct({
  schema_version: field(Schema.Literal(HOST_FAILURE_SCHEMA), "The name of this document's schema."),
  kind: KIND,
  attempt: ATTEMPT,
  retryable: field(Schema.Boolean, "Whether such a failure may be tried again at all."),
  retry: field(
    Schema.optionalKey(
      Schema.Struct({
        strategy: field(Schema.Literal("same_configuration"), "How: with everything as it was."),
        max_attempts: field(Schema.Int, "The attempts that there may be in all."),
        backoff_seconds: field(Schema.Int, "Seconds to wait before the next attempt.")
      })
    ),
    "How it may be tried again."
  )
}).annotate({ identifier: "HostFailure", description: "The record that a failed host leaves in the journal." })
export type HostFailure = typeof HostFailure.Type
