/** Whether a turn may go on, and from where: turn-journal.md section 5. The first rule that applies decides. */
import { RECOVERY_DECISION_SCHEMA } from "../contract/Names.ts"
import type { RecoveryCheck, RecoveryDecision } from "../contract/Recovery.ts"
import type { Examination } from "./Examination.ts"
import { hostRetryCheck } from "./RetryPolicy.ts"
import { asObject, get, has, isText } from "./Value.ts"

export interface RecoveryRequest {
  readonly retryFailed: boolean
  /** What the caller found out about the host's session; null: nothing. */
  readonly sessionCheck: RecoveryCheck | null
}

export const decideRecovery = (examination: Examination, request: RecoveryRequest): RecoveryDecision => {
  const { journal, status } = examination
  const checks: Array<RecoveryCheck> = []
  const decide = (
    action: RecoveryDecision["action"],
    reason: string,
    resumeFrom: string | null,
    reinvokeHost = false
  ): RecoveryDecision => ({
    schema_version: RECOVERY_DECISION_SCHEMA,
    action,
    can_continue: action === "continue",
    resume_from: resumeFrom,
    reinvoke_host: reinvokeHost,
    reason,
    retry_failed: request.retryFailed,
    checks
  })

  checks.push({ kind: "journal_consistency", outcome: examination.consistent ? "passed" : "failed" })
  if (!examination.consistent) return decide("blocked", "journal_inconsistent", null)
  if (status === "committed" || status === "stopped") {
    return decide("return_existing", "terminal_result_retained", null)
  }

  const resumeFrom = resumePhase(examination)
  const failed = status === "failed"
  if (failed && !request.retryFailed) return decide("return_existing", "failed_retry_not_requested", resumeFrom)
  if (failed && has(journal, "host_failure")) {
    const check = hostRetryCheck(journal)
    if (check !== null) checks.push(check)
    if (check?.outcome === "failed") return decide("blocked", check.reason ?? "", resumeFrom)
  }
  if (failed && has(journal, "host_recovery")) {
    const check = sessionBindingCheck(request.sessionCheck)
    checks.push(check)
    if (check.outcome !== "passed") {
      return decide("blocked", check.reason ?? "host_session_binding_rejected", resumeFrom)
    }
  }
  if (resumeFrom === null) return decide("blocked", "recovery_phase_unavailable", null)

  const pending = examination.prepared.pendingStep === resumeFrom
  if (pending) checks.push({ kind: "prepared_effect_readback", outcome: "required", step_kind: resumeFrom })
  return decide(
    "continue",
    pending ? "resolve_prepared_effect" : (CONTINUE_REASONS.get(status) ?? "resume_in_progress"),
    resumeFrom,
    examination.plan.hostPhases.includes(resumeFrom)
  )
}

const CONTINUE_REASONS: ReadonlyMap<string, string> = new Map([
  ["scheduler_action_required", "resume_scheduler"],
  ["failed", "retry_failed_phase"]
])

/** The phase that a recovery starts with; null when every phase is complete. */
export const resumePhase = ({ journal, status, plan, completed }: Examination): string | null => {
  if (status === "scheduler_action_required") return "scheduler_apply"
  if (status !== "failed") return plan.phases[completed.length] ?? null
  const failedPhase = get(asObject(get(journal, "receipt")), "failed_phase")
  const refused = !plan.custom && failedPhase === "validation"
  if (refused && get(journal, "validation_stage") !== "task_postcondition") return "host_execute"
  return isText(failedPhase) ? failedPhase : null
}

const sessionBindingCheck = (check: RecoveryCheck | null): RecoveryCheck => {
  if (check?.kind !== "host_session_binding") {
    return { kind: "host_session_binding", outcome: "failed", reason: "binding_check_unavailable" }
  }
  const { kind, outcome, reason } = check
  return { kind, outcome, ...(reason === undefined ? {} : { reason }) }
}
