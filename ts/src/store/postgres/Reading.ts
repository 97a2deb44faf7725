/** What stands of a turn in a database, read as of one moment, and remembered so that only what is new is read again. */
import * as Effect from "effect/Effect"
import * as Chain from "../Chain.ts"
import type { Encoded, HistoryEnd, Scanned, Snapshot, Visit } from "../Driver.ts"
import type { StoreError } from "../Failure.ts"
import { type Place, withinDatabase } from "../Place.ts"
import { Recent } from "../Recent.ts"
import { unavailable } from "./Failure.ts"
import { snapshotOf, textOf } from "./Record.ts"
import type { Query, Row, Server } from "./Server.ts"
import { LINES, LOAD, NOTHING_WRITTEN, SNAPSHOT } from "./Statements.ts"

/** What stands, and what a change of it has to name. */
export interface Standing {
  readonly encoded: Encoded
  /** Another one after every change. */
  readonly state: string
  /** The last line of the history; 0 where there is none. */
  readonly head: number
  /** Whether the turn has a row: for a lease it has one before anything is written. */
  readonly hasRow: boolean
  /** The number of the latest lease. */
  readonly lease: number | null
}

interface Followed {
  readonly state: string
  /** Another one after every change that is more than an addition. */
  readonly base: string
  readonly end: HistoryEnd | null
}

interface Known {
  readonly state: string
  readonly snapshot: Snapshot | null
  /** How far the history was followed, maybe at an earlier state. */
  readonly followed: Followed | null
}

export const ABSENT: Standing = {
  encoded: { snapshot: null, history: null },
  state: NOTHING_WRITTEN,
  head: 0,
  hasRow: false,
  lease: null
}

const REMEMBERED_TURNS = 4096
const MAX_REMEMBERED_BYTES = 64 * 1024
/** What is read of a history at a time. */
const PAGE_BYTES = 4 * 1024 * 1024

/** Where reading begins: after a line, and the byte after it, as long as the turn only grew since `base`. */
interface From {
  readonly base: string
  readonly line: number
  readonly bytes: number
}

const BEGINNING: From = { base: NOTHING_WRITTEN, line: 0, bytes: 0 }

export interface Reading {
  readonly load: (server: Server, place: Place) => Effect.Effect<Standing, StoreError>
  readonly snapshot: (server: Server, place: Place) => Effect.Effect<Snapshot | null, StoreError>
  readonly scan: (server: Server, place: Place, visit: Visit) => Effect.Effect<Scanned, StoreError>
  /** What stood when it was read or written last, where nothing was left out. */
  readonly remembered: (place: Place) => Standing | null
  readonly remember: (place: Place, standing: Standing, base: string) => void
  readonly forget: (place: Place) => void
}

export const make = (): Reading => {
  const known = new Recent<string, Known>(REMEMBERED_TURNS)

  const keep = ({ path }: Place, one: Known): void => {
    if ((one.snapshot?.bytes.length ?? 0) <= MAX_REMEMBERED_BYTES) known.set(path, one)
    else known.delete(path)
  }

  const load: Reading["load"] = Effect.fnUntraced(function* (server, place) {
    const before = known.get(place.path)
    const { followed = null } = before ?? {}
    const sealed = followed?.end?.sealed ?? null
    const from =
      followed === null || sealed === null
        ? BEGINNING
        : { base: followed.base, line: sealed.line, bytes: sealed.revision + 1 }
    let chain = Chain.follow(place.address)
    let lines = 0
    const turn = yield* read(server, place, from, (row) => {
      const grew = from.line > 0 && row["base"] === from.base
      lines = grew ? from.line : 0
      chain = Chain.follow(place.address, grew ? { from: sealed } : {})
      return (piece) => {
        lines++
        return chain.visit(piece)
      }
    })
    if (turn === null) {
      known.delete(place.path)
      return ABSENT
    }
    const state = String(turn.row["state"])
    const snapshot = turn.snapshot === "as before" ? (before?.snapshot ?? null) : turn.snapshot
    const history = lines === 0 ? null : chain.end()
    const isWhole = history === null || history.damage === null
    keep(place, { state, snapshot, followed: isWhole ? { state, base: String(turn.row["base"]), end: history } : null })
    return standingOf(turn.row, { snapshot, history })
  })

  const snapshot: Reading["snapshot"] = Effect.fnUntraced(function* (server, place) {
    const before = known.get(place.path)
    const [row] = yield* server.ask(SNAPSHOT, [withinDatabase(place), before?.state ?? NOTHING_WRITTEN])
    if (row === undefined) {
      known.delete(place.path)
      return null
    }
    const state = String(row["state"])
    if (before !== undefined && before.state === state) return before.snapshot
    const found = snapshotIn(row, row)
    keep(place, { state, snapshot: found, followed: before?.followed ?? null })
    return found
  })

  const scan: Reading["scan"] = Effect.fnUntraced(function* (server, place, visit) {
    let history = false
    const turn = yield* read(server, place, BEGINNING, () => (piece) => {
      history = true
      return visit(piece)
    })
    return { snapshot: turn === null || turn.snapshot === "as before" ? null : turn.snapshot, history }
  })

  const remembered: Reading["remembered"] = ({ path }) => {
    const one = known.get(path)
    if (one?.followed == null || one.followed.state !== one.state) return null
    const { snapshot, state, followed } = one
    const head = followed.end?.sealed?.line ?? 0
    return { encoded: { snapshot, history: followed.end }, state, head, hasRow: true, lease: null }
  }

  return {
    load,
    snapshot,
    scan,
    remembered,
    remember: (place, { state, encoded }, base) =>
      keep(place, { state, snapshot: encoded.snapshot, followed: { state, base, end: encoded.history } }),
    forget: ({ path }) => known.delete(path)
  }
}

