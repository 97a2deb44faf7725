/** The goal reference that plan and transaction share: turn-journal.md section 2. */
import type { Violation } from "../contract/Inspection.ts"
import { isObject, type JsonObject, type JsonValue } from "../contract/Json.ts"
import { get, has, isText } from "./Value.ts"

const GOAL_ID = /^[A-Za-z0-9._:-]{1,200}$/
const GOAL_INSTANCE_ID = /^ginst_[0-9a-f]{32}$/

/** The goal-reference violation, if any; `goalId` is the goal that the reference must name. */
export const goalReferenceViolation = (
  plan: JsonObject,
  transaction: JsonObject,
  goalId: JsonValue | undefined
): Violation | null => {
  if (!has(plan, "goal_ref") && !has(transaction, "goal_ref")) return null
  if (!has(plan, "goal_ref") || !has(transaction, "goal_ref")) return "goal_ref_binding_incomplete"
  const planned = get(plan, "goal_ref")
  const transacted = get(transaction, "goal_ref")
  if (!isReference(planned) || !isReference(transacted)) return "goal_ref_binding_invalid"
  const equal = planned.goal_id === transacted.goal_id && planned.goal_instance_id === transacted.goal_instance_id
  return equal && planned.goal_id === goalId ? null : "goal_ref_binding_mismatch"
}

interface Reference extends JsonObject {
  readonly goal_id: string
  readonly goal_instance_id: string
}

const isReference = (value: JsonValue | undefined): value is Reference => {
  if (!isObject(value)) return false
  const goalId = get(value, "goal_id")
  const instanceId = get(value, "goal_instance_id")
  return isText(goalId) && GOAL_ID.test(goalId) && isText(instanceId) && GOAL_INSTANCE_ID.test(instanceId)
}
