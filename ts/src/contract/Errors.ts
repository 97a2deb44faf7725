/**
 * Everything the core may answer instead of a result. The `kind` is the stable name that both languages map to an error
 * class; the JSON-RPC `code` is one per class. Messages say what is wrong and what to do, and carry no journal bodies.
 */
import * as Schema from "effect/Schema"

export const INVALID_JOURNAL_KINDS = [
  "invalid_request",
  "journal_snapshot_invalid",
  "journal_path_mismatch",
  "journal_too_large",
  "journal_too_deep"
] as const

export const JOURNAL_CONFLICT_KINDS = [
  "journal_transition_conflict",
  "journal_effect_conflict",
  "journal_plan_conflict",
  "journal_previous_conflict",
  "journal_readback_conflict",
  "turn_lease_lost"
] as const

export const JOURNAL_CORRUPT_KINDS = ["journal_corrupt", "history_corrupt"] as const
export const STORE_FAILURE_KINDS = [
  "store_io_failed",
  "store_full",
  "store_unsafe_path",
  "store_unsupported",
  "store_denied",
  "store_schema_missing",
  "store_schema_older",
  "store_schema_newer"
] as const
export const STORE_UNAVAILABLE_KINDS = ["store_unavailable", "store_outcome_unknown"] as const

const Details = Schema.Record(Schema.String, Schema.Json)

/** The journal, or the address it is handed in with, is not acceptable; nothing was changed. */
export class InvalidJournal extends Schema.TaggedError<InvalidJournal>()("InvalidJournal", {
  kind: Schema.Literals(INVALID_JOURNAL_KINDS),
  message: Schema.String,
  details: Details
}) {}

/** The journal is acceptable by itself, and not after what is stored; nothing was changed. */
export class JournalConflict extends Schema.TaggedError<JournalConflict>()("JournalConflict", {
  kind: Schema.Literals(JOURNAL_CONFLICT_KINDS),
  message: Schema.String,
  details: Details
}) {}

/** No journal stands at that address. */
export class JournalNotFound extends Schema.TaggedError<JournalNotFound>()("JournalNotFound", {
  kind: Schema.Literals(["journal_not_found"]),
  message: Schema.String,
  details: Details
}) {}

/** What is stored is damaged; it was left as it is. */
export class JournalCorrupt extends Schema.TaggedError<JournalCorrupt>()("JournalCorrupt", {
  kind: Schema.Literals(JOURNAL_CORRUPT_KINDS),
  message: Schema.String,
  details: Details
}) {}

/** Somebody else holds the turn; the same call may succeed later. */
export class TurnBusy extends Schema.TaggedError<TurnBusy>()("TurnBusy", {
  kind: Schema.Literals(["turn_busy"]),
  message: Schema.String,
  details: Details
}) {}

/** The store itself refused: a permission, a full disk, a file system that cannot hold locks. */
export class StoreFailure extends Schema.TaggedError<StoreFailure>()("StoreFailure", {
  kind: Schema.Literals(STORE_FAILURE_KINDS),
  message: Schema.String,
  details: Details
}) {}

/** The database did not answer in time; the same call may succeed later, and does nothing twice. */
export class StoreUnavailable extends Schema.TaggedError<StoreUnavailable>()("StoreUnavailable", {
  kind: Schema.Literals(STORE_UNAVAILABLE_KINDS),
  message: Schema.String,
  details: Details
}) {}

export type CoreError =
  | InvalidJournal
  | JournalConflict
  | JournalNotFound
  | JournalCorrupt
  | TurnBusy
  | StoreFailure
  | StoreUnavailable

/** One row per error class: its JSON-RPC code, its kinds, and whether the same call may succeed later unchanged. */
export const ERRORS = [
  { tag: "InvalidJournal", code: -32001, retryable: false, kinds: INVALID_JOURNAL_KINDS },
  { tag: "JournalConflict", code: -32002, retryable: false, kinds: JOURNAL_CONFLICT_KINDS },
  { tag: "JournalNotFound", code: -32003, retryable: false, kinds: ["journal_not_found"] },
  { tag: "JournalCorrupt", code: -32004, retryable: false, kinds: JOURNAL_CORRUPT_KINDS },
  { tag: "TurnBusy", code: -32005, retryable: true, kinds: ["turn_busy"] },
  { tag: "StoreFailure", code: -32006, retryable: false, kinds: STORE_FAILURE_KINDS },
  { tag: "StoreUnavailable", code: -32007, retryable: true, kinds: STORE_UNAVAILABLE_KINDS }
] as const satisfies ReadonlyArray<{
  readonly tag: CoreError["_tag"]
  readonly code: number
  readonly retryable: boolean
  readonly kinds: ReadonlyArray<CoreError["kind"]>
}>
