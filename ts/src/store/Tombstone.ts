/** What is left of a pruned journal: all that the rules read, and nothing else. runtime.md section 6. */
import { isDeepStrictEqual } from "node:util"
import { isObject, type JsonObject, type JsonValue } from "../contract/Json.ts"
import type { TurnAddress } from "../journal/Address.ts"
import { examine } from "../journal/Examination.ts"
import { inspect } from "../journal/Inspection.ts"
import type { RecoveryRequest } from "../journal/Recovery.ts"
import { isIdentity } from "../journal/Value.ts"

/** `true` keeps a value whole; a table keeps those fields of an object, and a value of another type whole. */
interface Kept {
  readonly [field: string]: true | Kept
}

/** The fields of turn-journal.md sections 2 and 7. */
const KEPT: Kept = {
  schema_version: true,
  goal_id: true,
  agent_id: true,
  turn_key: true,
  effect_id: true,
  status: true,
  completed_phases: true,
  validation_stage: true,
  host_attempt_count: true,
  host_failure: true,
  host_recovery: true,
  effect_attempts: true,
  recovery_audit: true,
  host_result: { turn_key: true },
  receipt: { turn_key: true, failed_phase: true },
  scheduler: { acknowledged: true },
  plan: {
    phases: true,
    host_phases: true,
    goal_ref: true,
    turn_envelope: {
      goal_id: true,
      agent_id: true,
      action: { selected_todo: { todo_id: true } },
      task_orchestration_contract: { schema_version: true, mode: true, primary_todo_id: true },
      replan_action_packet: { obligation_id: true },
      action_signature: { matches: true, source_hash: true, envelope_hash: true }
    },
    transaction: {
      turn_key: true,
      turn_instance_id: true,
      goal_ref: true,
      settlement_plan: { schema_version: true, identity: true }
    }
  }
}

const keep = (object: JsonObject, kept: Kept): JsonObject =>
  Object.fromEntries(
    Object.entries(object).flatMap(([field, value]): ReadonlyArray<[string, JsonValue]> => {
      const rule = Object.hasOwn(kept, field) ? kept[field] : undefined
      if (rule === undefined) return []
      return [[field, rule === true || !isObject(value) ? value : keep(value, rule)]]
    })
  )

/** Whether a journal has nothing but what pruning leaves: its history says whether it was pruned. */
export const isBare = (journal: JsonObject): boolean => isDeepStrictEqual(journal, keep(journal, KEPT))

/** All that a recovery may ask: as it is, a retry, and a retry in a session that is known to be there. */
const REQUESTS: ReadonlyArray<RecoveryRequest> = [
  { retryFailed: false, sessionCheck: null },
  { retryFailed: true, sessionCheck: null },
  { retryFailed: true, sessionCheck: { kind: "host_session_binding", outcome: "passed" } }
]

/** That somebody decided that a failed turn is not tried again, as `give_up_turn` notes it in the audit. */
const isGivenUp = ({ recovery_audit: audit }: JsonObject): boolean => isObject(audit) && isObject(audit["given_up"])

/**
 * The tombstone of a turn that is over for good; null for one that may still go on. `givenUp`: one that somebody gave up is
 * over, too, though a retry that is asked for would still be allowed.
 */
export const tombstoneOf = (journal: JsonObject, address: TurnAddress, givenUp: boolean): JsonObject | null => {
  const agentId = examine(journal, null).identities.owner.find(isIdentity) ?? ""
  const inspections = (document: JsonObject) =>
    REQUESTS.map((request) => inspect(document, { ...address, agentId }, request))
  const before = inspections(journal)
  const staysFailed = givenUp && isGivenUp(journal)
  const isOver = before.every(
    ({ journal_consistent, tombstone_retained, recovery_decision }) =>
      journal_consistent && tombstone_retained && (staysFailed || !recovery_decision.can_continue)
  )
  const tombstone = keep(journal, KEPT)
  return isOver && isDeepStrictEqual(before, inspections(tombstone)) ? tombstone : null
}
