/**
 * Parameters and results of the protocol's methods on a store: runtime.md section 6, turn-journal.md section 8.
 *
 * Whatever may be long is answered in pages: `next` is handed back as `after` to go on, and null at the end. A page may
 * be empty and not the last one, so that no answer takes long.
 */
import * as Schema from "effect/Schema"
import {
  AFTER,
  COMPLETED,
  field,
  GOAL,
  LIMIT,
  MAX_PAGE,
  NEXT,
  ONE_GOAL,
  OPERATION,
  optionalText,
  PATH,
  RETRY_FAILED,
  ROOT,
  STATUS,
  TURN
} from "./Fields.ts"
import { RecoveryDecision } from "./Recovery.ts"

const Page = { after: AFTER, limit: LIMIT }
const Address = { goal_id: GOAL, turn_key: TURN }
const Range = { runtime_root: ROOT, goal_id: ONE_GOAL, ...Page }

const UNREAD = "Why the turn cannot be read; the fields after it are null then."

/** Where it is a goal's whole folder that cannot be read, the turn's key is empty. */
export const TurnDamage = Schema.Struct({
  kind: field(Schema.String, "The kind of the error that reading the turn gives."),
  message: field(Schema.String, "What is wrong, and what to do.")
}).annotate({ identifier: "TurnDamage", description: "What is wrong with a stored turn." })
export type TurnDamage = typeof TurnDamage.Type

// --- history

export const HistoryParams = Schema.Struct({
  path: PATH,
  after: field(
    Schema.optionalKey(Schema.NullOr(Schema.Int)),
    "The number of the last transition that is known already; absent or null: from the first one on."
  ),
  limit: LIMIT
}).annotate({ description: "Whose transitions are asked for." })
export type HistoryParams = typeof HistoryParams.Type

/** Without its journal: `turn_journal.read` with `at` gives that. */
export const TurnTransition = Schema.Struct({
  seq: field(Schema.Int, "Its number, counted from 1."),
  at: field(Schema.String, "When it was written: ISO 8601, UTC."),
  operation_id: OPERATION,
  status: STATUS,
  completed_phases: COMPLETED,
  hash: field(Schema.String, "The hash of its line, which the next line repeats."),
  signed: field(Schema.Boolean, "Whether its line carries a signature."),
  adopted: field(Schema.Boolean, "Whether another program wrote this journal, and it was found."),
  pruned: field(Schema.Boolean, "Whether it is the tombstone that pruning left.")
}).annotate({ identifier: "TurnTransition", description: "One transition of a turn." })
export type TurnTransition = typeof TurnTransition.Type

export const HistoryResult = Schema.Struct({
  transitions: field(Schema.Array(TurnTransition), "The transitions, oldest first."),
  next: field(Schema.NullOr(Schema.Int), "Handed back as `after`, it gives the next page; null: there is no more.")
}).annotate({ identifier: "HistoryResult", description: "A page of a turn's transitions." })
export type HistoryResult = typeof HistoryResult.Type

// --- queries

export const FindSettlementParams = Schema.Struct({
  runtime_root: ROOT,
  goal_id: field(Schema.String, "The goal that the work is for."),
  agent_id: field(Schema.String, "The agent that does it."),
  todo_id: field(Schema.String, "The todo that it settles."),
  turn_instance_id: field(Schema.String, "The instance of the turn that settles it.")
}).annotate({ description: "The work whose turn is looked for." })
export type FindSettlementParams = typeof FindSettlementParams.Type

export const FindSettlementResult = Schema.Struct({
  turn_key: field(Schema.NullOr(Schema.String), "The turn that settles the work; null: there is none.")
}).annotate({ identifier: "FindSettlementResult", description: "Which stored turn settles the work." })
export type FindSettlementResult = typeof FindSettlementResult.Type

export const ListParams = Schema.Struct({
  runtime_root: ROOT,
  goal_id: ONE_GOAL,
  status: field(optionalText, "Only turns of this status; absent or null: of any."),
  ...Page
}).annotate({ description: "Which turns are listed." })
export type ListParams = typeof ListParams.Type

export const ListedTurn = Schema.Struct({
  ...Address,
  damage: field(Schema.NullOr(TurnDamage), UNREAD),
  status: field(Schema.NullOr(Schema.String), "The journal's status."),
  completed_phases: field(Schema.NullOr(Schema.Array(Schema.String)), "The phases that are complete, in order."),
  operation_id: field(Schema.NullOr(Schema.String), "The name of the journal's content."),
  updated_at: field(Schema.NullOr(Schema.String), "When the turn was written last: ISO 8601, UTC.")
}).annotate({ identifier: "ListedTurn", description: "A turn as a list has it." })
export type ListedTurn = typeof ListedTurn.Type

