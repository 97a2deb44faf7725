/** Whether a turn is over, consistent and may be replayed as a record, and what may happen to it: turn-journal.md section 3. */
import type { Inspection, Violation } from "../contract/Inspection.ts"
import type { JsonValue } from "../contract/Json.ts"
import { INSPECTION_SCHEMA } from "../contract/Names.ts"
import { type Addressee, type Examination, examine } from "./Examination.ts"
import { recordedEffects } from "./RecordedEffects.ts"
import { decideRecovery, type RecoveryRequest } from "./Recovery.ts"
import { recoveryAudit } from "./RecoveryAudit.ts"
import { asObject, get } from "./Value.ts"

const PLAIN: RecoveryRequest = { retryFailed: false, sessionCheck: null }

/**
 * Inspects a journal. Pure and total: whatever the journal contains, what is wrong with it is a violation. The result
 * carries no journal body, host log, session content, payload or path.
 */
export const inspect = (journal: JsonValue, addressee: Addressee, request: RecoveryRequest = PLAIN): Inspection => {
  const examination = examine(asObject(journal), addressee)
  const { statusKnown, open, goalViolation, ownerViolation, turnKeyViolation } = examination
  const violations = violationsOf(examination)
  const replayLegal = violations.length === 0
  return {
    ok: true,
    schema_version: INSPECTION_SCHEMA,
    decision: replayLegal ? "replay_legal" : "replay_blocked",
    journal_status: examination.status,
    replay_legal: replayLegal,
    goal_matches: goalViolation === null,
    owner_matches: ownerViolation === null,
    turn_key_matches: turnKeyViolation === null,
    phases_form_ordered_prefix: examination.orderedPrefix,
    completed_phases: examination.completed,
    tombstone_retained: statusKnown && !open,
    violations,
    journal_consistent: examination.consistent,
    recovery_decision: decideRecovery(examination, request),
    last_recovery: recoveryAudit(get(examination.journal, "recovery_audit")),
    recorded_effects: recordedEffects(examination),
    effects: []
  }
}

/** Every violation, in the order of the contract. */
export const violationsOf = ({ lineage, statusKnown, open, prepared }: Examination): ReadonlyArray<Violation> => {
  const terminal = open ? "journal_not_terminal" : statusKnown ? null : "journal_status_unsupported"
  return [...lineage, terminal, prepared.violation].filter((violation): violation is Violation => violation !== null)
}
