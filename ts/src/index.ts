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
export { inspect } from "./journal/Inspection.ts"
export { operationId } from "./journal/OperationId.ts"
export { hostFailureRecord } from "./journal/RetryPolicy.ts"
export { Core } from "./rpc/Core.ts"
export { Limits } from "./rpc/Limits.ts"
export * as Method from "./rpc/Method.ts"
export { methods } from "./rpc/Methods.ts"
export { serve } from "./rpc/Server.ts"
export { type Listener, Wire } from "./rpc/Wire.ts"
export { assessRetry } from "./session/RetryAssessment.ts"
export { Driver } from "./store/Driver.ts"
export * as FileDriver from "./store/FileDriver.ts"
export * from "./store/JournalStore.ts"
export * as Observed from "./store/Observed.ts"
