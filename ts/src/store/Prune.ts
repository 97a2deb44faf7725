/** Takes history and bulk from turns that are over, and leaves what inspects the same. runtime.md section 6. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import type { CoreError } from "../contract/Errors.ts"
import type { JsonObject } from "../contract/Json.ts"
import type { FindPrunedResult, PrunedTurn, PruneResult } from "../contract/Store.ts"
import { admit, type Refusal } from "../journal/Admission.ts"
import type { Driver, Encoded, Near, Snapshot, Step } from "./Driver.ts"
import { type SigningKey, writeLine } from "./History.ts"
import * as Place from "./Place.ts"
import { decode, type JournalLimits, type Reader, snapshotText, standing } from "./Stored.ts"
import { isBare, tombstoneOf } from "./Tombstone.ts"
import { AT_A_TIME, placesOf, type Range, type TurnPlace, type Walks } from "./Walk.ts"

export interface PruneRequest extends Range {
  /** Seconds since a turn was written last. */
  readonly olderThan: number
  /** How many turns of each goal stay as they are, the latest ones. */
  readonly keep?: number | null | undefined
  /** Also failed turns that somebody gave up; nobody can take those up again then. */
  readonly givenUp?: boolean | undefined
  readonly dryRun?: boolean | undefined
}

export interface FindPrunedRequest {
  readonly runtimeRoot: string
  /** One goal's turns only. */
  readonly goalId?: string | null | undefined
  readonly turnKeys: ReadonlyArray<string>
}

export interface Pruning {
  readonly prune: (request: PruneRequest) => Effect.Effect<PruneResult, CoreError>
  /** Which of some turns were pruned: nothing goes on with those, and what else was kept for them may go. */
  readonly findPruned: (request: FindPrunedRequest) => Effect.Effect<FindPrunedResult, CoreError>
}

const NOTHING: Step<string | null> = { answer: null, commit: null }

/** The clock tells whole milliseconds, and a file's time is finer: what was written in this one is not of the future. */
const isYounger = ({ updatedAt }: Snapshot, than: number): boolean => Math.floor(updatedAt) > than

/**
 * Whether a turn is known to be pruned, of which this is the journal; of most the history need not be read for that.
 */
export type IsPruned = (place: Place.Place, journal: JsonObject) => Effect.Effect<boolean>

export const isPrunedIn =
  (driver: Driver["Service"], read: Reader): IsPruned =>
  (place, journal) =>
    isBare(journal)
      ? driver.load(place).pipe(
          Effect.flatMap((encoded) => Effect.fromResult(standing(read, place, encoded))),
          Effect.match({ onFailure: () => false, onSuccess: ({ position }) => (position?.pruned ?? null) !== null })
        )
      : Effect.succeed(false)

export const make = (
  driver: Driver["Service"],
  walks: Walks,
  isPruned: IsPruned,
  read: Reader,
  key: SigningKey | null,
  limits: JournalLimits
): Pruning => {
  const prune: Pruning["prune"] = Effect.fnUntraced(function* (request) {
    const { olderThan, keep, givenUp = false, dryRun = false, ...range } = request
    const clock = yield* Clock.Clock
    const before = clock.currentTimeMillisUnsafe() - olderThan * 1000
    let latest = { goalId: "", keys: new Set<string>() as ReadonlySet<string> }

    const isKept = Effect.fnUntraced(function* ({ root, address }: TurnPlace) {
      if (keep == null || keep === 0) return false
      if (latest.goalId !== address.goalId) {
        latest = { goalId: address.goalId, keys: yield* latestKeys(driver, root, address.goalId, keep) }
      }
      return latest.keys.has(address.turnKey)
    })

    const pruneTurn = Effect.fnUntraced(function* (place: TurnPlace) {
      const at = new Date(clock.currentTimeMillisUnsafe()).toISOString()
      const decide = (encoded: Encoded) => decidePruning(place, encoded, { before, givenUp, at, key, read })
      if (!dryRun) return yield* driver.transact(place, decide, null)
      return (yield* Effect.fromResult(decide(yield* driver.load(place)))).answer
    })

    const look = (place: TurnPlace, near: Near): Effect.Effect<PrunedTurn | null> =>
      Effect.gen(function* () {
        const row = { goal_id: place.address.goalId, turn_key: place.address.turnKey, damage: null }
        if (!(yield* mayBePruned(near, place, before)) || (yield* isKept(place))) return null
        const operationId = yield* pruneTurn(place)
        return operationId === null ? null : { ...row, operation_id: operationId }
      }).pipe(Effect.catch((error) => Effect.succeed(leftAlone(place.address.goalId, place.address.turnKey, error))))

    const { found, next } = yield* walks.page({ ...range, reads: "journals" }, look, (goalId, error) =>
      leftAlone(goalId, "", error)
    )
    return { turns: found, next }
  })

  /** Without a lock: most turns are not over, and need not be held. */
  const mayBePruned = (near: Near, place: TurnPlace, before: number): Effect.Effect<boolean, CoreError> =>
    Effect.flatMap(near.glance(place), (snapshot) => {
      if (snapshot === null || isYounger(snapshot, before)) return Effect.succeed(false)
      return Effect.fromResult(
        // Also a turn that was given up, which may be one whose pruning was cut off.
        Result.map(decode(snapshot.bytes, limits), (journal) => tombstoneOf(journal, place.address, true) !== null)
      )
    })

  const isPrunedNear = (near: Near, place: Place.Place): Effect.Effect<boolean> =>
    near.glance(place).pipe(
      Effect.flatMap((snapshot) =>
        snapshot === null
          ? Effect.succeed(false)
          : Effect.flatMap(Effect.fromResult(decode(snapshot.bytes, limits)), (journal) => isPruned(place, journal))
      ),
      Effect.orElseSucceed(() => false)
    )

  const findPruned: Pruning["findPruned"] = Effect.fnUntraced(function* ({ runtimeRoot, goalId, turnKeys }) {
    // Checks the root and the goal, also where no turn is.
    yield* Effect.fromResult(Place.ofTurn(runtimeRoot, { goalId: goalId ?? "goal", turnKey: "turn" }))
    const asked = new Set(turnKeys)
    const turns: Array<FindPrunedResult["turns"][number]> = []
    for (const goal of goalId == null ? yield* driver.goals(runtimeRoot) : [goalId]) {
      const found = yield* Effect.orElseSucceed(driver.turns(runtimeRoot, goal), (): ReadonlyArray<string> => [])
      const keys = found.filter((key) => asked.has(key))
      for (let from = 0; from < keys.length; from += AT_A_TIME) {
        const places = yield* placesOf(runtimeRoot, goal, keys.slice(from, from + AT_A_TIME))
        const near = yield* driver.ahead(places, "journals")
        for (const [index, place] of places.entries()) {
          if (yield* isPrunedNear(near, place)) turns.push({ goal_id: goal, turn_key: keys[from + index] ?? "" })
        }
        yield* Effect.yieldNow
      }
    }
    return { turns }
  })

  return { prune, findPruned }
}

