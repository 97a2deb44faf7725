/** Reads a history file: its lines in bounded memory, and how it ends. runtime.md section 6. */
import { isUtf8 } from "node:buffer"
import { fstatSync, lstatSync, readSync } from "node:fs"
import * as Effect from "effect/Effect"
import type { TurnAddress } from "../journal/Address.ts"
import * as Chain from "./Chain.ts"
import type { HistoryEnd, Piece, Position, Visit } from "./Driver.ts"
import { Recent } from "./Recent.ts"
import { type Stamp, sameStamp } from "./SafeFile.ts"

const CHUNK_BYTES = 256 * 1024
/** Chunks read before other requests get their turn. */
const CHUNKS_AT_A_TIME = 16

const LINE_FEED = 10
const CARRIAGE_RETURN = 13

/** Where reading begins, and how long a line may be: what is longer is none. */
export interface Extent {
  readonly from: number
  readonly lineBytes: number
}

/** Calls `visit` for each line from an offset on, until it has enough. Works at once on a file of a few chunks. */
export const eachPiece = (fd: number, extent: Extent, visit: Visit): Effect.Effect<void> => {
  const reader = makeReader(fd, extent, visit)
  const go: Effect.Effect<void> = Effect.suspend(() => {
    for (let chunk = 0; chunk < CHUNKS_AT_A_TIME; chunk++) if (!reader()) return Effect.void
    return Effect.andThen(Effect.yieldNow, go)
  })
  return go
}

const makeReader = (fd: number, { from, lineBytes }: Extent, visit: Visit): (() => boolean) => {
  let offset = from
  let parts: Array<Buffer> = []
  let held = 0
  const take = (bytes: Buffer, end: Piece["end"], revision: number): boolean => {
    const line = parts.length === 0 ? bytes : Buffer.concat([...parts, bytes])
    parts = []
    held = 0
    const readable = line.length <= lineBytes && isUtf8(line)
    return visit({ text: readable ? line.toString("utf8") : UNREADABLE, end, revision })
  }
  const { size } = fstatSync(fd)
  return () => {
    const chunk = Buffer.allocUnsafe(Math.max(0, Math.min(CHUNK_BYTES, size - offset)))
    const length = readSync(fd, chunk, 0, chunk.length, offset)
    if (length === 0) {
      if (held > 0) take(Buffer.alloc(0), "", offset)
      return false
    }
    const bytes = chunk.subarray(0, length)
    let at = 0
    for (;;) {
      const end = endOfLine(bytes, at)
      if (end < 0) break
      const mark = bytes[end] === LINE_FEED ? "\n" : "\r"
      if (!take(bytes.subarray(at, end), mark, offset + end)) return false
      at = end + 1
    }
    offset += length
    if (at === length) return true
    parts.push(bytes.subarray(at))
    held += length - at
    // What is too long to be a line is not read to its end.
    return held <= lineBytes || take(Buffer.alloc(0), "", offset)
  }
}

/** No line: it does not parse. */
const UNREADABLE = "\u0000"

const endOfLine = (bytes: Buffer, from: number): number => {
  const feed = bytes.indexOf(LINE_FEED, from)
  const carriage = bytes.subarray(from, feed < 0 ? undefined : feed).indexOf(CARRIAGE_RETURN)
  return carriage < 0 ? feed : from + carriage
}

/** A history as it was followed, and the transition from which it is followed on when more is written. */
interface Followed {
  readonly end: HistoryEnd
  readonly beforeLast: Position | null
}

const followWhole = (fd: number, turn: TurnAddress | null, lineBytes: number): Effect.Effect<Followed> => {
  const chain = Chain.follow(turn)
  return Effect.map(eachPiece(fd, { from: 0, lineBytes }, chain.visit), () => ({
    end: chain.end(),
    beforeLast: chain.beforeLast()
  }))
}

/** Follows on, when the last line that was known is still there; null when it is not. */
const followOn = (
  fd: number,
  turn: TurnAddress | null,
  before: Followed,
  lineBytes: number
): Effect.Effect<Followed | null> => {
  let isThere = false
  const last = before.end.sealed
  const chain = Chain.follow(turn, {
    from: before.beforeLast,
    take: ({ seq, hash }, sealed) => {
      isThere ||= sealed && seq === last?.seq && hash === last.hash
      return isThere
    }
  })
  const from = before.beforeLast === null ? 0 : before.beforeLast.revision + 1
  return Effect.map(eachPiece(fd, { from, lineBytes }, chain.visit), () =>
    isThere ? { end: chain.end(), beforeLast: chain.beforeLast() } : null
  )
}

/** What is known of history files, as long as they are as they were. */
export interface HistoryCache {
  /** How a history ends, where that is known; null where it has to be followed. */
  readonly recall: (path: string) => HistoryEnd | null
  readonly follow: (path: string, fd: number, turn: TurnAddress | null) => Effect.Effect<HistoryEnd>
  /** Takes note of what was just written. */
  readonly keep: (path: string, fd: number, sealed: Position, beforeLast: Position | null) => void
  readonly forget: (path: string) => void
}

export const makeHistoryCache = (capacity: number, lineBytes: number): HistoryCache => {
  const known = new Recent<string, { readonly stamp: Stamp; readonly followed: Followed }>(capacity)
  return {
    recall: (path) => {
      const before = known.get(path)
      if (before === undefined) return null
      const stamp = lstatSync(path, { bigint: true, throwIfNoEntry: false })
      return stamp !== undefined && sameStamp(before.stamp, stamp) ? before.followed.end : null
    },
    follow: (path, fd, turn) =>
      Effect.suspend(() => {
        const stamp = fstatSync(fd, { bigint: true })
        const before = known.get(path)
        if (before !== undefined && sameStamp(before.stamp, stamp)) return Effect.succeed(before.followed.end)
        // Only what grew was written on by another of us; anything else that changed is looked at from its beginning.
        const hasGrown = before?.stamp.ino === stamp.ino && before.stamp.size < stamp.size
        const mayFollowOn = hasGrown && before.followed.end.sealed !== null
        const on = mayFollowOn ? followOn(fd, turn, before.followed, lineBytes) : Effect.succeed(null)
        const whole = Effect.flatMap(on, (found) =>
          found === null ? followWhole(fd, turn, lineBytes) : Effect.succeed(found)
        )
        return Effect.map(whole, (followed) => {
          known.set(path, { stamp, followed })
          return followed.end
        })
      }),
    keep: (path, fd, sealed, beforeLast) => {
      const end: HistoryEnd = { sealed, open: [], torn: false, damage: null }
      known.set(path, { stamp: fstatSync(fd, { bigint: true }), followed: { end, beforeLast } })
    },
    forget: (path) => known.delete(path)
  }
}