export const ListResult = Schema.Struct({
  turns: field(Schema.Array(ListedTurn), "The turns, by goal and key."),
  next: NEXT
}).annotate({ identifier: "ListResult", description: "A page of turns." })
export type ListResult = typeof ListResult.Type

export const RecoverableParams = Schema.Struct({
  runtime_root: ROOT,
  goal_id: ONE_GOAL,
  retry_failed: RETRY_FAILED,
  ...Page
}).annotate({ description: "Which turns are looked at." })
export type RecoverableParams = typeof RecoverableParams.Type

export const RecoverableTurn = Schema.Struct({
  ...Address,
  damage: field(Schema.NullOr(TurnDamage), UNREAD),
  agent_id: field(Schema.NullOr(Schema.String), "The agent that the turn belongs to."),
  status: field(Schema.NullOr(Schema.String), "The journal's status."),
  completed_phases: field(Schema.NullOr(Schema.Array(Schema.String)), "The phases that are complete, in order."),
  recovery_decision: field(Schema.NullOr(RecoveryDecision), "How the turn goes on.")
}).annotate({ identifier: "RecoverableTurn", description: "A turn that can go on, or cannot be read." })
export type RecoverableTurn = typeof RecoverableTurn.Type

export const RecoverableResult = Schema.Struct({
  turns: field(Schema.Array(RecoverableTurn), "The turns, by goal and key."),
  next: NEXT
}).annotate({ identifier: "RecoverableResult", description: "A page of turns that can go on." })
export type RecoverableResult = typeof RecoverableResult.Type

// --- verification

const Head = {
  count: field(Schema.Int, "The number of the last transition."),
  digest: field(Schema.String, "The hash of its line.")
}

/** Kept elsewhere, it shows later whether the end was cut. */
export const TurnHead = Schema.Struct({ ...Address, ...Head }).annotate({
  identifier: "TurnHead",
  description: "The end of a turn's history."
})
export type TurnHead = typeof TurnHead.Type

export const HeadsParams = Schema.Struct(Range).annotate({ description: "Whose heads are asked for." })
export type HeadsParams = typeof HeadsParams.Type

export const HeadsResult = Schema.Struct({
  heads: field(Schema.Array(TurnHead), "The ends of the histories that are whole."),
  damaged: field(
    Schema.Array(Schema.Struct({ ...Address, damage: field(TurnDamage, "What is wrong with it.") })),
    "Turns whose history is not whole: they have no head."
  ),
  next: NEXT
}).annotate({ identifier: "HeadsResult", description: "A page of heads." })
export type HeadsResult = typeof HeadsResult.Type

export const VerifyParams = Schema.Struct({
  runtime_root: ROOT,
  goal_id: ONE_GOAL,
  turn_key: field(optionalText, "Only this turn of the goal; absent or null: all."),
  heads: field(
    Schema.optionalKey(Schema.NullOr(Schema.Array(TurnHead).check(Schema.isMaxLength(MAX_PAGE)))),
    "Heads that were exported earlier: just their turns are verified, and against them."
  ),
  ...Page
}).annotate({ description: "Which turns are verified, and against what." })
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

export const TurnProblem = Schema.Struct({
  kind: field(Schema.Literals(PROBLEMS), "What is wrong, as a name that programs can compare."),
  line: field(Schema.NullOr(Schema.Int), "The line of the history, counted from 1; null: it is not in a line."),
  message: field(Schema.String, "What is wrong.")
}).annotate({ identifier: "TurnProblem", description: "The first place where a turn is not as it was written." })
export type TurnProblem = typeof TurnProblem.Type

export const VerifiedTurn = Schema.Struct({
  ...Address,
  ok: field(Schema.Boolean, "Whether the turn is as it was written."),
  transitions: field(Schema.Int, "The transitions of the history that were found whole."),
  head: field(Schema.NullOr(Schema.Struct(Head)), "The end of its history; null: nothing stands there."),
  signed: field(Schema.Boolean, "Whether every line carries a signature, which is checked where the key is known."),
  unfinished: field(Schema.Boolean, "Whether a writer was cut off, and the next one drops or completes what it left."),
  problem: field(Schema.NullOr(TurnProblem), "What is wrong with the turn; null: nothing.")
}).annotate({ identifier: "VerifiedTurn", description: "How a turn was found." })
export type VerifiedTurn = typeof VerifiedTurn.Type

export const VerifyResult = Schema.Struct({
  ok: field(Schema.Boolean, "Whether every turn of this page is as it was written."),
  turns: field(Schema.Array(VerifiedTurn), "The turns, by goal and key."),
  next: NEXT
}).annotate({ identifier: "VerifyResult", description: "A page of turns, as they were found." })
export type VerifyResult = typeof VerifyResult.Type

// --- pruning and repair

