/** Parameters and results of the protocol's methods on one journal: runtime.md section 2. */
import * as Schema from "effect/Schema"
import type { JsonValue } from "./Json.ts"
import { RecoveryCheck } from "./Recovery.ts"

/** The version of the protocol itself; a client of another one is refused at the start. */
export const PROTOCOL_VERSION = 1

/**
 * A journal as a caller hands it in: any JSON; what is wrong with it is the rules' business. It was read by the strict
 * parser, so it is not walked a second time here: that costs as much as the rules themselves.
 */
export const JournalDocument = Schema.declare((_): _ is JsonValue => true, {
  identifier: "JournalDocument",
  toCodecJson: () => undefined
})

/** No parameters at all. (An empty Struct is TypeScript's `{}`: everything but null.) */
export const NoParams = Schema.Record(Schema.String, Schema.Never.annotate({ message: "Expected no excess property" }))

const Question = {
  goal_id: Schema.String,
  agent_id: Schema.String,
  turn_key: Schema.String,
  retry_failed: Schema.optionalKey(Schema.Boolean),
  session_recovery_check: Schema.optionalKey(Schema.NullOr(RecoveryCheck))
}

export const InspectParams = Schema.Struct({ journal: JournalDocument, ...Question })
export type InspectParams = typeof InspectParams.Type

export const InspectStoredParams = Schema.Struct({ runtime_root: Schema.String, ...Question })
export type InspectStoredParams = typeof InspectStoredParams.Type

export const WriteParams = Schema.Struct({
  path: Schema.String,
  journal: JournalDocument,
  expected_effect_id: Schema.optionalKey(Schema.NullOr(Schema.String)),
  /** The operation id of the stored journal, null for "nothing stored"; absent: not checked. */
  expected_previous: Schema.optionalKey(Schema.NullOr(Schema.String)),
  /** The fencing number of the lease that the writer holds; one that is not the latest is refused. Absent: no driver. */
  lease: Schema.optionalKey(Schema.Int),
  /**
   * Set when this very call was made before and its answer never came, because the core died: when it was made, in
   * milliseconds since 1970. A journal that stood since then is written already, also when others followed it.
   */
  retry_since: Schema.optionalKey(Schema.Int)
})
export type WriteParams = typeof WriteParams.Type

export const WriteResult = Schema.Struct({
  ok: Schema.Literal(true),
  appended: Schema.Boolean,
  replayed: Schema.Boolean,
  effect_id: Schema.NullOr(Schema.String),
  operation_id: Schema.String
}).annotate({ identifier: "WriteResult" })
export type WriteResult = typeof WriteResult.Type

export const ReadParams = Schema.Struct({
  path: Schema.String,
  /** The sequence number of a transition: the journal as it was then. */
  at: Schema.optionalKey(Schema.NullOr(Schema.Int))
})
export type ReadParams = typeof ReadParams.Type

export const ReadResult = Schema.Struct({
  journal: Schema.Record(Schema.String, Schema.Json),
  operation_id: Schema.String,
  /** The number of the last transition in the history; null where there is no history. */
  seq: Schema.NullOr(Schema.Int)
}).annotate({ identifier: "ReadResult" })
export type ReadResult = typeof ReadResult.Type

export const Ready = Schema.Struct({
  name: Schema.String,
  version: Schema.String,
  protocol: Schema.Int,
  pid: Schema.Int,
  node: Schema.String,
  schemas: Schema.String
}).annotate({ identifier: "Ready" })
export type Ready = typeof Ready.Type

export const Info = Schema.Struct({
  ...Ready.fields,
  limits: Schema.Struct({
    journal_bytes: Schema.Int,
    depth: Schema.Int,
    queued_requests: Schema.Int
  })
}).annotate({ identifier: "Info" })
export type Info = typeof Info.Type

export const ShutdownResult = Schema.Struct({ ok: Schema.Literal(true) }).annotate({ identifier: "ShutdownResult" })
