/** The record that a failed host leaves: turn-journal.md section 5, session-recovery.md section 1. */
import * as Schema from "effect/Schema"
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

/** An attempt, counted from 1. */
const Attempt = Schema.Int.check(Schema.isGreaterThanOrEqualTo(1))

export const HostFailureParams = Schema.Struct({ kind: HostFailureKind, attempt: Attempt })
export type HostFailureParams = typeof HostFailureParams.Type

export const HostFailure = Schema.Struct({
  schema_version: Schema.Literal(HOST_FAILURE_SCHEMA),
  kind: HostFailureKind,
  attempt: Attempt,
  retryable: Schema.Boolean,
  retry: Schema.optionalKey(
    Schema.Struct({
      strategy: Schema.Literal("same_configuration"),
      max_attempts: Schema.Int,
      backoff_seconds: Schema.Int
    })
  )
}).annotate({ identifier: "HostFailure" })
export type HostFailure = typeof HostFailure.Type
