/** The record of the last recovery, projected to what is known of it: turn-journal.md section 5, "Recovery audit". */
import { isObject, type JsonObject, type JsonValue } from "../contract/Json.ts"
import { RECOVERY_AUDIT_SCHEMA, RECOVERY_DECISION_SCHEMA } from "../contract/Names.ts"
import {
  CHECK_KINDS,
  CHECK_OUTCOMES,
  RECOVERY_ACTIONS,
  type RecoveryAudit,
  type RecoveryCheck,
  type RecoveryDecision
} from "../contract/Recovery.ts"
import { asObject, get, isText } from "./Value.ts"

/** The audit with exactly the known keys; null when it is malformed. */
export const recoveryAudit = (value: JsonValue | undefined): RecoveryAudit | null => {
  if (!isObject(value) || get(value, "schema_version") !== RECOVERY_AUDIT_SCHEMA) return null
  const planned = decision(get(value, "planned"))
  const actual = outcome(get(value, "actual"))
  return planned === null || actual === null ? null : { schema_version: RECOVERY_AUDIT_SCHEMA, planned, actual }
}

const decision = (value: JsonValue | undefined): RecoveryDecision | null => {
  if (!isObject(value) || get(value, "schema_version") !== RECOVERY_DECISION_SCHEMA) return null
  const action = oneOf(get(value, "action"), RECOVERY_ACTIONS)
  const canContinue = get(value, "can_continue")
  const resumeFrom = get(value, "resume_from")
  const reinvokeHost = get(value, "reinvoke_host")
  const reason = get(value, "reason")
  const retryFailed = get(value, "retry_failed")
  if (action === null || !isText(reason) || !(resumeFrom === null || isText(resumeFrom))) return null
  if (!isBoolean(canContinue) || !isBoolean(reinvokeHost) || !isBoolean(retryFailed)) return null
  return {
    schema_version: RECOVERY_DECISION_SCHEMA,
    action,
    can_continue: canContinue,
    resume_from: resumeFrom,
    reinvoke_host: reinvokeHost,
    reason,
    retry_failed: retryFailed,
    checks: checks(get(value, "checks"))
  }
}

const checks = (value: JsonValue | undefined): ReadonlyArray<RecoveryCheck> =>
  Array.isArray(value) ? value.flatMap((item: JsonValue) => check(asObject(item)) ?? []) : []

const check = (item: JsonObject): RecoveryCheck | null => {
  const kind = oneOf(get(item, "kind"), CHECK_KINDS)
  const result = oneOf(get(item, "outcome"), CHECK_OUTCOMES)
  if (kind === null || result === null) return null
  const reason = get(item, "reason")
  const stepKind = get(item, "step_kind")
  return {
    kind,
    outcome: result,
    ...(isText(reason) ? { reason } : {}),
    ...(isText(stepKind) ? { step_kind: stepKind } : {})
  }
}

const outcome = (value: JsonValue | undefined): RecoveryAudit["actual"] | null => {
  const actual = asObject(value)
  const status = oneOf(get(actual, "status"), ["started", "finished"] as const)
  const journalStatus = get(actual, "journal_status")
  const completed = get(actual, "completed_phases")
  const hostInvoked = get(actual, "host_invoked")
  if (status === null || !isText(journalStatus)) return null
  if (!Array.isArray(completed) || !completed.every(isText)) return null
  if (!(hostInvoked === null || isBoolean(hostInvoked))) return null
  return { status, journal_status: journalStatus, completed_phases: completed, host_invoked: hostInvoked }
}

const isBoolean = (value: JsonValue | undefined): value is boolean => typeof value === "boolean"

const oneOf = <const Values extends ReadonlyArray<string>>(
  value: JsonValue | undefined,
  values: Values
): Values[number] | null => (isText(value) && values.includes(value) ? value : null)
