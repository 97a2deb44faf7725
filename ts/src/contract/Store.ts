/**
 * Parameters and results of the protocol's methods on a store: runtime.md section 6, turn-journal.md section 8.
 *
 * Whatever may be long is answered in pages: `next` is handed back as `after` to go on, and null at the end. A page may
 * be empty and not the last one, so that no answer takes long.
 */
import * as Schema from "effect/Schema"
import { RecoveryDecision } from "./Recovery.ts"

export const MAX_PAGE = 1000
export const DEFAULT_PAGE = 200

const limit = Schema.optionalKey(Schema.NullOr(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: MAX_PAGE }))))

const Page = {
  /** The `next` of the page before; absent or null: from the beginning. */
  after: Schema.optionalKey(Schema.NullOr(Schema.String)),
  limit
}
const next = Schema.NullOr(Schema.String)

const optionalText = Schema.optionalKey(Schema.NullOr(Schema.String))
const Address = { goal_id: Schema.String, turn_key: Schema.String }

/**
 * What is wrong with a stored turn that cannot be read: the kind and message of the error that reading it gives. Where
 * it is a goal's whole folder that cannot be read, the turn's key is empty.
 */
export const TurnDamage = Schema.Struct({ kind: Schema.String, message: Schema.String }).annotate({
  identifier: "TurnDamage"
})
export type TurnDamage = typeof TurnDamage.Type

// --- history

export const HistoryParams = Schema.Struct({
  path: Schema.String,
  /** The number of the last transition that is known already. */
  after: Schema.optionalKey(Schema.NullOr(Schema.Int)),
  limit
})
export type HistoryParams = typeof HistoryParams.Type

/** One transition of a turn, without its journal: `turn_journal.read` with `at` gives that. */
export const TurnTransition = Schema.Struct({
  seq: Schema.Int,
  at: Schema.String,
  operation_id: Schema.String,
  status: Schema.String,
  completed_phases: Schema.Array(Schema.String),
  hash: Schema.String,
  signed: Schema.Boolean,
  /** Whether another program wrote this journal, and it was found. */
  adopted: Schema.Boolean,
  /** Whether it is the tombstone that pruning left. */
  pruned: Schema.Boolean
}).annotate({ identifier: "TurnTransition" })
export type TurnTransition = typeof TurnTransition.Type

export const HistoryResult = Schema.Struct({
  transitions: Schema.Array(TurnTransition),
  next: Schema.NullOr(Schema.Int)
}).annotate({ identifier: "HistoryResult" })
export type HistoryResult = typeof HistoryResult.Type

// --- queries

export const FindSettlementParams = Schema.Struct({
  runtime_root: Schema.String,
  goal_id: Schema.String,
  agent_id: Schema.String,
  todo_id: Schema.String,
  turn_instance_id: Schema.String
})
export type FindSettlementParams = typeof FindSettlementParams.Type

export const FindSettlementResult = Schema.Struct({ turn_key: Schema.NullOr(Schema.String) }).annotate({
  identifier: "FindSettlementResult"
})
export type FindSettlementResult = typeof FindSettlementResult.Type

export const ListParams = Schema.Struct({
  runtime_root: Schema.String,
  goal_id: optionalText,
  status: optionalText,
  ...Page
})
export type ListParams = typeof ListParams.Type

export const ListedTurn = Schema.Struct({
  ...Address,
  /** Set when the turn cannot be read; the fields after it are null then. */
  damage: Schema.NullOr(TurnDamage),
  status: Schema.NullOr(Schema.String),
  completed_phases: Schema.NullOr(Schema.Array(Schema.String)),
  operation_id: Schema.NullOr(Schema.String),
  /** ISO 8601, UTC. */
  updated_at: Schema.NullOr(Schema.String)
}).annotate({ identifier: "ListedTurn" })
export type ListedTurn = typeof ListedTurn.Type

export const ListResult = Schema.Struct({ turns: Schema.Array(ListedTurn), next }).annotate({
  identifier: "ListResult"
})
export type ListResult = typeof ListResult.Type

