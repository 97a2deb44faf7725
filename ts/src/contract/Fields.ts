/** How a field comes by the sentence that `schemas/` says of it, and the fields that several messages have. */
import * as Schema from "effect/Schema"

/** A field, and what it is. */
export const field = <S extends Schema.Top>(schema: S, description: string): S["Rebuild"] =>
  schema.annotateKey({ description })

export const optionalText = Schema.optionalKey(Schema.NullOr(Schema.String))

export const ROOT = field(Schema.String, "The runtime root: the absolute path of a folder, or postgresql://….")
export const PATH = field(
  Schema.String,
  "The path of a journal: absolute, or the URL of a database, `#` and the path under it."
)
export const GOAL = field(Schema.String, "The goal that the turn works for.")
export const ONE_GOAL = field(optionalText, "Only the turns of this goal; absent or null: of all.")
export const TURN = field(Schema.String, "The turn, by the name that its goal has once.")
export const OPERATION = field(Schema.String, "The name of the journal's content: sha256: and 64 hexadecimal digits.")
export const STATUS = field(Schema.String, "The journal's status.")
export const COMPLETED = field(Schema.Array(Schema.String), "The phases that are complete, in order.")
export const RETRY_FAILED = field(Schema.optionalKey(Schema.Boolean), "Whether a failed turn is to be tried again.")

export const MAX_PAGE = 1000
export const DEFAULT_PAGE = 200

export const LIMIT = field(
  Schema.optionalKey(Schema.NullOr(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: MAX_PAGE })))),
  `The most rows of a page; absent or null: ${DEFAULT_PAGE}.`
)
export const AFTER = field(optionalText, "The `next` of the page before; absent or null: from the beginning.")
export const NEXT = field(
  Schema.NullOr(Schema.String),
  "Handed back as `after`, it gives the next page; null: there is no more."
)
