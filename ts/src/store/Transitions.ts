/** The transitions of a turn, one by one, and the journal as it was after any of them. runtime.md section 6. */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import { type CoreError, type JournalCorrupt, JournalNotFound } from "../contract/Errors.ts"
import type { ReadResult } from "../contract/Messages.ts"
import type { Driver, Piece } from "./Driver.ts"
import { linkOf, readLine, type Transition } from "./History.ts"
import type { Place } from "./Place.ts"
import { historyDamaged, type Reader } from "./Stored.ts"

interface Walk {
  readonly visit: (piece: Piece) => boolean
  readonly damage: () => JournalCorrupt | null
}

/** Follows a history, line by line; `take` says whether it wants more. */
const walk = (place: Place, take: (transition: Transition, piece: Piece) => boolean): Walk => {
  let previous: Transition | null = null
  let open = false
  let line = 0
  let damage: JournalCorrupt | null = null
  return {
    visit: (piece) => {
      line++
      const read = readLine(piece.text, previous === null ? null : linkOf(previous), place.address, null)
      if (Result.isFailure(read)) {
        // What follows the last seal may be what a cut-off writer left.
        if (!open && piece.end === "\n") damage = historyDamaged(read.failure, line)
        return false
      }
      previous = read.success
      open = piece.end !== "\n"
      return piece.end !== "" && take(read.success, piece)
    },
    damage: () => damage
  }
}

/** The journal as it was after a transition. */
export const journalAt = Effect.fnUntraced(function* (
  driver: Driver["Service"],
  read: Reader,
  place: Place,
  at: number
): Effect.fn.Return<ReadResult, CoreError> {
  let found: Transition | null = null as Transition | null
  let sealed = true
  const { visit, damage } = walk(place, (transition, piece) => {
    if (transition.seq === at) {
      found = transition
      sealed = piece.end === "\n"
    }
    return transition.seq < at
  })
  const snapshot = yield* driver.scan(place, visit)
  const damaged = damage()
  if (damaged !== null) return yield* damaged
  if (found !== null && !sealed) {
    const standing = snapshot === null ? null : yield* Effect.fromResult(read(place, snapshot))
    if (standing?.operationId !== found.operationId) found = null
  }
  if (found === null) {
    return yield* new JournalNotFound({
      kind: "journal_not_found",
      message: `The turn's history has no transition ${at}: it was not written, or it was pruned.`,
      details: { at }
    })
  }
  return { journal: found.journal, operation_id: found.operationId, seq: found.seq }
})
