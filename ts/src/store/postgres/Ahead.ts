/** Reads many turns by one statement, for whoever is about to look at them one after another. */
import * as Effect from "effect/Effect"
import type { Near } from "../Driver.ts"
import type { StoreError } from "../Failure.ts"
import { type Place, withinDatabase } from "../Place.ts"
import { inOrder, snapshotIn } from "./Reading.ts"
import type { Row, Server } from "./Server.ts"
import { HISTORIES, JOURNALS } from "./Statements.ts"

/** The turns that are read together, in bytes of history each: so many of them fit into memory. Longer ones come alone. */
const TOGETHER_BYTES = 128 * 1024

/** What was read of the turns; a turn that was not is asked for by itself. */
export const read = (
  server: Server,
  places: ReadonlyArray<Place>,
  what: "journals" | "histories",
  alone: Near
): Effect.Effect<Near, StoreError> =>
  Effect.map(
    server.ask(what === "journals" ? JOURNALS : HISTORIES, [places.map(withinDatabase), TOGETHER_BYTES]),
    (rows) => {
      const turns = Map.groupBy(rows, (row) => String(row["path"]))
      return what === "journals" ? journalsIn(turns, alone) : historiesIn(turns, alone)
    }
  )

type Turns = ReadonlyMap<string, ReadonlyArray<Row>>

const journalsIn = (turns: Turns, alone: Near): Near => ({
  ...alone,
  glance: (place) => {
    const [row] = turns.get(withinDatabase(place)) ?? []
    const snapshot = row === undefined ? null : snapshotIn(row, row)
    return snapshot === null ? alone.glance(place) : Effect.succeed(snapshot)
  }
})

const historiesIn = (turns: Turns, alone: Near): Near => ({
  ...alone,
  scan: (place, visit, mode) => {
    const rows = turns.get(withinDatabase(place))
    const [turn] = rows ?? []
    if (rows === undefined || turn === undefined || mode === "settled") return alone.scan(place, visit, mode)
    return Effect.sync(() => {
      inOrder(0, visit)(rows)
      const last = rows.find(({ line }) => line === turn["head"])
      return { snapshot: snapshotIn(turn, last ?? {}), history: true }
    })
  }
})
