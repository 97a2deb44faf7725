/** What the core says of itself, its limits, and how it is asked to stop. */
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { schemasDigest, version } from "../Build.ts"
import { MAX_DEPTH, MAX_JOURNAL_BYTES } from "../contract/Json.ts"
import { PROTOCOL_VERSION, type Ready } from "../contract/Messages.ts"

export const NAME = "turn-journal-core"

export interface Limits {
  /** A journal as compact JSON. */
  readonly journalBytes: number
  /** Nesting of a journal. */
  readonly depth: number
  /** Requests being worked on; past it nothing more is read until answers leave. */
  readonly queuedRequests: number
}

export const DEFAULT_LIMITS: Limits = {
  journalBytes: MAX_JOURNAL_BYTES,
  depth: MAX_DEPTH,
  queuedRequests: 100_000
}

export class Core extends Context.Service<
  Core,
  {
    readonly ready: Ready
    readonly limits: Limits
    /** Asks the server to finish what is in flight and end. */
    readonly stop: Effect.Effect<void>
    readonly stopped: Effect.Effect<void>
  }
>()("turn-journal-core/rpc/Core") {
  static readonly layer = (limits: Limits = DEFAULT_LIMITS): Layer.Layer<Core> =>
    Layer.effect(
      Core,
      Effect.gen(function* () {
        const stopped = yield* Deferred.make<void>()
        return {
          ready: {
            name: NAME,
            version: version(),
            protocol: PROTOCOL_VERSION,
            pid: process.pid,
            node: process.versions.node,
            schemas: schemasDigest()
          },
          limits,
          stop: Effect.asVoid(Deferred.succeed(stopped, undefined)),
          stopped: Deferred.await(stopped)
        }
      })
    )
}
