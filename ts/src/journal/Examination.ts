/**
 * Everything the rules find in a journal, once: reads project it to an inspection, writes ask it whether the journal
 * may be stored. turn-journal.md sections 3, 4 and 7.
 */
import type { Violation } from "../contract/Inspection.ts"
import type { JsonObject, JsonValue } from "../contract/Json.ts"
import { goalReferenceViolation } from "./GoalReference.ts"
import {
  completedTexts,
  isPrefix,
  type PhasePlan,
  plainPhasePlan,
  statusRule,
  statusText,
  TRANSACTION_PLAN
} from "./Phases.ts"
import { type PreparedEffects, preparedEffects } from "./PreparedEffects.ts"
import { boundToWork, type Settlement, settlementOf } from "./Settlement.ts"
import { asObject, get, has, isIdentity, isText } from "./Value.ts"

/** Which turn, and whose, a journal is expected to be. */
export interface Addressee {
  readonly goalId: string
  readonly agentId: string
  readonly turnKey: string
}

export interface Examination {
  readonly journal: JsonObject
  /** Without envelope and transaction: a durable turn without the settlement protocol. */
  readonly plain: boolean
  readonly plan: PhasePlan
  readonly status: string
  readonly statusKnown: boolean
  readonly open: boolean
  readonly completed: ReadonlyArray<string>
  readonly orderedPrefix: boolean
  readonly goalViolation: Violation | null
  readonly goalReferenceViolation: Violation | null
  readonly ownerViolation: Violation | null
  readonly turnKeyViolation: Violation | null
  readonly statusPhaseViolation: Violation | null
  /** Violations 1 to 9, in their order. */
  readonly lineage: ReadonlyArray<Violation>
  readonly prepared: PreparedEffects
  /** The idempotency key of the turn's outside effects. */
  readonly effectId: string | null
  /** What the journal itself says of its goal, owner and key; undefined where it says nothing. */
  readonly identities: Identities
  readonly consistent: boolean
}

/**
 * Examines a journal. Without an addressee it is held against itself: what it says of goal, owner and key must agree,
 * and a plain turn may leave them out.
 */
export const examine = (journal: JsonObject, addressee: Addressee | null): Examination => {
  const plan = asObject(get(journal, "plan"))
  const plain = !has(plan, "turn_envelope") && !has(plan, "transaction")
  const envelope = asObject(get(plan, "turn_envelope"))
  const transaction = asObject(get(plan, "transaction"))
  const settlement: Settlement = plain ? { identity: null, valid: false } : settlementOf(transaction)
  const effectId = plain ? plainEffectId(journal) : (settlement.identity?.effectId ?? null)

  const identities = plain ? plainSources(journal) : transactionSources(journal, envelope, transaction)
  const asked = (key: keyof Addressee): ReadonlyArray<JsonValue> => (addressee === null ? [] : [addressee[key]])
  const optional = plain && addressee === null
  const goalViolation = disagreement("goal", [...identities.goal, ...asked("goalId")], optional)
  const ownerViolation = disagreement("owner", [...identities.owner, ...asked("agentId")], optional)
  const turnKeyViolation = disagreement("turnKey", [...identities.turnKey, ...asked("turnKey")], optional)
  const referenceViolation = plain
    ? null
    : goalReferenceViolation(plan, transaction, addressee === null ? get(journal, "goal_id") : addressee.goalId)

  const phasePlan = plain ? plainPhasePlan(plan) : TRANSACTION_PLAN
  const texts = completedTexts(journal)
  const completed = texts ?? []
  const orderedPrefix = texts !== null && isPrefix(completed, phasePlan.phases)
  const status = statusText(journal)
  const rule = statusRule(status, plain, phasePlan)
  const failedPhase = get(asObject(get(journal, "receipt")), "failed_phase")
  const statusPhaseViolation =
    rule === undefined || rule.fits(completed.length, phasePlan, failedPhase) ? null : "journal_status_phase_mismatch"

  const lineage = [
    goalViolation,
    referenceViolation,
    ownerViolation,
    ...(plain ? [] : settlementViolations(settlement, envelope, transaction)),
    turnKeyViolation,
    phasePlan.malformed ? "plan_phases_invalid" : null,
    texts === null ? "completed_phases_invalid" : orderedPrefix ? null : "completed_phases_not_ordered_prefix",
    statusPhaseViolation
  ].filter((violation): violation is Violation => violation !== null)

  const effectBase = effectId ?? (plain ? plainEffectBase(journal) : "")
  const prepared = preparedEffects(journal, { plain, plan: phasePlan, status, completed, effectBase })
  return {
    journal,
    plain,
    plan: phasePlan,
    status,
    statusKnown: rule !== undefined,
    open: rule?.open ?? false,
    completed,
    orderedPrefix,
    goalViolation,
    goalReferenceViolation: referenceViolation,
    ownerViolation,
    turnKeyViolation,
    statusPhaseViolation,
    lineage,
    prepared,
    effectId,
    identities,
    consistent: lineage.length === 0 && rule !== undefined && prepared.violation === null
  }
}

