/** The turns of a root one after another, in pages: by goal, then by key. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import { InvalidJournal } from "../contract/Errors.ts"
import { DEFAULT_PAGE, MAX_PAGE } from "../contract/Fields.ts"
import type { TurnAddress } from "../journal/Address.ts"
import type { Driver, Near, Wanted } from "./Driver.ts"
import type { StoreError } from "./Failure.ts"
import * as Place from "./Place.ts"
import { Recent } from "./Recent.ts"

export interface Range {
  readonly runtimeRoot: string
  /** One goal's turns only. */
  readonly goalId?: string | null | undefined
  /** The turn after which the page begins, as an earlier page gave it. */
  readonly after?: string | null | undefined
  readonly limit?: number | null | undefined
  /** Milliseconds after which a page ends, whatever it has; one turn is looked at in any case. */
  readonly within?: number
  /** What every turn is looked at for, so that it can be read ahead. */
  readonly reads?: "journals" | "histories"
  /** Which turns are asked for, as far as the driver can tell: the others are looked at for nothing. */
  readonly wanted?: Wanted
}

export interface Page<A> {
  readonly found: ReadonlyArray<A>
  readonly next: string | null
}

/** Turns looked at for one page: however few of them are wanted, the answer comes soon. */
const MAX_LOOKED_AT = 2 * MAX_PAGE
/** Turns after which other requests get their turn. */
export const AT_A_TIME = 32

/** Where a walk stands: the keys of a goal and the goals after it, as they were when they were listed. */
interface Rest {
  readonly goal: string
  readonly keys: ReadonlyArray<string>
  readonly goals: ReadonlyArray<string>
}

/** A place that has an address. */
export interface TurnPlace extends Place.Place {
  readonly root: string
  readonly address: TurnAddress
}

export interface Walks {
  /** Looks at the turns of a page; `look` gives null for a turn that is not wanted. */
  readonly page: <A, E>(
    range: Range,
    look: (place: TurnPlace, near: Near) => Effect.Effect<A | null, E>,
    /** What to say of a goal whose turns cannot be listed. */
    unlisted: (goalId: string, error: StoreError) => A
  ) => Effect.Effect<Page<A>, E | StoreError | InvalidJournal>
}

export const make = (driver: Driver["Service"]): Walks => {
  // Pages are asked for in order: the listing is kept for the next one, so that a folder is not read for every page.
  const rests = new Recent<string, Rest>(8)
  const nameOf = ({ runtimeRoot, goalId, wanted }: Range, cursor: string) =>
    JSON.stringify([runtimeRoot, goalId, wanted, cursor])

  const restAfter = Effect.fnUntraced(function* (range: Range): Effect.fn.Return<Rest, StoreError | InvalidJournal> {
    const { runtimeRoot, goalId, after, wanted } = range
    const known = after == null ? undefined : rests.get(nameOf(range, after))
    if (known !== undefined) return known
    const goals = goalId == null ? yield* driver.goals(runtimeRoot) : [goalId]
    if (after == null) return { goal: "", keys: [], goals }
    const from = yield* Effect.fromResult(addressOf(runtimeRoot, after))
    const keys = goals.includes(from.goalId) ? yield* driver.turns(runtimeRoot, from.goalId, wanted) : []
    return {
      goal: from.goalId,
      keys: keys.filter((key) => key > from.turnKey),
      goals: goals.filter((goal) => goal > from.goalId)
    }
  })

  const page: Walks["page"] = <A, E>(
    range: Range,
    look: (place: TurnPlace, near: Near) => Effect.Effect<A | null, E>,
    unlisted: (goalId: string, error: StoreError) => A
  ) =>
    Effect.gen(function* () {
      const { runtimeRoot, wanted, reads } = range
      // Checks the root and the goal, also where no turn is.
      yield* Effect.fromResult(Place.ofTurn(runtimeRoot, { goalId: range.goalId ?? "goal", turnKey: "turn" }))
      const limit = Math.min(range.limit ?? DEFAULT_PAGE, MAX_PAGE)
      const found: Array<A> = []
      const clock = yield* Clock.Clock
      const until = clock.currentTimeMillisUnsafe() + (range.within ?? Number.POSITIVE_INFINITY)
      let looked = 0
      for (let rest = yield* restAfter(range); ; ) {
        const { goal, keys, goals } = rest
        let near: Near = driver
        for (const [index, turnKey] of keys.entries()) {
          if (reads !== undefined && index % AT_A_TIME === 0) {
            near = yield* driver.ahead(yield* placesOf(runtimeRoot, goal, keys.slice(index, index + AT_A_TIME)), reads)
          }
          const place = yield* Effect.fromResult(Place.ofTurn(runtimeRoot, { goalId: goal, turnKey }))
          const one = yield* look(place as TurnPlace, near)
          if (one !== null) found.push(one)
          looked++
          if (found.length >= limit || looked >= MAX_LOOKED_AT || clock.currentTimeMillisUnsafe() >= until) {
            const next = `${goal}/${turnKey}`
            rests.set(nameOf(range, next), { goal, keys: keys.slice(index + 1), goals })
            return { found, next }
          }
          if (looked % AT_A_TIME === 0) yield* Effect.yieldNow
        }
        const [following, ...later] = goals
        if (following === undefined) return { found, next: null }
        const listed = yield* Effect.result(driver.turns(runtimeRoot, following, wanted))
        if (Result.isFailure(listed)) found.push(unlisted(following, listed.failure))
        rest = { goal: following, keys: Result.getOrElse(listed, () => []), goals: later }
      }
    })
  return { page }
}

/** The places of some turns of a goal. */
export const placesOf = (root: string, goalId: string, keys: ReadonlyArray<string>) =>
  Effect.forEach(keys, (turnKey) => Effect.fromResult(Place.ofTurn(root, { goalId, turnKey })))

/** The turn that a cursor names. */
const addressOf = (root: string, cursor: string): Result.Result<TurnAddress, InvalidJournal> => {
  const [goalId = "", turnKey = "", ...more] = cursor.split("/")
  return more.length === 0 && Result.isSuccess(Place.ofTurn(root, { goalId, turnKey }))
    ? Result.succeed({ goalId, turnKey })
    : Result.fail(
        new InvalidJournal({
          kind: "invalid_request",
          message:
            "A page begins after the `next` of an earlier one: ask without `after`, and go on with what is answered.",
          details: { field: "after" }
        })
      )
}
