/** Reads a history file: its lines in bounded memory, and how it ends. runtime.md section 6. */
import { isUtf8 } from "node:buffer"
import { fstatSync, readSync } from "node:fs"
import * as Effect from "effect/Effect"
import { MAX_JOURNAL_BYTES } from "../contract/Json.ts"
import type { TurnAddress } from "../journal/Address.ts"
import * as Chain from "./Chain.ts"
import type { HistoryEnd, Piece, Position, Visit } from "./Driver.ts"
import { Recent } from "./Recent.ts"
import { type Stamp, sameStamp } from "./SafeFile.ts"

/** Canonical JSON writes `1e20` in full, so a line can be longer than its journal. */
const MAX_LINE_BYTES = 6 * MAX_JOURNAL_BYTES
const CHUNK_BYTES = 256 * 1024
/** Chunks read before other requests get their turn. */
const CHUNKS_AT_A_TIME = 16

const LINE_FEED = 10
const CARRIAGE_RETURN = 13

/** Calls `visit` for each line from an offset on, until it has enough. Works at once on a file of a few chunks. */
export const eachPiece = (fd: number, from: number, visit: Visit): Effect.Effect<void> => {
  const reader = makeReader(fd, from, visit)
  const go: Effect.Effect<void> = Effect.suspend(() => {
    for (let chunk = 0; chunk < CHUNKS_AT_A_TIME; chunk++) if (!reader()) return Effect.void
    return Effect.andThen(Effect.yieldNow, go)
  })
  return go
}

const makeReader = (fd: number, from: number, visit: Visit): (() => boolean) => {
  let offset = from
  let start = from
  let parts: Array<Buffer> = []
  let held = 0
  const take = (bytes: Buffer, end: Piece["end"], revision: number): boolean => {
    const line = parts.length === 0 ? bytes : Buffer.concat([...parts, bytes])
    parts = []
    held = 0
    const readable = line.length <= MAX_LINE_BYTES && isUtf8(line)
    return visit({ text: readable ? line.toString("utf8") : UNREADABLE, end, revision })
  }
  return () => {
    const chunk = Buffer.allocUnsafe(CHUNK_BYTES)
    const length = readSync(fd, chunk, 0, CHUNK_BYTES, offset)
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
      start = offset + at
    }
    // Of a line that is too long to be one, nothing is kept but that it is there.
    if (at < length) {
      if (offset + length - start <= MAX_LINE_BYTES + 1) parts.push(bytes.subarray(at))
      held += length - at
    }
    offset += length
    return true
  }
}

/** No line: it does not parse. */
const UNREADABLE = "\u0000"

const endOfLine = (bytes: Buffer, from: number): number => {
  const feed = bytes.indexOf(LINE_FEED, from)
  const carriage = bytes.subarray(from, feed < 0 ? undefined : feed).indexOf(CARRIAGE_RETURN)
  return carriage < 0 ? feed : from + carriage
}

/** Follows the chain from where it was followed before, to its end. */
const followOn = (fd: number, turn: TurnAddress | null, from: Position | null): Effect.Effect<HistoryEnd> => {
  const chain = Chain.follow(turn, { from })
  return Effect.map(eachPiece(fd, from === null ? 0 : from.revision + 1, chain.visit), chain.end)
}

/** What is known of history files, as long as they are as they were. */
export interface HistoryCache {
  readonly follow: (path: string, fd: number, turn: TurnAddress | null) => Effect.Effect<HistoryEnd>
  readonly keep: (path: string, fd: number, end: HistoryEnd) => void
  readonly forget: (path: string) => void
}

export const makeHistoryCache = (capacity: number): HistoryCache => {
  const known = new Recent<string, { readonly stamp: Stamp; readonly end: HistoryEnd }>(capacity)
  const keep = (path: string, fd: number, end: HistoryEnd): void =>
    known.set(path, { stamp: fstatSync(fd, { bigint: true }), end })
  return {
    follow: (path, fd, turn) => {
      const stamp = fstatSync(fd, { bigint: true })
      const before = known.get(path)
      if (before !== undefined && sameStamp(before.stamp, stamp)) return Effect.succeed(before.end)
      const grown = before !== undefined && before.stamp.ino === stamp.ino && mayHaveGrown(before.end, stamp.size)
      return Effect.map(followOn(fd, turn, grown ? before.end.sealed : null), (end) => {
        known.set(path, { stamp, end })
        return end
      })
    },
    keep,
    forget: (path) => known.delete(path)
  }
}

/** Whether what was followed can still be the beginning of a file of that size. */
const mayHaveGrown = ({ sealed, damage }: HistoryEnd, size: bigint): boolean =>
  damage === null && sealed !== null && BigInt(sealed.revision) < size
