/**
 * The turn-journal core as a library: the rules as pure functions, the store as an Effect service, the protocol.
 *
 * On Node, `turn-journal-core/NodeRuntime` has the layers that run it. Every type that a signature here names is exported,
 * so that the declarations of a program that exports what it made of them can name it.
 */
export * from "./contract/Errors.ts"
export * from "./contract/HostFailure.ts"
export * from "./contract/Inspection.ts"
export type { JsonObject, JsonValue } from "./contract/Json.ts"
export * as Json from "./contract/Json.ts"
export * from "./contract/Messages.ts"
export * from "./contract/Names.ts"
export * from "./contract/Recovery.ts"
export * from "./contract/SessionRecovery.ts"
export type { TurnAddress } from "./journal/Address.ts"
export type { Addressee } from "./journal/Examination.ts"
export { inspect } from "./journal/Inspection.ts"
export { operationId } from "./journal/OperationId.ts"
export type { RecoveryRequest } from "./journal/Recovery.ts"
export { hostFailureRecord } from "./journal/RetryPolicy.ts"
export { Core } from "./rpc/Core.ts"
export { Limits } from "./rpc/Limits.ts"
export type { Method as RpcMethod } from "./rpc/Method.ts"
export * as Method from "./rpc/Method.ts"
export { methods } from "./rpc/Methods.ts"
export { serve } from "./rpc/Server.ts"
export { type Listener, Wire } from "./rpc/Wire.ts"
export type { Durability } from "./run/Database.ts"
export type { DriveOptions } from "./run/Drive.ts"
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
  RunEnded,
  type RunJournalError,
  RunNotFound,
  type StepError,
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
  type Kind,
  type NewEvent,
  type RunMeta
} from "./run/Events.ts"
export type { RunDifference } from "./run/Lineage.ts"
export type { Payload, Recorded, Value } from "./run/Payload.ts"
export { checkReplay, type ReplayCheck } from "./run/Rehearsal.ts"
export type { PruneOptions } from "./run/Retention.ts"
export { RunJournal, type RunJournalOptions } from "./run/RunJournal.ts"
export type { NewRun, Redact, Step } from "./run/Runs.ts"
export type { PendingApproval, Settlement, UncertainStep } from "./run/Settlement.ts"
export type { PendingSleep, SleepOptions } from "./run/Sleeps.ts"
export { assessRetry } from "./session/RetryAssessment.ts"
export type { Copying, CopyRequest } from "./store/Copy.ts"
export { type Database, type DatabaseOptions, type DatabaseService, Databases } from "./store/Databases.ts"
export {
  type Commit,
  Driver,
  type Encoded,
  type HistoryEnd,
  type Near,
  type Piece,
  type Scanned,
  type Snapshot,
  type Step as DriverStep,
  type Visit,
  type Wanted
} from "./store/Driver.ts"
export type { StoreError } from "./store/Failure.ts"
export * as FileDriver from "./store/FileDriver.ts"
export type { SigningKey } from "./store/History.ts"
export * from "./store/JournalStore.ts"
export * as MemoryDriver from "./store/MemoryDriver.ts"
export * as Observed from "./store/Observed.ts"
export { type Place, turnJournalPath } from "./store/Place.ts"
export type { FindPrunedRequest, PruneRequest, Pruning } from "./store/Prune.ts"
export type { FindSettlementRequest, ListRequest, Queries, RecoverableRequest } from "./store/Queries.ts"
export type { RepairRequest } from "./store/Repair.ts"
export type { Verification, VerifyRequest } from "./store/Verify.ts"
export type { Range } from "./store/Walk.ts"
