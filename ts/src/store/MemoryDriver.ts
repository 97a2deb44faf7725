/** Turns in memory, for tests and for trying things out: gone with the process, and in all else like the files. */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { TurnAddress } from "../journal/Address.ts"
import * as Chain from "./Chain.ts"
import { Driver, type Encoded, type HistoryEnd, type Near, type Piece, type Snapshot } from "./Driver.ts"
import type { Place } from "./Place.ts"

interface Turn {
  readonly place: Place
  readonly snapshot: Snapshot
  readonly lines: ReadonlyArray<string>
}

export const layer: Layer.Layer<Driver> = Layer.sync(Driver, () => make(new Map()))

const make = (turns: Map<string, Turn>): Driver["Service"] => {
  const snapshotOf = (place: Place): Snapshot | null => turns.get(place.path)?.snapshot ?? null

  const load = (place: Place): Encoded => {
    const turn = turns.get(place.path)
    return { snapshot: turn?.snapshot ?? null, history: turn === undefined ? null : endOf(turn.lines, place.address) }
  }

  const near: Near = {
    glance: (place) => Effect.sync(() => snapshotOf(place)),
    scan: (place, visit, _mode) =>
      Effect.sync(() => {
        const lines = turns.get(place.path)?.lines ?? []
        piecesOf(lines).every(visit)
        return { snapshot: snapshotOf(place), history: lines.length > 0 }
      })
  }

  return {
    ...near,
    ahead: () => Effect.succeed(near),
    snapshot: near.glance,
    load: (place) => Effect.sync(() => load(place)),
    // Nobody else has this memory, so nobody can have taken a lease, or taken one over.
    isDriven: () => Effect.succeed(false),
    transact: (place, decide) =>
      Effect.gen(function* () {
        const updatedAt = yield* Clock.currentTimeMillis
        const { answer, commit, forget } = yield* Effect.fromResult(decide(load(place)))
        if (commit !== null) {
          const before = turns.get(place.path)?.lines.slice(0, commit.after?.line ?? 0) ?? []
          const lines = [...before, ...commit.lines.map(({ text }) => text)]
          const snapshot = { bytes: Buffer.from(commit.snapshot), updatedAt: commit.updatedAt ?? updatedAt }
          turns.set(place.path, { place, snapshot, lines })
        }
        const turn = turns.get(place.path)
        if (forget === true && turn !== undefined) turns.set(place.path, { ...turn, lines: turn.lines.slice(-1) })
        return answer
      }),
    goals: (root) => Effect.sync(() => sorted(within(turns, root).map(({ goalId }) => goalId))),
    turns: (root, goalId) =>
      Effect.sync(() =>
        sorted(
          within(turns, root)
            .filter((address) => address.goalId === goalId)
            .map(({ turnKey }) => turnKey)
        )
      )
  }
}

const within = (turns: ReadonlyMap<string, Turn>, root: string): ReadonlyArray<TurnAddress> =>
  [...turns.values()].flatMap(({ place }) => (place.root === root && place.address !== null ? [place.address] : []))

const sorted = (names: ReadonlyArray<string>): ReadonlyArray<string> => [...new Set(names)].sort()

/** As a file has them, so that revisions mean the same. */
const piecesOf = (lines: ReadonlyArray<string>): ReadonlyArray<Piece> => {
  let offset = 0
  return lines.map((text) => {
    const revision = offset + Buffer.byteLength(text)
    offset = revision + 1
    return { text, end: "\n", revision }
  })
}

const endOf = (lines: ReadonlyArray<string>, turn: TurnAddress | null): HistoryEnd | null => {
  const chain = Chain.follow(turn)
  piecesOf(lines).every(chain.visit)
  return lines.length === 0 ? null : chain.end()
}
