/** The transitions of a turn, one by one, and the journal as it was after any of them. runtime.md section 6. */
import * as Effect from "effect/Effect"
import { type CoreError, JournalNotFound } from "../contract/Errors.ts"
import type { ReadResult } from "../contract/Messages.ts"
import type { HistoryResult, TurnTransition } from "../contract/Store.ts"
import * as Chain from "./Chain.ts"
import type { Driver } from "./Driver.ts"
import type { Transition } from "./History.ts"
import type { Place } from "./Place.ts"
import { historyDamaged, type JournalLimits, positionOf, present, type Reader, within } from "./Stored.ts"

/** Collects what is wanted of the transitions up to one, and drops those whose journal never stood. */
const collect = <A>(
  driver: Driver["Service"],
  read: Reader,
  place: Place,
  upTo: number,
  pick: (transition: Transition) => A | null
): Effect.Effect<ReadonlyArray<A>, CoreError> =>
  Effect.gen(function* () {
    const found: Array<{ readonly seq: number; readonly picked: A }> = []
    const chain = Chain.follow(place.address, {
      take: (transition, sealed) => {
        const picked = pick(transition)
        if (picked !== null) found.push({ seq: transition.seq, picked })
        return transition.seq < upTo || !sealed
      }
    })
    const { snapshot } = yield* driver.scan(place, chain.visit, "settled")
    const history = chain.end()
    const stored = yield* Effect.fromResult(present(place, { snapshot, history }))
    if (history.damage !== null) return yield* historyDamaged(history.damage.fault, history.damage.line)
    const position =
      history.open.length === 0 ? null : positionOf(history, yield* Effect.fromResult(read(place, stored)))
    const last = history.open.length === 0 ? upTo : ((position ?? history.sealed)?.seq ?? 0)
    return found.filter(({ seq }) => seq <= last).map(({ picked }) => picked)
  })

/** The journal as it was after a transition. */
export const journalAt = Effect.fnUntraced(function* (
  driver: Driver["Service"],
  read: Reader,
  limits: JournalLimits,
  place: Place,
  at: number
): Effect.fn.Return<ReadResult, CoreError> {
  const [found] = yield* collect(driver, read, place, at, (transition) => (transition.seq === at ? transition : null))
  if (found === undefined) {
    return yield* new JournalNotFound({
      kind: "journal_not_found",
      message: `The turn's history has no transition ${at}: it was not written, or it was pruned.`,
      details: { at }
    })
  }
  const journal = yield* Effect.fromResult(within(limits, found.journal))
  return { journal, operation_id: found.operationId, seq: found.seq }
})

/**
 * Whether a journal was put in place at some time since then. Told from its transition, so that a journal that stands
 * again after others is not taken for an older one of the same content.
 */
export const stoodSince = (
  driver: Driver["Service"],
  read: Reader,
  place: Place,
  operationId: string,
  since: number
): Effect.Effect<boolean, CoreError> =>
  collect(driver, read, place, Number.POSITIVE_INFINITY, (transition) =>
    transition.operationId === operationId && Date.parse(transition.at) >= since ? transition : null
  ).pipe(
    Effect.map((found) => found.length > 0),
    Effect.catchTag("JournalNotFound", () => Effect.succeed(false))
  )

/** A page of transitions, without their journals. */
export const historyOf = Effect.fnUntraced(function* (
  driver: Driver["Service"],
  read: Reader,
  place: Place,
  after: number,
  limit: number
): Effect.fn.Return<HistoryResult, CoreError> {
  const upTo = after + limit + 1
  const rows = yield* collect(driver, read, place, upTo, (transition) =>
    transition.seq > after ? rowOf(transition) : null
  )
  const transitions = rows.slice(0, limit)
  return { transitions, next: rows.length > limit ? (transitions.at(-1)?.seq ?? null) : null }
})

const rowOf = (transition: Transition): TurnTransition => ({
  seq: transition.seq,
  at: transition.at,
  operation_id: transition.operationId,
  status: transition.status,
  completed_phases: transition.completedPhases,
  hash: transition.hash,
  signed: transition.hmac !== null,
  adopted: transition.adopted,
  pruned: transition.pruned !== null
})
