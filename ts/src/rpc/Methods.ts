/** Every method of the protocol: runtime.md section 2. The schemas in `schemas/` are generated from this table. */
import * as Effect from "effect/Effect"
import { HostFailure, HostFailureParams } from "../contract/HostFailure.ts"
import { Inspection } from "../contract/Inspection.ts"
import { Info, InspectParams, NoParams, ShutdownResult } from "../contract/Messages.ts"
import { Assessment, AssessParams } from "../contract/SessionRecovery.ts"
import { inspect } from "../journal/Inspection.ts"
import { hostFailureRecord } from "../journal/RetryPolicy.ts"
import { assessRetry } from "../session/RetryAssessment.ts"
import { Core } from "./Core.ts"
import * as Method from "./Method.ts"

export const methods = [
  Method.make("runtime.info", { params: NoParams, result: Info }, () =>
    Effect.map(Core, ({ ready, limits }) => ({
      ...ready,
      limits: { journal_bytes: limits.journalBytes, depth: limits.depth, queued_requests: limits.queuedRequests }
    }))
  ),
  Method.make("turn_journal.inspect", { params: InspectParams, result: Inspection, journal: "inspected" }, (params) =>
    Effect.succeed(
      inspect(
        params.journal,
        { goalId: params.goal_id, agentId: params.agent_id, turnKey: params.turn_key },
        { retryFailed: params.retry_failed ?? false, sessionCheck: params.session_recovery_check ?? null }
      )
    )
  ),
  Method.make("session_recovery.assess", { params: AssessParams, result: Assessment, journal: "inspected" }, (params) =>
    Effect.succeed(assessRetry(params))
  ),
  Method.make("session_recovery.host_failure", { params: HostFailureParams, result: HostFailure }, (params) =>
    Effect.succeed(hostFailureRecord(params.kind, params.attempt))
  ),
  Method.make("runtime.shutdown", { params: NoParams, result: ShutdownResult }, () =>
    Effect.flatMap(Core, ({ stop }) => Effect.as(stop, { ok: true as const }))
  )
]
