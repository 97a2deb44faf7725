/** The identifiers of the contract: turn-journal.md section 1. They stay as they are, so that LoopX's journals are read. */

export const TURN_JOURNAL_SCHEMA = "loopx_turn_journal_v0"
export const INSPECTION_REQUEST_SCHEMA = "loopx_turn_journal_interpretation_request_v0"
export const INSPECTION_SCHEMA = "loopx_turn_journal_inspection_v1"
export const RECOVERY_DECISION_SCHEMA = "loopx_turn_recovery_decision_v0"
export const RECOVERY_AUDIT_SCHEMA = "loopx_turn_recovery_audit_v0"
export const HOST_FAILURE_SCHEMA = "loopx_turn_host_failure_v0"
export const HOST_RECOVERY_SCHEMA = "loopx_turn_host_recovery_v0"
export const SETTLEMENT_PLAN_SCHEMA = "quota_settlement_plan_v1"
export const SETTLEMENT_IDENTITY_TODO_SCHEMA = "quota_settlement_identity_v0"
export const SETTLEMENT_IDENTITY_SCOPED_SCHEMA = "quota_settlement_identity_v1"
export const SESSION_BINDING_SCHEMA = "loopx_turn_session_binding_v0"
export const TASK_ORCHESTRATION_SCHEMA = "task_orchestration_contract_v2"

/** The transaction phases, in order. */
export const TRANSACTION_PHASES = [
  "host_execute",
  "typed_result",
  "validation",
  "durable_writeback",
  "quota_spend",
  "scheduler_apply",
  "scheduler_ack"
] as const

/** The closing step that stands where `scheduler_apply` does when a turn ends without a scheduler. */
export const TERMINAL_CLOSEOUT = "terminal_closeout"
