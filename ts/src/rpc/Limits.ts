/** How much the core takes on: runtime.md section 4. */
import * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { GREATEST_DEPTH, GREATEST_JOURNAL_BYTES, MAX_DEPTH, MAX_JOURNAL_BYTES } from "../contract/Json.ts"

const configured = (name: string, otherwise: number, most: number) =>
  Config.withDefault(
    Config.schema(Schema.Int.check(Schema.isGreaterThan(0), Schema.isLessThanOrEqualTo(most)), name),
    otherwise
  )

export class Limits extends Context.Service<
  Limits,
  {
    /** A journal as compact JSON. */
    readonly journalBytes: number
    /** Nesting of a journal. */
    readonly depth: number
    /** Requests being worked on; past it nothing more is read until answers leave. */
    readonly queuedRequests: number
  }
>()("turn-journal-core/rpc/Limits") {
  static readonly defaults: Limits["Service"] = {
    journalBytes: MAX_JOURNAL_BYTES,
    depth: MAX_DEPTH,
    queuedRequests: 100_000
  }

  /** The defaults, or what the environment says instead. */
  static readonly layer = Layer.effect(
    Limits,
    Config.unwrap<Limits["Service"]>({
      journalBytes: configured("TURN_JOURNAL_MAX_JOURNAL_BYTES", Limits.defaults.journalBytes, GREATEST_JOURNAL_BYTES),
      depth: configured("TURN_JOURNAL_MAX_DEPTH", Limits.defaults.depth, GREATEST_DEPTH),
      queuedRequests: configured("TURN_JOURNAL_MAX_QUEUED", Limits.defaults.queuedRequests, Number.MAX_SAFE_INTEGER)
    })
  )
}
