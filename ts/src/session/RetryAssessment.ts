/** Whether a failed turn may be tried again in the session that outlived its host: session-recovery.md section 2. */
import { isObject, type JsonObject, type JsonValue } from "../contract/Json.ts"
import { HOST_RECOVERY_SCHEMA, SESSION_BINDING_SCHEMA } from "../contract/Names.ts"
import {
  type Assessment,
  type AssessParams,
  type BindingAnswer,
  REFUSALS,
  type RefusalReason
} from "../contract/SessionRecovery.ts"
import { selectedTodo } from "../journal/Settlement.ts"
import { asObject, get, has, isIdentity, isText } from "../journal/Value.ts"

/** Assesses a retry; asks for the binding only once everything before it holds. Inputs are never changed. */
export const assessRetry = ({ request, journal, binding }: AssessParams): Assessment => {
  if (journal !== undefined) {
    const failed = asObject(journal)
    if (!has(failed, "host_recovery")) return { status: "unchanged", request, check: null, error: null }
    const reason = recordRefusal(failed)
    if (reason !== null) return refused(request, reason)
  }
  switch (binding.status) {
    case "unavailable":
      return refused(request, "binding_resolver_unavailable")
    case "pending":
      return { status: "binding_needed", request, check: null, error: null }
    case "failed":
      return refused(request, "binding_resolution_failed")
    case "resolved":
      return reconcile(request, binding)
  }
}

const refused = (request: JsonObject, reason: RefusalReason): Assessment => ({
  status: "refused",
  request,
  check: { kind: "host_session_binding", outcome: "failed", reason },
  error: { reason, message: REFUSALS[reason] }
})

const recordRefusal = (journal: JsonObject): RefusalReason | null => {
  const record = get(journal, "host_recovery")
  if (!isObject(record)) return "host_recovery_shape_mismatch"
  if (get(record, "schema_version") !== HOST_RECOVERY_SCHEMA) return "host_recovery_schema_unsupported"
  if (get(record, "kind") !== "resume_session") return "host_recovery_kind_unsupported"
  const failedPhase = get(asObject(get(journal, "receipt")), "failed_phase")
  return failedPhase === "host_execute" ? null : "host_failure_phase_mismatch"
}

const reconcile = (request: JsonObject, answer: BindingAnswer): Assessment => {
  const binding = asObject(answer.binding)
  const session = asObject(get(request, "session"))
  const reason = bindingRefusal(request, session, binding)
  if (reason !== null) return refused(request, reason)
  const resumed: JsonObject =
    get(session, "action") === "resume"
      ? session
      : { ...session, action: "resume", id: get(binding, "session_id") ?? null, binding_status: "failed_turn_recovery" }
  return {
    status: "resolved",
    request: { ...request, session: resumed, _recovery: { skip_host: true } },
    check: { kind: "host_session_binding", outcome: "passed", reason: "session_binding_matched" },
    error: null
  }
}

const bindingRefusal = (request: JsonObject, session: JsonObject, binding: JsonObject): RefusalReason | null => {
  const envelope = asObject(get(request, "turn_envelope"))
  const goalId = get(envelope, "goal_id")
  const agentId = get(envelope, "agent_id")
  const todoId = selectedTodo(envelope)
  if (!isIdentity(goalId) || !isIdentity(agentId) || todoId === null) return "turn_lineage_missing"
  if (Object.keys(binding).length === 0) return "session_binding_missing"
  if (get(binding, "schema_version") !== SESSION_BINDING_SCHEMA) return "session_binding_schema_unsupported"
  const agentScope = get(asObject(get(session, "context_policy")), "binding_scope") === "agent"
  const same =
    get(binding, "goal_id") === goalId &&
    get(binding, "agent_id") === agentId &&
    (agentScope || get(binding, "todo_id") === todoId)
  if (!same) return "session_binding_identity_mismatch"
  if (get(session, "action") !== "start_new" && get(session, "action") !== "resume") {
    return "planned_session_action_unsupported"
  }
  return isSessionId(get(binding, "session_id")) ? null : "session_id_invalid"
}

const MAX_SESSION_ID_LENGTH = 256
const CONTROL_CHARACTER = /\p{Cc}/u

const isSessionId = (value: JsonValue | undefined): value is string =>
  isText(value) && value.length > 0 && [...value].length <= MAX_SESSION_ID_LENGTH && !CONTROL_CHARACTER.test(value)