export const RecoverableParams = Schema.Struct({
  runtime_root: Schema.String,
  goal_id: optionalText,
  retry_failed: Schema.optionalKey(Schema.Boolean),
  ...Page
})
export type RecoverableParams = typeof RecoverableParams.Type

export const RecoverableTurn = Schema.Struct({
  ...Address,
  damage: Schema.NullOr(TurnDamage),
  agent_id: Schema.NullOr(Schema.String),
  status: Schema.NullOr(Schema.String),
  completed_phases: Schema.NullOr(Schema.Array(Schema.String)),
  recovery_decision: Schema.NullOr(RecoveryDecision)
}).annotate({ identifier: "RecoverableTurn" })
export type RecoverableTurn = typeof RecoverableTurn.Type

export const RecoverableResult = Schema.Struct({ turns: Schema.Array(RecoverableTurn), next }).annotate({
  identifier: "RecoverableResult"
})
export type RecoverableResult = typeof RecoverableResult.Type

// --- verification

/** The end of a turn's history, kept elsewhere: it shows later whether the end was cut. */
export const TurnHead = Schema.Struct({ ...Address, count: Schema.Int, digest: Schema.String }).annotate({
  identifier: "TurnHead"
})
export type TurnHead = typeof TurnHead.Type

export const HeadsParams = Schema.Struct({ runtime_root: Schema.String, goal_id: optionalText, ...Page })
export type HeadsParams = typeof HeadsParams.Type

export const HeadsResult = Schema.Struct({
  heads: Schema.Array(TurnHead),
  /** Turns whose history is not whole: they have no head. */
  damaged: Schema.Array(Schema.Struct({ ...Address, damage: TurnDamage })),
  next
}).annotate({ identifier: "HeadsResult" })
export type HeadsResult = typeof HeadsResult.Type

export const VerifyParams = Schema.Struct({
  runtime_root: Schema.String,
  goal_id: optionalText,
  /** One turn of that goal. */
  turn_key: optionalText,
  /** Heads that were exported earlier: just their turns are verified, and against them. At most a page of them. */
  heads: Schema.optionalKey(Schema.NullOr(Schema.Array(TurnHead).check(Schema.isMaxLength(MAX_PAGE)))),
  ...Page
})
export type VerifyParams = typeof VerifyParams.Type

export const PROBLEMS = [
  "unreadable",
  "line_damaged",
  "line_changed",
  "line_out_of_place",
  "signature_missing",
  "signature_invalid",
  "snapshot_missing",
  "snapshot_damaged",
  "snapshot_not_last",
  "snapshot_rewritten",
  "head_missing",
  "head_mismatch"
] as const

/** What is wrong with a turn, and the first place where it shows. */
export const TurnProblem = Schema.Struct({
  kind: Schema.Literals(PROBLEMS),
  /** Of the history, counted from 1. */
  line: Schema.NullOr(Schema.Int),
  message: Schema.String
}).annotate({ identifier: "TurnProblem" })
export type TurnProblem = typeof TurnProblem.Type

export const VerifiedTurn = Schema.Struct({
  ...Address,
  ok: Schema.Boolean,
  /** Transitions of the history that were found whole. */
  transitions: Schema.Int,
  head: Schema.NullOr(Schema.Struct({ count: Schema.Int, digest: Schema.String })),
  /** Whether every line carries a signature. It is checked when the store has the key. */
  signed: Schema.Boolean,
  /** Whether a writer was cut off and left something that the next writer drops or completes. No damage. */
  unfinished: Schema.Boolean,
  problem: Schema.NullOr(TurnProblem)
}).annotate({ identifier: "VerifiedTurn" })
export type VerifiedTurn = typeof VerifiedTurn.Type

export const VerifyResult = Schema.Struct({
  /** Whether every turn of this page is as it was written. */
  ok: Schema.Boolean,
  turns: Schema.Array(VerifiedTurn),
  next
}).annotate({ identifier: "VerifyResult" })
export type VerifyResult = typeof VerifyResult.Type

// --- pruning and repair

