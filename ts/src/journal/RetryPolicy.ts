/** How often and how soon a failed host may be tried again: turn-journal.md section 5, "Host retry policy". */
import type { HostFailure, HostFailureKind } from "../contract/HostFailure.ts"
import type { JsonObject, JsonValue } from "../contract/Json.ts"
import { isObject } from "../contract/Json.ts"
import { HOST_FAILURE_SCHEMA } from "../contract/Names.ts"
import type { RecoveryCheck } from "../contract/Recovery.ts"
import { get, isText, sameJson } from "./Value.ts"

interface Retry {
  readonly maxAttempts: number
  readonly firstBackoffSeconds: number
}

/** Every kind of host failure; null: not retryable. */
export const HOST_FAILURES = {
  auth_failed: null,
  contract_rejected: null,
  executor_timeout: { maxAttempts: 2, firstBackoffSeconds: 5 },
  output_budget_exhausted: null,
  provider_capacity: { maxAttempts: 3, firstBackoffSeconds: 30 },
  provider_overloaded: { maxAttempts: 3, firstBackoffSeconds: 30 },
  quota_exhausted: null,
  rate_limited: { maxAttempts: 3, firstBackoffSeconds: 60 },
  session_missing: null,
  transport_lost: { maxAttempts: 3, firstBackoffSeconds: 10 },
  unknown: null
} as const satisfies Record<HostFailureKind, Retry | null>

const MAX_BACKOFF_SECONDS = 300

const retryOf = (kind: HostFailureKind): Retry | null => HOST_FAILURES[kind]

export const isHostFailureKind = (kind: JsonValue | undefined): kind is HostFailureKind =>
  isText(kind) && Object.hasOwn(HOST_FAILURES, kind)

/** The record that a failure of that kind leaves, at that attempt (counted from 1). */
export const hostFailureRecord = (kind: HostFailureKind, attempt: number): HostFailure => {
  const retry = retryOf(kind)
  const record: HostFailure = { schema_version: HOST_FAILURE_SCHEMA, kind, attempt, retryable: retry !== null }
  if (retry === null) return record
  return {
    ...record,
    retry: {
      strategy: "same_configuration",
      max_attempts: retry.maxAttempts,
      backoff_seconds: Math.min(MAX_BACKOFF_SECONDS, retry.firstBackoffSeconds * 2 ** (attempt - 1))
    }
  }
}

type HostRetryCheck = RecoveryCheck | null

const failed = (reason: string): RecoveryCheck => ({ kind: "host_retry_policy", outcome: "failed", reason })

/** Whether the recorded failure allows another attempt; null: the policy has nothing to say of that kind. */
export const hostRetryCheck = (journal: JsonObject): HostRetryCheck => {
  const record = get(journal, "host_failure")
  const attempt = isObject(record) ? get(record, "attempt") : undefined
  const kind = isObject(record) ? get(record, "kind") : undefined
  if (!isHostFailureKind(kind) || !isCount(attempt) || get(journal, "host_attempt_count") !== attempt) {
    return failed("host_retry_contract_invalid")
  }
  if (!sameJson(record, hostFailureRecord(kind, attempt))) return failed("host_retry_contract_invalid")
  const retry = retryOf(kind)
  if (retry !== null) {
    return attempt >= retry.maxAttempts
      ? failed("host_retry_budget_exhausted")
      : { kind: "host_retry_policy", outcome: "passed" }
  }
  return kind === "output_budget_exhausted" ? failed("host_retry_not_available") : null
}

const isCount = (value: JsonValue | undefined): value is number =>
  typeof value === "number" && Number.isSafeInteger(value) && value >= 1
