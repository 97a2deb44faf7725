/** Follows a history from line to line: how far it is whole, and what a cut-off writer left behind it. */
import * as Result from "effect/Result"
import type { TurnAddress } from "../journal/Address.ts"
import type { Damage, HistoryEnd, Piece, Position, Visit } from "./Driver.ts"
import { linkOf, readLine, type SigningKey, type Transition } from "./History.ts"

export interface ChainOptions {
  /** Where it was followed to before. */
  readonly from?: Position | null
  /** Checks signatures. */
  readonly key?: SigningKey | null
  /** Gets each transition in turn, and whether it is sealed; false: no more are wanted. */
  readonly take?: (transition: Transition, sealed: boolean) => boolean
}

export interface Chain {
  readonly visit: Visit
  readonly end: () => HistoryEnd
  /** The transition before the last sealed one: from there on, that one is followed anew. */
  readonly beforeLast: () => Position | null
}

export const follow = (
  turn: TurnAddress | null,
  { from = null, key = null, take = () => true }: ChainOptions = {}
): Chain => {
  let sealed = from
  let beforeLast = from
  let torn = false
  let damage: Damage | null = null
  const open: Array<Position> = []

  const damaged = (fault: Damage["fault"]): false => {
    damage = { fault, line: (sealed?.line ?? 0) + 1, revision: sealed === null ? 0 : sealed.revision + 1 }
    return false
  }
  const left = (): false => {
    torn = true
    return false
  }

  const visit = ({ text, end, revision }: Piece): boolean => {
    if (end === "") return left()
    const previous = open.at(-1) ?? sealed
    const read = readLine(text, previous, turn, key)
    // Behind the last seal a writer may have been cut off; before it, nothing explains a line that is not whole.
    if (Result.isFailure(read)) return open.length > 0 || end === "\r" ? left() : damaged(read.failure)
    const position = { ...linkOf(read.success), revision, line: (previous?.line ?? 0) + 1 }
    if (end === "\r") {
      open.push(position)
    } else {
      // A line is sealed at the latest by the write of the next one.
      if (open.length > 0) return damaged("line_damaged")
      beforeLast = sealed
      sealed = position
    }
    return take(read.success, end === "\n")
  }
  return { visit, end: () => ({ sealed, open, torn, damage }), beforeLast: () => beforeLast }
}
