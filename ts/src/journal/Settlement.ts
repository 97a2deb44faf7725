/** The settlement identity of a turn and what it is bound to: turn-journal.md section 2. */
import type { JsonObject } from "../contract/Json.ts"
import {
  SETTLEMENT_IDENTITY_SCOPED_SCHEMA,
  SETTLEMENT_IDENTITY_TODO_SCHEMA,
  SETTLEMENT_PLAN_SCHEMA,
  TASK_ORCHESTRATION_SCHEMA
} from "../contract/Names.ts"
import { asObject, get, has, isIdentity, isText } from "./Value.ts"

export type Binding = "todo" | "autonomous_replan"

/** A well-formed identity: enough to name the effects of the turn, also where the settlement is not valid. */
export interface SettlementIdentity {
  readonly goalId: string
  readonly agentId: string
  readonly turnInstanceId: string
  readonly binding: Binding
  /** The todo or the replan obligation, trimmed. */
  readonly bindingId: string
  /** The idempotency key of everything that the turn does outside itself. */
  readonly effectId: string
}

export interface Settlement {
  readonly identity: SettlementIdentity | null
  readonly valid: boolean
}

interface Version {
  readonly bindings: ReadonlyArray<Binding>
  readonly bindingNamed: boolean
}

const VERSIONS: ReadonlyMap<string, Version> = new Map([
  [SETTLEMENT_IDENTITY_TODO_SCHEMA, { bindings: ["todo"], bindingNamed: false }],
  [SETTLEMENT_IDENTITY_SCOPED_SCHEMA, { bindings: ["todo", "autonomous_replan"], bindingNamed: true }]
])

const UNVERSIONED: Version = { bindings: ["todo", "autonomous_replan"], bindingNamed: false }

/** Reads the settlement of `plan.transaction`. */
export const settlementOf = (transaction: JsonObject): Settlement => {
  const plan = asObject(get(transaction, "settlement_plan"))
  const raw = asObject(get(plan, "identity"))
  const identity = wellFormed(raw)
  return {
    identity,
    valid: identity !== null && has(raw, "schema_version") && get(plan, "schema_version") === SETTLEMENT_PLAN_SCHEMA
  }
}

const wellFormed = (raw: JsonObject): SettlementIdentity | null => {
  const version = versionOf(raw)
  const goalId = get(raw, "goal_id")
  const agentId = get(raw, "agent_id")
  const turnInstanceId = get(raw, "turn_instance_id")
  const todoId = optionalText(raw, "todo_id")
  const obligationId = optionalText(raw, "replan_obligation_id")
  if (version === null || todoId === null || obligationId === null) return null
  if (!isIdentity(goalId) || !isIdentity(agentId) || !isIdentity(turnInstanceId)) return null
  if ((todoId === "") === (obligationId === "")) return null

  const binding: Binding = todoId === "" ? "autonomous_replan" : "todo"
  const bindingId = todoId === "" ? obligationId : todoId
  if (!version.bindings.includes(binding)) return null
  if (!names(raw, "binding_kind", binding, version.bindingNamed)) return null
  if (!names(raw, "binding_id", bindingId, version.bindingNamed)) return null

  const scope = binding === "todo" ? bindingId : `autonomous_replan:${bindingId}`
  const effectId = `${goalId}:${agentId}:${scope}:${turnInstanceId}`
  const written = get(raw, "effect_id")
  if (!isText(written) || written.trim() !== effectId) return null
  return { goalId, agentId, turnInstanceId, binding, bindingId, effectId }
}

const versionOf = (raw: JsonObject): Version | null => {
  if (!has(raw, "schema_version")) return UNVERSIONED
  const name = get(raw, "schema_version")
  return (isText(name) ? VERSIONS.get(name) : undefined) ?? null
}

/** The trimmed text, `""` when absent or null; null when it is neither. */
const optionalText = (raw: JsonObject, key: string): string | null => {
  const value = get(raw, key) ?? ""
  return isText(value) ? value.trim() : null
}

const names = (raw: JsonObject, key: string, derived: string, required: boolean): boolean =>
  has(raw, key) ? get(raw, key) === derived : !required

/** Whether a valid settlement is bound to the work that the plan selected. */
export const boundToWork = (identity: SettlementIdentity, envelope: JsonObject): boolean => {
  const selected = selectedTodo(envelope)
  if (identity.binding === "todo") return selected === identity.bindingId
  return (
    selected === null &&
    get(asObject(get(envelope, "replan_action_packet")), "obligation_id") === identity.bindingId &&
    isSigned(envelope)
  )
}

/** The todo that the envelope selects as the work of the turn; null when there is none. */
export const selectedTodo = (envelope: JsonObject): string | null => {
  const contract = asObject(get(envelope, "task_orchestration_contract"))
  if (get(contract, "schema_version") === TASK_ORCHESTRATION_SCHEMA && get(contract, "mode") === "adaptive") {
    const primary = get(contract, "primary_todo_id")
    if (isIdentity(primary)) return primary.trim()
  }
  const selected = get(asObject(get(asObject(get(envelope, "action")), "selected_todo")), "todo_id")
  return isIdentity(selected) ? selected : null
}

const isSigned = (envelope: JsonObject): boolean => {
  const signature = asObject(get(envelope, "action_signature"))
  const source = get(signature, "source_hash")
  return get(signature, "matches") === true && isIdentity(source) && source === get(signature, "envelope_hash")
}