export const PruneParams = Schema.Struct({
  runtime_root: ROOT,
  goal_id: ONE_GOAL,
  older_than: field(
    Schema.Finite.check(Schema.isGreaterThanOrEqualTo(0)),
    "Only turns that were written last so many seconds ago, or earlier."
  ),
  keep: field(
    Schema.optionalKey(Schema.NullOr(Schema.Int.check(Schema.isGreaterThanOrEqualTo(0)))),
    "How many turns of each goal stay as they are, the latest ones; absent or null: none."
  ),
  given_up: field(
    Schema.optionalKey(Schema.Boolean),
    "Whether also failed turns that somebody gave up are pruned; nobody can take those up again then."
  ),
  dry_run: field(Schema.optionalKey(Schema.Boolean), "Whether it is only said what would be pruned."),
  ...Page
}).annotate({ description: "Which turns are pruned." })
export type PruneParams = typeof PruneParams.Type

export const PrunedTurn = Schema.Struct({
  ...Address,
  damage: field(Schema.NullOr(TurnDamage), "Why the turn was left alone; null: it was pruned."),
  operation_id: field(Schema.NullOr(Schema.String), "The name of what is left of its journal.")
}).annotate({ identifier: "PrunedTurn", description: "A turn that was pruned, or could not be." })
export type PrunedTurn = typeof PrunedTurn.Type

export const PruneResult = Schema.Struct({
  turns: field(Schema.Array(PrunedTurn), "The turns, by goal and key."),
  next: NEXT
}).annotate({ identifier: "PruneResult", description: "A page of what was pruned." })
export type PruneResult = typeof PruneResult.Type

/** So many keys at once, because every call lists the turns of all goals. */
const MAX_KEYS = 10_000

export const FindPrunedParams = Schema.Struct({
  runtime_root: ROOT,
  goal_id: ONE_GOAL,
  turn_keys: field(
    Schema.Array(Schema.String).check(Schema.isMaxLength(MAX_KEYS)),
    "The turns that are asked about, of whatever goal."
  )
}).annotate({ description: "Which turns may have been pruned." })
export type FindPrunedParams = typeof FindPrunedParams.Type

export const FindPrunedResult = Schema.Struct({
  turns: field(
    Schema.Array(Schema.Struct(Address)),
    "Those of them that were pruned; one that cannot be read is not known to be."
  )
}).annotate({ description: "Which turns were pruned." })
export type FindPrunedResult = typeof FindPrunedResult.Type

// --- copying

export const CopyParams = Schema.Struct({
  runtime_root: field(Schema.String, "The runtime root where the turns are."),
  target_root: field(Schema.String, "The runtime root that they are copied to."),
  goal_id: ONE_GOAL,
  verify_only: field(
    Schema.optionalKey(Schema.Boolean),
    "Whether it is only said how the turns of the target compare with those of the source."
  ),
  ...Page
}).annotate({ description: "Which turns are copied, from where to where." })
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

/** Where a whole goal cannot be read, the turn's key is empty. */
export const CopiedTurn = Schema.Struct({
  ...Address,
  outcome: field(Schema.Literals(COPY_OUTCOMES), "What became of it, or how it compares."),
  transitions: field(Schema.Int, "The transitions that it has at the source."),
  problem: field(Schema.NullOr(TurnDamage), "Why it was not copied; null: source and target are the same now.")
}).annotate({ identifier: "CopiedTurn", description: "A turn that was to be copied." })
export type CopiedTurn = typeof CopiedTurn.Type

export const CopyResult = Schema.Struct({
  turns: field(Schema.Array(CopiedTurn), "The turns, by goal and key."),
  next: NEXT
}).annotate({ identifier: "CopyResult", description: "A page of what was copied." })
export type CopyResult = typeof CopyResult.Type

export const RepairParams = Schema.Struct({
  path: PATH,
  plan: field(
    optionalText,
    "The `plan` of an earlier answer, to be carried out if the turn is still as it was; absent or null: it is only said what is to be done."
  )
}).annotate({ description: "Which turn is repaired." })
export type RepairParams = typeof RepairParams.Type

export const REPAIRS = ["nothing", "cut_unfinished", "cut_history", "take_snapshot_over", "restore_snapshot"] as const

export const RepairResult = Schema.Struct({
  repair: field(Schema.Literals(REPAIRS), "What is to be done, or was done."),
  done: field(Schema.Boolean, "Whether it was done."),
  kept: field(Schema.Int, "The transitions that stay."),
  cut_bytes: field(Schema.Int, "The bytes of the history that are cut, and kept beside it."),
  plan: field(Schema.NullOr(Schema.String), "Handed back, it has the repair carried out; null: nothing is to be done."),
  message: field(Schema.String, "What was found, and what follows from it.")
}).annotate({ identifier: "RepairResult", description: "What makes a turn whole again." })
export type RepairResult = typeof RepairResult.Type
