/**
 * Makes a damaged turn usable again, in two steps: first it is said what would be cut, then just that is cut. What is
 * cut is kept beside the history. runtime.md section 6.
 */
import * as crypto from "node:crypto"
import { isDeepStrictEqual } from "node:util"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import { type CoreError, JournalConflict, type JournalCorrupt } from "../contract/Errors.ts"
import type { JsonObject, JsonValue } from "../contract/Json.ts"
import type { RepairResult } from "../contract/Store.ts"
import { type Admission, admit } from "../journal/Admission.ts"
import { operationId } from "../journal/OperationId.ts"
import { canonicalText } from "../journal/Value.ts"
import * as Chain from "./Chain.ts"
import type { Commit, Driver, Encoded, HistoryEnd, Piece, Position, Snapshot } from "./Driver.ts"
import { corrupt } from "./Failure.ts"
import { type SigningKey, type Transition, writeLine } from "./History.ts"
import * as Place from "./Place.ts"
import { decode, type JournalLimits, positionOf, snapshotText, within } from "./Stored.ts"

export interface RepairRequest {
  readonly path: string
  /** The `plan` of an earlier answer: carries it out, if the turn is still as it was then. */
  readonly plan?: string | null | undefined
}

/** What is found of a turn, whole or not. */
interface Survey {
  readonly snapshot: Snapshot | null
  readonly history: HistoryEnd | null
  /** The transition that `history.sealed` stands for. */
  readonly sealed: Transition | null
  readonly bytes: number
}

interface Plan {
  readonly repair: RepairResult["repair"]
  readonly message: string
  /** Null: nothing is to be done. */
  readonly change: {
    readonly after: Position | null
    readonly journal: JsonObject
    /** The journal to be taken into the history; null when it is there already. */
    readonly adopt: Admission | null
  } | null
}

export const repair = Effect.fnUntraced(function* (
  driver: Driver["Service"],
  { key, limits }: { readonly key: SigningKey | null; readonly limits: JournalLimits },
  request: RepairRequest
): Effect.fn.Return<RepairResult, CoreError> {
  const place = yield* Effect.fromResult(Place.ofPath(request.path))
  const found = yield* survey(driver, place)
  const plan = yield* Effect.fromResult(planFor(place, found, limits))
  const digest = plan.change === null ? null : digestOf(found)
  const answer: RepairResult = {
    repair: plan.repair,
    done: false,
    message: plan.message,
    kept: (plan.change === null ? (found.history?.sealed ?? null) : plan.change.after)?.line ?? 0,
    cut_bytes: cutBytes(found, plan),
    plan: digest
  }
  if (request.plan == null || plan.change === null) return answer
  if (request.plan !== digest) return yield* changedMeanwhile()
  const at = new Date(yield* Clock.currentTimeMillis).toISOString()
  const commit = commitOf(place, plan.change, at, answer.cut_bytes > 0, key)
  return yield* driver.transact(
    place,
    (stored) =>
      isAsFound(stored, found)
        ? Result.succeed({ answer: { ...answer, done: true }, commit })
        : Result.fail(changedMeanwhile()),
    null
  )
})

const survey = Effect.fnUntraced(function* (driver: Driver["Service"], place: Place.Place) {
  let sealed: Transition | null = null
  let bytes = 0
  const chain = Chain.follow(place.address, {
    take: (transition, isSealed) => {
      if (isSealed) sealed = transition
      return true
    }
  })
  let following = true
  const visit = (piece: Piece): boolean => {
    bytes = piece.revision + piece.end.length
    if (following) following = chain.visit(piece)
    return true
  }
  const scanned = yield* driver.scan(place, visit, "settled")
  const found: Survey = {
    snapshot: scanned.snapshot,
    history: scanned.history ? chain.end() : null,
    sealed: sealed as Transition | null,
    bytes
  }
  return found
})

