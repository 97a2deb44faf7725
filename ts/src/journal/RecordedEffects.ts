/** What the original turn is known to have done: turn-journal.md section 4. */
import type { RecordedEffects } from "../contract/Inspection.ts"
import { TERMINAL_CLOSEOUT } from "../contract/Names.ts"
import type { Examination } from "./Examination.ts"
import { asObject, get, has } from "./Value.ts"

const NOT_KNOWN: RecordedEffects = {
  host_invoked: null,
  state_written: null,
  quota_spent: null,
  scheduler_acknowledged: null
}

export const recordedEffects = (examination: Examination): RecordedEffects => {
  const { journal, lineage, statusKnown, prepared, completed, plan } = examination
  if (lineage.length > 0 || !statusKnown) return NOT_KNOWN

  const did = (phase: string): boolean => completed.includes(phase)
  const hostDone = plan.custom ? plan.hostPhases.some(did) : did("host_execute")
  const acknowledged = get(asObject(get(journal, "scheduler")), "acknowledged")
  if (prepared.violation !== null) {
    return {
      host_invoked: hostDone || null,
      state_written: did("durable_writeback") || null,
      quota_spent: did("quota_spend") || null,
      scheduler_acknowledged: acknowledged === true || null
    }
  }

  const pending = prepared.pendingStep
  const writing = pending === "durable_writeback" || (!plan.custom && pending === TERMINAL_CLOSEOUT)
  const attempted = has(journal, "host_attempt_count") && get(journal, "host_attempt_count") !== 0
  return {
    host_invoked: knowledge(hostDone, attempted),
    state_written: knowledge(did("durable_writeback"), writing),
    quota_spent: knowledge(did("quota_spend"), pending === "quota_spend"),
    scheduler_acknowledged: typeof acknowledged === "boolean" ? acknowledged : knowledge(false, did("quota_spend"))
  }
}

/** True when it was done, null when it may have been, else false. */
const knowledge = (done: boolean, maybe: boolean): boolean | null => done || (maybe ? null : false)