type Identities = Record<keyof typeof DISAGREEMENTS, ReadonlyArray<JsonValue | undefined>>

const DISAGREEMENTS = {
  goal: { missing: "goal_identity_missing", different: "goal_mismatch" },
  owner: { missing: "owner_identity_missing", different: "owner_mismatch" },
  turnKey: { missing: "turn_key_identity_missing", different: "turn_key_mismatch" }
} as const satisfies Record<string, { readonly missing: Violation; readonly different: Violation }>

/** Identities that must all be there and be one; where they are optional, absent ones (undefined) do not count. */
const disagreement = (
  what: keyof typeof DISAGREEMENTS,
  values: ReadonlyArray<JsonValue | undefined>,
  optional: boolean
): Violation | null => {
  const named = optional ? values.filter((value) => value !== undefined) : values
  if (!named.every(isIdentity)) return DISAGREEMENTS[what].missing
  return named.every((value) => value === named[0]) ? null : DISAGREEMENTS[what].different
}

/** `host_result.turn_key` and `receipt.turn_key`, where those keys exist. */
const keysInResults = (journal: JsonObject): ReadonlyArray<JsonValue | undefined> =>
  [asObject(get(journal, "host_result")), asObject(get(journal, "receipt"))]
    .filter((record) => has(record, "turn_key"))
    .map((record) => get(record, "turn_key"))

const transactionSources = (journal: JsonObject, envelope: JsonObject, transaction: JsonObject): Identities => {
  const identity = asObject(get(asObject(get(transaction, "settlement_plan")), "identity"))
  return {
    goal: [get(journal, "goal_id"), get(envelope, "goal_id"), get(identity, "goal_id")],
    owner: [get(envelope, "agent_id"), get(identity, "agent_id")],
    turnKey: [get(journal, "turn_key"), get(transaction, "turn_key"), ...keysInResults(journal)]
  }
}

const plainSources = (journal: JsonObject): Identities => ({
  goal: [get(journal, "goal_id")],
  owner: [get(journal, "agent_id")],
  turnKey: [get(journal, "turn_key"), ...keysInResults(journal)]
})

const plainEffectId = (journal: JsonObject): string | null => {
  const effectId = get(journal, "effect_id")
  return isIdentity(effectId) ? effectId : null
}

const plainEffectBase = (journal: JsonObject): string => {
  const turnKey = get(journal, "turn_key")
  return isText(turnKey) ? turnKey : ""
}

const settlementViolations = (
  { identity, valid }: Settlement,
  envelope: JsonObject,
  transaction: JsonObject
): ReadonlyArray<Violation | null> => {
  if (!valid || identity === null) return ["settlement_identity_invalid"]
  const instanceId = get(transaction, "turn_instance_id")
  const expected = isIdentity(instanceId) ? instanceId : get(transaction, "turn_key")
  return [
    identity.turnInstanceId === expected ? null : "settlement_turn_instance_mismatch",
    boundToWork(identity, envelope) ? null : "settlement_binding_mismatch"
  ]
}
