/**
 * The turn-journal core as a library: the rules as pure functions, the store as an Effect service, the protocol.
 *
 * On Node, `turn-journal-core/NodeRuntime` has the layers that run it.
 */
export * from "./contract/Errors.ts"
export * from "./contract/HostFailure.ts"
export * from "./contract/Inspection.ts"
export * as Json from "./contract/Json.ts"
export * from "./contract/Messages.ts"
export * from "./contract/Names.ts"
export * from "./contract/Recovery.ts"
export * from "./contract/SessionRecovery.ts"
export type { TurnAddress } from "./journal/Address.ts"
export { inspect } from "./journal/Inspection.ts"
export { operationId } from "./journal/OperationId.ts"
export { hostFailureRecord } from "./journal/RetryPolicy.ts"
export { Core } from "./rpc/Core.ts"
export { Limits } from "./rpc/Limits.ts"
export * as Method from "./rpc/Method.ts"
export { methods } from "./rpc/Methods.ts"
export { serve } from "./rpc/Server.ts"
export { type Listener, Wire } from "./rpc/Wire.ts"
export {
  Absent,
  Committed,
  CurrentIdempotencyKey,
  type DurableRun,
  type ModelOptions,
  type Readback,
  type ToolOptions,
  Unknown
} from "./run/DurableRun.ts"
export {
  RecordedToolError,
  ReplayDivergence,
  ResumeBudgetExhausted,
  RunNotFound,
  TurnSuspended,
  UncertainEffect
} from "./run/Errors.ts"
export {
  type JournalEvent,
  KIND_APPROVAL,
  KIND_ITERATION,
  KIND_MODEL_DECISION,
  KIND_TOOL_CALL,
  KIND_TOOL_RESULT,
  KIND_VERIFICATION,
  type RunMeta
} from "./run/Events.ts"
export { RunJournal, type RunJournalOptions } from "./run/RunJournal.ts"
export { assessRetry } from "./session/RetryAssessment.ts"
export { Driver } from "./store/Driver.ts"
export * as FileDriver from "./store/FileDriver.ts"
export * from "./store/JournalStore.ts"
export * as Observed from "./store/Observed.ts"
export { turnJournalPath } from "./store/Place.ts"