const leftAlone = (goalId: string, turnKey: string, { kind, message }: CoreError): PrunedTurn => ({
  goal_id: goalId,
  turn_key: turnKey,
  damage: { kind, message },
  operation_id: null
})

/** The turns of a goal that were written last. */
const latestKeys = Effect.fnUntraced(function* (
  driver: Driver["Service"],
  root: string,
  goalId: string,
  count: number
): Effect.fn.Return<ReadonlySet<string>, CoreError> {
  const dated: Array<{ readonly turnKey: string; readonly updatedAt: number }> = []
  for (const turnKey of yield* driver.turns(root, goalId)) {
    const place = yield* Effect.fromResult(Place.ofTurn(root, { goalId, turnKey }))
    // A turn that cannot be read may be the latest of all: it takes a place.
    const updatedAt = yield* Effect.match(driver.glance(place), {
      onFailure: () => Number.POSITIVE_INFINITY,
      onSuccess: (snapshot) => snapshot?.updatedAt ?? Number.NEGATIVE_INFINITY
    })
    dated.push({ turnKey, updatedAt })
    if (dated.length % 32 === 0) yield* Effect.yieldNow
  }
  dated.sort((left, right) => right.updatedAt - left.updatedAt || (left.turnKey < right.turnKey ? 1 : -1))
  return new Set(dated.slice(0, count).map(({ turnKey }) => turnKey))
})

interface Terms {
  readonly before: number
  readonly givenUp: boolean
  readonly at: string
  readonly key: SigningKey | null
  readonly read: Reader
}

/**
 * The tombstone is one more transition of the history, committed like any other; then the history is shortened to it.
 * The answer is the tombstone's operation id; null when there is nothing to prune.
 */
const decidePruning = (
  place: TurnPlace,
  encoded: Encoded,
  { before, givenUp, at, key, read }: Terms
): Result.Result<Step<string | null>, Refusal | CoreError> =>
  Result.gen(function* () {
    const { document, position } = yield* standing(read, place, encoded)
    if (document === null || encoded.snapshot === null || isYounger(encoded.snapshot, before)) return NOTHING
    if (position !== null && position.pruned !== null) {
      // Pruned before, and cut off before its history was shortened.
      return position.line === 1 ? NOTHING : { answer: document.operationId, commit: null, forget: true }
    }
    const tombstone = tombstoneOf(document.journal, place.address, givenUp)
    if (tombstone === null) return NOTHING
    const found = yield* document.admission
    const left = yield* admit(tombstone, place.address)
    const adopted = position === null ? [writeLine(null, place.address, found, { at, adopted: true, key })] : []
    const line = writeLine(adopted[0]?.link ?? position, place.address, left, { at, key, prunes: found.operationId })
    return {
      answer: left.operationId,
      commit: {
        after: position,
        lines: [...adopted, line],
        snapshot: snapshotText(left.canonical),
        updatedAt: encoded.snapshot.updatedAt
      },
      forget: true
    }
  })