export const PruneParams = Schema.Struct({
  runtime_root: Schema.String,
  goal_id: optionalText,
  /** Seconds since a turn was written last. */
  older_than: Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0)),
  /** How many turns of each goal stay as they are, the latest ones. */
  keep: Schema.optionalKey(Schema.NullOr(Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)))),
  /** Only says what would be pruned. */
  dry_run: Schema.optionalKey(Schema.Boolean),
  ...Page
})
export type PruneParams = typeof PruneParams.Type

export const PrunedTurn = Schema.Struct({
  ...Address,
  /** Set when the turn was left alone because it cannot be read or written. */
  damage: Schema.NullOr(TurnDamage),
  operation_id: Schema.NullOr(Schema.String)
}).annotate({ identifier: "PrunedTurn" })
export type PrunedTurn = typeof PrunedTurn.Type

export const PruneResult = Schema.Struct({ turns: Schema.Array(PrunedTurn), next }).annotate({
  identifier: "PruneResult"
})
export type PruneResult = typeof PruneResult.Type

export const FindPrunedParams = Schema.Struct({
  runtime_root: Schema.String,
  goal_id: optionalText,
  /** The keys that are asked about, of whatever goal. */
  turn_keys: Schema.Array(Schema.String).check(Schema.isMaxLength(MAX_PAGE))
})
export type FindPrunedParams = typeof FindPrunedParams.Type

/** Those of them that were pruned; one that cannot be read is not known to be. */
export const FindPrunedResult = Schema.Struct({ turns: Schema.Array(Schema.Struct(Address)) })
export type FindPrunedResult = typeof FindPrunedResult.Type

// --- copying

export const CopyParams = Schema.Struct({
  /** Where the turns are. */
  runtime_root: Schema.String,
  /** Where they are copied to. */
  target_root: Schema.String,
  goal_id: optionalText,
  /** Only says how the turns of the target compare with those of the source. */
  verify_only: Schema.optionalKey(Schema.Boolean),
  ...Page
})
export type CopyParams = typeof CopyParams.Type

export const COPY_OUTCOMES = [
  "copied",
  /** The target had an earlier state of the turn, and has the rest now. */
  "extended",
  "same",
  /** Of a comparison: the target does not have the turn. */
  "missing",
  /** Of a comparison: the target has an earlier state of the turn. */
  "behind",
  /** The target's turn is another one, or went on by itself: it was left as it is. */
  "conflict",
  /** Somebody drives the turn, here or there. */
  "driven",
  /** The turn is not whole, here or there; it was left as it is. */
  "damaged",
  /** The turn's history is larger than what is copied as one. */
  "too_large"
] as const

/** What became of a turn that was to be copied. Where a whole goal cannot be read, the turn's key is empty. */
export const CopiedTurn = Schema.Struct({
  ...Address,
  outcome: Schema.Literals(COPY_OUTCOMES),
  /** Of the source. */
  transitions: Schema.Int,
  /** Why the turn was not copied; null where source and target are the same now. */
  problem: Schema.NullOr(TurnDamage)
}).annotate({ identifier: "CopiedTurn" })
export type CopiedTurn = typeof CopiedTurn.Type

export const CopyResult = Schema.Struct({ turns: Schema.Array(CopiedTurn), next }).annotate({
  identifier: "CopyResult"
})
export type CopyResult = typeof CopyResult.Type

export const RepairParams = Schema.Struct({
  path: Schema.String,
  /** The `plan` of an earlier answer: carries it out, if the turn is still as it was then. Absent: only says it. */
  plan: optionalText
})
export type RepairParams = typeof RepairParams.Type

export const REPAIRS = ["nothing", "cut_unfinished", "cut_history", "take_snapshot_over", "restore_snapshot"] as const

export const RepairResult = Schema.Struct({
  /** What is to be done, or was done. */
  repair: Schema.Literals(REPAIRS),
  done: Schema.Boolean,
  /** The transitions that stay. */
  kept: Schema.Int,
  /** The bytes of the history that are cut; they are kept beside it. */
  cut_bytes: Schema.Int,
  /** Stands for the turn as it is: handed in to carry the repair out. */
  plan: Schema.NullOr(Schema.String),
  message: Schema.String
}).annotate({ identifier: "RepairResult" })
export type RepairResult = typeof RepairResult.Type
