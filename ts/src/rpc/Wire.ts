/** Where bytes come from and answers go to: a process's standard streams, or two queues of a test. */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"

export interface Listener {
  /** Takes what has come. The bytes are lent: they may be overwritten after the return. */
  readonly chunk: (bytes: Uint8Array) => void
  /** Nothing more will come. */
  readonly end: () => void
  /** The peer has caught up after `send` said that it was behind. */
  readonly drained: () => void
}

/**
 * Callbacks instead of streams: one line of a stream's machinery costs as much as the answer to it
 * (docs/performance.md).
 */
export class Wire extends Context.Service<
  Wire,
  {
    readonly listen: (listener: Listener) => void
    /** Holds back what the peer sends, until `resume`. */
    readonly pause: () => void
    readonly resume: () => void
    /** Queues text for the peer; false when it is behind and nothing more should be sent for now. */
    readonly send: (text: string) => boolean
    /** Done when everything sent so far has left the process. */
    readonly flushed: Effect.Effect<void>
    /** Done when the peer no longer listens. */
    readonly hungUp: Effect.Effect<void>
  }
>()("turn-journal-core/rpc/Wire") {}
