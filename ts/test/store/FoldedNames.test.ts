/** A file system for which names that differ in letter case or Unicode form are one: what macOS and Windows have. */
import { mkdirSync, writeFileSync } from "node:fs"
import { dirname, join, sep } from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { afterEach, vi } from "vitest"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { folder, kindOf, plainTurn } from "./Turns.ts"

type Fs = typeof import("node:fs")

/** The path under which there is already what a path means. */
const folding = vi.hoisted(() => ({ within: "", fold: (path: string): string => path }))

vi.mock("node:fs", async (original) => {
  const fs = await original<Fs>()
  const same = (name: string): string => name.normalize("NFC").toLowerCase()
  folding.fold = (path) => {
    if (folding.within === "" || !path.startsWith(`${folding.within}${sep}`)) return path
    return path
      .slice(folding.within.length + 1)
      .split(sep)
      .reduce((at, name) => {
        const there = fs.existsSync(at) && fs.statSync(at).isDirectory() ? fs.readdirSync(at) : []
        return join(at, there.find((other) => same(other) === same(name)) ?? name)
      }, folding.within)
  }
  const one = <A extends ReadonlyArray<unknown>, B>(call: (path: string, ...rest: A) => B) =>
    Object.assign((path: string, ...rest: A): B => call(folding.fold(path), ...rest), call)
  return {
    ...fs,
    accessSync: one(fs.accessSync as never),
    lstatSync: one(fs.lstatSync as never),
    mkdirSync: one(fs.mkdirSync as never),
    openSync: one(fs.openSync as never),
    readdirSync: one(fs.readdirSync as never),
    realpathSync: Object.assign(one(fs.realpathSync as never), { native: one(fs.realpathSync.native as never) }),
    renameSync: (from: string, to: string) => fs.renameSync(folding.fold(from), folding.fold(to)),
    statSync: one(fs.statSync as never),
    unlinkSync: one(fs.unlinkSync as never)
  }
})

vi.mock("node:sqlite", async (original) => {
  const sqlite = await original<typeof import("node:sqlite")>()
  class DatabaseSync extends sqlite.DatabaseSync {
    constructor(path: string, options: object) {
      super(folding.fold(path), options)
    }
  }
  return { ...sqlite, DatabaseSync }
})

const { platform } = process
afterEach(() => {
  folding.within = ""
  Object.defineProperty(process, "platform", { value: platform })
})

/** A root on such a file system. */
const foldedRoot = Effect.tap(folder, (root) =>
  Effect.sync(() => {
    folding.within = root
    Object.defineProperty(process, "platform", { value: "darwin" })
  })
)

const pathOf = (root: string, goalId: string, turnKey: string) =>
  join(root, "goals", goalId, "turns", `${turnKey}.json`)
const turnOf = (goalId: string, turnKey: string) => ({ ...plainTurn(turnKey, "in_progress", []), goal_id: goalId })
const over = Effect.provide(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer())))

const PAIRS = [
  ["Goal", "goal"],
  ["caf\u00e9", "cafe\u0301"],
  ["\u00c9tude", "e\u0301tude"]
] as const

for (const [first, second] of PAIRS) {
  it.live(`two goals are not one: ${JSON.stringify([first, second])}`, () =>
    Effect.gen(function* () {
      const root = yield* foldedRoot
      const store = yield* JournalStore
      yield* store.write({ path: pathOf(root, first, "k"), journal: turnOf(first, "k") })
      const path = pathOf(root, second, "k")
      const refused = yield* Effect.flip(store.write({ path, journal: turnOf(second, "k") }))
      assert.strictEqual(refused.kind, "store_unsafe_path")
      assert.include(refused.message, "letter case or Unicode form")
      assert.strictEqual(yield* kindOf(store.read({ path })), "store_unsafe_path")
      const ask = { runtimeRoot: root, goalId: second, agentId: "agent", turnKey: "k" }
      assert.strictEqual(yield* kindOf(store.inspectStored(ask)), "store_unsafe_path")
      const { turns } = yield* store.list({ runtimeRoot: root })
      assert.deepStrictEqual(
        turns.map(({ goal_id, damage }) => [goal_id, damage]),
        [[first, null]],
        "a goal is listed as it was written"
      )
      assert.strictEqual((yield* store.read({ path: pathOf(root, first, "k") })).seq, 1)
    }).pipe(over)
  )
}

it.live("two turns are not one, also where the first has no history", () =>
  Effect.gen(function* () {
    const root = yield* foldedRoot
    const store = yield* JournalStore
    yield* store.write({ path: pathOf(root, "g", "Turn"), journal: turnOf("g", "Turn") })
    mkdirSync(dirname(pathOf(root, "h", "Turn")), { recursive: true })
    writeFileSync(pathOf(root, "h", "Turn"), JSON.stringify(turnOf("h", "Turn")))
    for (const goal of ["g", "h"]) {
      const path = pathOf(root, goal, "turn")
      assert.strictEqual(yield* kindOf(store.read({ path })), "store_unsafe_path")
      assert.strictEqual(yield* kindOf(store.history({ path })), "store_unsafe_path")
      assert.strictEqual(yield* kindOf(store.write({ path, journal: turnOf(goal, "turn") })), "store_unsafe_path")
      assert.deepStrictEqual<unknown>(
        (yield* store.read({ path: pathOf(root, goal, "Turn") })).journal,
        turnOf(goal, "Turn")
      )
    }
  }).pipe(over)
)
