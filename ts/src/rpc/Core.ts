/** What the core says of itself, and how it is asked to stop. */
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { schemasDigest, version } from "../Build.ts"
import { PROTOCOL_VERSION, type Ready } from "../contract/Messages.ts"

export class Core extends Context.Service<
  Core,
  {
    readonly ready: Ready
    /** Asks the server to finish what is in flight and end. */
    readonly stop: Effect.Effect<void>
    readonly stopped: Effect.Effect<void>
  }
>()("turn-journal-core/rpc/Core") {
  static readonly layer = Layer.effect(
    Core,
    Effect.gen(function* () {
      const stopped = yield* Deferred.make<void>()
      return {
        ready: {
          name: "turn-journal-core",
          version: version(),
          protocol: PROTOCOL_VERSION,
          pid: process.pid,
          node: process.versions.node,
          schemas: schemasDigest()
        },
        stop: Effect.asVoid(Deferred.succeed(stopped, undefined)),
        stopped: Deferred.await(stopped)
      }
    })
  )
}
