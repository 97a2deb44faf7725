/** Parameters and results of the protocol's methods on one journal: runtime.md section 2. */
import * as Schema from "effect/Schema"
import { field, OPERATION, optionalText, PATH, RETRY_FAILED, ROOT } from "./Fields.ts"
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
export const NoParams = Schema.Record(
  Schema.String,
  Schema.Never.annotate({ message: "Expected no excess property" })
).annotate({ description: "No parameters." })

const Question = {
  goal_id: field(Schema.String, "The goal that the journal must name."),
  agent_id: field(Schema.String, "The agent that must own the turn."),
  turn_key: field(Schema.String, "The turn that the journal must name."),
  retry_failed: RETRY_FAILED,
  session_recovery_check: field(
    Schema.optionalKey(Schema.NullOr(RecoveryCheck)),
    "What was found out about the host's session; absent or null: nothing."
  )
}

export const InspectParams = Schema.Struct({
  journal: field(JournalDocument, "The journal, as it is: any JSON."),
  ...Question
}).annotate({ description: "A journal, and whose turn it must be." })
export type InspectParams = typeof InspectParams.Type

export const InspectStoredParams = Schema.Struct({ runtime_root: ROOT, ...Question }).annotate({
  description: "The address of a stored journal, and whose turn it must be."
})
export type InspectStoredParams = typeof InspectStoredParams.Type

export const WriteParams = Schema.Struct({
  path: PATH,
  journal: field(JournalDocument, "The journal that is to stand there."),
  expected_effect_id: field(optionalText, "The effect id that the journal must have; absent, null or blank: any."),
  expected_previous: field(
    optionalText,
    'The operation id of the stored journal that this one follows, null for "nothing stored"; absent: not checked.'
  ),
  lease: field(
    Schema.optionalKey(Schema.Int),
    "The number of the lease that the writer holds, refused when it is not the latest; absent: it has none."
  ),
  retry_since: field(
    Schema.optionalKey(Schema.Int),
    "When this very call was made first, in milliseconds since 1970, if its answer never came: a journal that stood since then is written already."
  )
}).annotate({ description: "A journal, the path that it is written to, and what must stand there." })
export type WriteParams = typeof WriteParams.Type

export const WriteResult = Schema.Struct({
  ok: field(Schema.Literal(true), "Always true: a write that is refused is an error."),
  appended: field(Schema.Boolean, "Whether this write changed the turn."),
  replayed: field(Schema.Boolean, "Whether the journal stood already."),
  effect_id: field(Schema.NullOr(Schema.String), "The idempotency key of the turn's effects; null: it has none."),
  operation_id: OPERATION
}).annotate({ identifier: "WriteResult", description: "What a write did." })
export type WriteResult = typeof WriteResult.Type

export const ReadParams = Schema.Struct({
  path: PATH,
  at: field(
    Schema.optionalKey(Schema.NullOr(Schema.Int)),
    "The number of a transition: the journal as it was then; absent or null: as it stands."
  )
}).annotate({ description: "Which journal is read, and as of when." })
export type ReadParams = typeof ReadParams.Type

export const ReadResult = Schema.Struct({
  journal: field(Schema.Record(Schema.String, Schema.Json), "The journal, whole."),
  operation_id: OPERATION,
  seq: field(Schema.NullOr(Schema.Int), "The number of the transition that it is; null: there is no history.")
}).annotate({ identifier: "ReadResult", description: "A stored journal." })
export type ReadResult = typeof ReadResult.Type

export const Ready = Schema.Struct({
  name: field(Schema.String, "The name of the core."),
  version: field(Schema.String, "The version of the core."),
  protocol: field(Schema.Int, "The version of the protocol."),
  pid: field(Schema.Int, "The id of the core's process."),
  node: field(Schema.String, "The version of Node that runs it."),
  schemas: field(Schema.String, "The digest of the schema files that it was built with.")
}).annotate({ identifier: "Ready", description: "What the core says first, before it is asked anything." })
export type Ready = typeof Ready.Type

export const Info = Schema.Struct({
  ...Ready.fields,
  limits: field(
    Schema.Struct({
      journal_bytes: field(Schema.Int, "The bytes that a journal may have, as compact JSON."),
      depth: field(Schema.Int, "The levels that a journal may be nested."),
      queued_requests: field(Schema.Int, "The requests that are worked on at once.")
    }),
    "How much the core takes on."
  )
}).annotate({ identifier: "Info", description: "What the core is, and how much it takes on." })
export type Info = typeof Info.Type

export const ShutdownResult = Schema.Struct({
  ok: field(Schema.Literal(true), "Always true: the core ends when all that was asked is answered.")
}).annotate({ identifier: "ShutdownResult", description: "The core ends." })