const planFor = (
  place: Place.Place,
  { snapshot, history, sealed }: Survey,
  limits: JournalLimits
): Result.Result<Plan, JournalCorrupt> => {
  const decoded = snapshot === null ? null : decode(snapshot.bytes, limits)
  const journal = decoded?._tag === "Success" ? decoded.success : null
  const document = journal === null ? null : { operationId: operationId(journal) }
  if (history === null) {
    return decoded?._tag === "Failure" ? Result.fail(beyondRepair(decoded.failure.message)) : Result.succeed(NOTHING)
  }
  const position = positionOf(history, document)

  if (history.damage === null && journal !== null && position !== undefined && position !== null) {
    const isWhole = !history.torn && history.open.at(-1) === (history.open.includes(position) ? position : undefined)
    if (isWhole) return Result.succeed(NOTHING)
    return Result.succeed({
      repair: "cut_unfinished",
      message: "A writer was cut off after the last transition. The next write drops what it left; so does this.",
      change: { after: position, journal, adopt: null }
    })
  }
  if (journal === null) {
    if (sealed === null) {
      return snapshot === null && history.damage === null
        ? Result.succeed(NOTHING)
        : Result.fail(beyondRepair("Neither the journal nor any line of its history is whole."))
    }
    const restorable = within(limits, sealed.journal)
    if (Result.isFailure(restorable)) return Result.fail(beyondRepair(restorable.failure.message))
    return Result.succeed({
      repair: history.damage === null ? "restore_snapshot" : "cut_history",
      message: `The journal is ${snapshot === null ? "gone" : "damaged"}: it is written again as of transition ${sealed.seq}, the last one that is whole.`,
      change: { after: history.sealed, journal: sealed.journal, adopt: null }
    })
  }
  const admission = admit(journal, place.address)
  if (Result.isFailure(admission)) return Result.fail(beyondRepair(admission.failure.message))
  const isLast = history.sealed?.operationId === document?.operationId
  return Result.succeed({
    repair: history.damage === null ? "take_snapshot_over" : "cut_history",
    message:
      history.damage === null
        ? "Something else wrote the journal: it becomes the next transition of the history."
        : `The history is cut before line ${history.damage.line}, and goes on with the journal as it stands.`,
    change: { after: history.sealed, journal, adopt: isLast ? null : admission.success }
  })
}

const NOTHING: Plan = { repair: "nothing", message: "The turn is whole: there is nothing to repair.", change: null }

const beyondRepair = (why: string): JournalCorrupt =>
  corrupt("journal_corrupt", `The turn cannot be repaired: ${why} Restore its files from a backup.`, {})

const cutBytes = ({ bytes }: Survey, { change }: Plan): number =>
  change === null ? 0 : bytes - (change.after === null ? 0 : change.after.revision + 1)

const commitOf = (
  place: Place.Place,
  { after, journal, adopt }: NonNullable<Plan["change"]>,
  at: string,
  cuts: boolean,
  key: SigningKey | null
): Commit => ({
  after,
  lines: adopt === null ? [] : [writeLine(after, place.address, adopt, { at, adopted: true, key })],
  snapshot: snapshotText(canonicalText(journal)),
  ...(cuts ? { setAside: `cut-${at.replaceAll(/[-:.]/g, "")}` } : {})
})

const digestOf = ({ snapshot, history, bytes }: Survey): string => {
  const content = snapshot === null ? null : crypto.hash("sha256", snapshot.bytes, "hex")
  const state = { content, history: history as unknown as JsonValue, bytes }
  return `sha256:${crypto.hash("sha256", canonicalText(state), "hex")}`
}

const isAsFound = (stored: Encoded, { snapshot, history }: Survey): boolean =>
  isDeepStrictEqual(stored.history, history) && isDeepStrictEqual(stored.snapshot?.bytes, snapshot?.bytes)

const changedMeanwhile = (): JournalConflict =>
  new JournalConflict({
    kind: "journal_previous_conflict",
    message: "The turn is no longer as it was when the repair was planned: look again, and plan anew.",
    details: {}
  })