const standingOf = (row: Row, encoded: Encoded): Standing => ({
  encoded,
  state: String(row["state"]),
  head: Number(row["head"]),
  hasRow: true,
  lease: row["lease_number"] == null ? null : Number(row["lease_number"])
})

interface Turn {
  readonly row: Row
  readonly snapshot: Snapshot | null | "as before"
}

/** Reads a turn's row, and hands its lines on; `begin` gets the row first. Null where there is no such turn. */
const read = (
  server: Server,
  place: Place,
  from: From,
  begin: (turn: Row) => Visit
): Effect.Effect<Turn | null, StoreError> =>
  Effect.gen(function* () {
    const path = withinDatabase(place)
    const first = [path, from.base, from.line, from.bytes + PAGE_BYTES, PAGE_BYTES]
    const rows = yield* server.ask(LOAD, first)
    const [turn] = rows
    if (turn === undefined) return null
    const lines = rows.filter(({ line }) => line !== null)
    const start = from.line > 0 && turn["base"] === from.base ? from.line : 0
    const head = Number(turn["head"])
    if (Number(lines.at(-1)?.["line"] ?? start) >= head) {
      inOrder(start, begin(turn))(lines)
      const last = lines.find(({ line }) => line === head)
      if (start > 0 && start === head) return { row: turn, snapshot: "as before" }
      return { row: turn, snapshot: snapshotIn(turn, last ?? {}) }
    }
    let begun = false
    const long = (query: Query) =>
      Effect.gen(function* () {
        // What was handed on cannot be handed on again.
        if (begun) return yield* unavailable(server.name, "interrupted")
        const [whole] = yield* query(SNAPSHOT, [path, NOTHING_WRITTEN])
        if (whole === undefined) return null
        begun = true
        const visit = inOrder(0, begin({ ...whole, base: NOTHING_WRITTEN }))
        for (let after = { line: 0, bytes: 0 }; ; ) {
          const page = yield* query(LINES, [path, after.line, after.bytes + PAGE_BYTES])
          const last = page.at(-1)
          if (last === undefined || !visit(page)) break
          after = { line: Number(last["line"]), bytes: Number(last["ends_at"]) }
        }
        return { row: whole, snapshot: snapshotIn(whole, whole) }
      })
    return yield* server
      .transact<Turn, StoreError>("repeatable read", long)
      .pipe(Effect.catchTag("Unsure", ({ code }) => Effect.fail(unavailable(server.name, code))))
  })

/** Hands rows on as lines; one that does not stand where its number says is no line. False: no more are wanted. */
export const inOrder = (after: number, visit: Visit) => {
  let before = after
  return (rows: ReadonlyArray<Row>): boolean =>
    rows.every((row): boolean => {
      const text = row["line"] === ++before ? textOf(row) : ""
      return visit({ text, end: "\n", revision: Number(row["ends_at"]) })
    })
}

export const snapshotIn = (turn: Row, line: Row): Snapshot | null => {
  const found = turn["found"]
  const bytes = found instanceof Uint8Array ? found : snapshotOf(line)
  return bytes === null ? null : { bytes, updatedAt: (turn["updated_at"] as Date).getTime() }
}
