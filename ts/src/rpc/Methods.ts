/** Every method of the protocol: runtime.md section 2. The schemas in `schemas/` are generated from this table. */
import * as Effect from "effect/Effect"
import { HostFailure, HostFailureParams } from "../contract/HostFailure.ts"
import { Inspection } from "../contract/Inspection.ts"
import {
  Info,
  InspectParams,
  InspectStoredParams,
  NoParams,
  ReadParams,
  ReadResult,
  ShutdownResult,
  WriteParams,
  WriteResult
} from "../contract/Messages.ts"
import { Assessment, AssessParams } from "../contract/SessionRecovery.ts"
import { inspect } from "../journal/Inspection.ts"
import { hostFailureRecord } from "../journal/RetryPolicy.ts"
import { assessRetry } from "../session/RetryAssessment.ts"
import type { Databases } from "../store/Databases.ts"
import { JournalStore } from "../store/JournalStore.ts"
import { Core } from "./Core.ts"
import * as DatabaseMethods from "./DatabaseMethods.ts"
import { Limits } from "./Limits.ts"
import { type Method, make } from "./Method.ts"
import * as StoreMethods from "./StoreMethods.ts"

export const info = make("runtime.info", { params: NoParams, result: Info }, () =>
  Effect.gen(function* () {
    const { ready } = yield* Core
    const { journalBytes, depth, queuedRequests } = yield* Limits
    return { ...ready, limits: { journal_bytes: journalBytes, depth, queued_requests: queuedRequests } }
  })
)

export const shutdown = make("runtime.shutdown", { params: NoParams, result: ShutdownResult }, () =>
  Core.use(({ stop }) => Effect.as(stop, { ok: true as const }))
)

export const inspectGiven = make(
  "turn_journal.inspect",
  { params: InspectParams, result: Inspection, journal: "inspected" },
  (params) =>
    Effect.succeed(
      inspect(
        params.journal,
        { goalId: params.goal_id, agentId: params.agent_id, turnKey: params.turn_key },
        { retryFailed: params.retry_failed ?? false, sessionCheck: params.session_recovery_check ?? null }
      )
    )
)

export const inspectStored = make(
  "turn_journal.inspect_stored",
  { params: InspectStoredParams, result: Inspection },
  (params) =>
    JournalStore.use((store) =>
      store.inspectStored({
        runtimeRoot: params.runtime_root,
        goalId: params.goal_id,
        agentId: params.agent_id,
        turnKey: params.turn_key,
        retryFailed: params.retry_failed,
        sessionRecoveryCheck: params.session_recovery_check
      })
    )
)

export const write = make(
  "turn_journal.write",
  { params: WriteParams, result: WriteResult, journal: "stored" },
  (params) =>
    JournalStore.use((store) =>
      store.write({
        path: params.path,
        journal: params.journal,
        expectedEffectId: params.expected_effect_id,
        expectedPrevious: params.expected_previous,
        lease: params.lease,
        retrySince: params.retry_since
      })
    )
)

export const read = make("turn_journal.read", { params: ReadParams, result: ReadResult }, (params) =>
  JournalStore.use((store) => store.read(params))
)

export const assess = make(
  "session_recovery.assess",
  { params: AssessParams, result: Assessment, journal: "inspected" },
  (params) => Effect.succeed(assessRetry(params))
)

export const hostFailure = make(
  "session_recovery.host_failure",
  { params: HostFailureParams, result: HostFailure },
  (params) => Effect.succeed(hostFailureRecord(params.kind, params.attempt))
)

export const methods: ReadonlyArray<Method<Core | Databases | JournalStore | Limits>> = [
  info,
  shutdown,
  inspectGiven,
  inspectStored,
  write,
  read,
  StoreMethods.history,
  StoreMethods.findSettlement,
  StoreMethods.list,
  StoreMethods.recoverable,
  StoreMethods.verify,
  StoreMethods.heads,
  StoreMethods.prune,
  StoreMethods.findPruned,
  StoreMethods.repair,
  StoreMethods.copy,
  DatabaseMethods.acquireLease,
  DatabaseMethods.renewLease,
  DatabaseMethods.releaseLease,
  DatabaseMethods.leaseHolder,
  DatabaseMethods.readSession,
  DatabaseMethods.writeSession,
  DatabaseMethods.listSessions,
  DatabaseMethods.migrate,
  assess,
  hostFailure
]
