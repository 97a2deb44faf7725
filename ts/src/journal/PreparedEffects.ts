/** An effect that was about to be sent, and whether it happened is not known: turn-journal.md section 4. */
import type { Violation } from "../contract/Inspection.ts"
import { isObject, type JsonObject } from "../contract/Json.ts"
import { TERMINAL_CLOSEOUT } from "../contract/Names.ts"
import { indexOfStep, isPrefix, type PhasePlan } from "./Phases.ts"
import { asObject, get, has } from "./Value.ts"

const TRANSACTION_STEPS: ReadonlyArray<string> = ["durable_writeback", "quota_spend", TERMINAL_CLOSEOUT]
const STATUSES: ReadonlyArray<string> = ["in_progress", "failed"]
/** A plain turn's `started` is in_progress with nothing completed; other turns have no such status. */
const PLAIN_STATUSES: ReadonlyArray<string> = [...STATUSES, "started"]

export interface PreparedContext {
  readonly plain: boolean
  readonly plan: PhasePlan
  readonly status: string
  readonly completed: ReadonlyArray<string>
  /** What the effect reference starts with: the effect id, `""` when there is none. */
  readonly effectBase: string
}

export interface PreparedEffects {
  readonly violation: Violation | null
  /** The step whose effect is pending; null when there is none or the record is invalid. */
  readonly pendingStep: string | null
}

const NONE: PreparedEffects = { violation: null, pendingStep: null }

/** Reads `effect_attempts`, present also when null. */
export const preparedEffects = (journal: JsonObject, context: PreparedContext): PreparedEffects => {
  if (!has(journal, "effect_attempts")) return NONE
  const attempts = get(journal, "effect_attempts")
  const invalid = (violation: Violation): PreparedEffects => ({ violation, pendingStep: null })
  if (!isObject(attempts)) return invalid("prepared_effect_attempts_invalid")
  const [step, ...others] = Object.keys(attempts)
  if (step === undefined || others.length > 0) return invalid("prepared_effect_count_invalid")
  const index = indexOfStep(context.plan, step)
  if (index === null || (!context.plain && !TRANSACTION_STEPS.includes(step))) {
    return invalid("prepared_effect_step_unsupported")
  }
  const attempt = asObject(get(attempts, step))
  if (get(attempt, "status") !== "prepared" || get(attempt, "effect_ref") !== `${context.effectBase}#${step}`) {
    return invalid("prepared_effect_identity_invalid")
  }
  const { completed, plain, plan, status } = context
  if (completed.length !== index || !isPrefix(completed, plan.phases)) return invalid("prepared_effect_phase_invalid")
  if (!(plain ? PLAIN_STATUSES : STATUSES).includes(status)) return invalid("prepared_effect_status_invalid")
  return { violation: null, pendingStep: step }
}
