import { readFileSync, rmSync, utimesSync, writeFileSync } from "node:fs"
import { assert, describe, it, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type Disk, nodeDisk } from "../../src/store/Disk.ts"
import { faultyDisk } from "../../src/store/Fault.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { filesOf } from "../../src/store/Place.ts"
import { copySuite, writeAll } from "./CopySuite.ts"
import { folder, pathOf, placeOf, plainTurn, wholeTurn } from "./Turns.ts"

layer(Layer.provideMerge(JournalStore.layer({ signingKey: null }), FileDriver.layer()), { excludeTestServices: true })(
  "from folder to folder",
  (it) => copySuite(it, { source: folder, target: folder })
)

const storeOn = (disk: Disk) => Layer.provideMerge(JournalStore.layer({ signingKey: null }), FileDriver.layer({ disk }))

describe("a copy that was cut off after its journal had appeared", () => {
  for (const [step, transitions] of [
    ["compaction.create", 3],
    ["compaction.rename", 3],
    ["history.seal", 1]
  ] as const) {
    it.effect(`is sealed by the next one, when it did not come to ${step}`, () =>
      Effect.gen(function* () {
        const [source, target] = [yield* folder, yield* folder]
        const journals = Array.from({ length: transitions }, (_, n) =>
          plainTurn("turn-1", "in_progress", [], { n: n % 2 })
        )
        yield* Effect.provide(writeAll(source, journals), storeOn(nodeDisk))
        const copy = (disk: Disk) =>
          Effect.provide(
            Effect.flatMap(JournalStore, (store) => store.copy({ runtimeRoot: source, targetRoot: target })),
            storeOn(disk)
          )
        const history = (root: string) => readFileSync(filesOf(placeOf(root, "turn-1")).history, "utf8")
        assert.deepStrictEqual(
          (yield* copy(faultyDisk(nodeDisk, { step, when: "before", fault: "EIO" }))).turns.map(
            ({ outcome }) => outcome
          ),
          ["copied"]
        )
        assert.isTrue(history(target).endsWith("\r"))
        const at = Math.max(1, transitions - 1)
        const before = yield* Effect.provide(
          Effect.flatMap(JournalStore, (store) => store.read({ path: pathOf(target, "turn-1"), at })),
          storeOn(nodeDisk)
        )
        assert.strictEqual(before.seq, at)
        assert.deepStrictEqual(
          (yield* copy(nodeDisk)).turns.map(({ outcome }) => outcome),
          ["same"]
        )
        assert.strictEqual(history(target), history(source))
      })
    )
  }
})

it.effect("what is found at the target is held against the source", () =>
  Effect.gen(function* () {
    const [source, target] = [yield* folder, yield* folder]
    const store = yield* JournalStore
    const journals = ["a", "b"].map((mark) => plainTurn("turn-1", "in_progress", [], { mark }))
    yield* writeAll(source, journals)
    const outcome = (verifyOnly = false) =>
      Effect.map(store.copy({ runtimeRoot: source, targetRoot: target, verifyOnly }), ({ turns }) => turns[0]?.outcome)
    assert.strictEqual(yield* outcome(), "copied")
    const { history, snapshot } = filesOf(placeOf(target, "turn-1"))
    const [lines, journal] = [readFileSync(history), readFileSync(snapshot)]

    writeFileSync(snapshot, JSON.stringify(JSON.parse(journal.toString("utf8")), null, 2))
    assert.strictEqual(yield* outcome(true), "conflict", "a journal that was written anew")
    writeFileSync(snapshot, journal)

    writeFileSync(history, Buffer.concat([lines, Buffer.from("{")]))
    assert.strictEqual(yield* outcome(), "same", "what a writer left that was cut off")
    assert.deepStrictEqual(readFileSync(history), lines)
  }).pipe(Effect.provide(storeOn(nodeDisk)))
)

it.live("a history that was copied before it was shortened is shortened by the next copy", () =>
  Effect.gen(function* () {
    const [source, target] = [yield* folder, yield* folder]
    const step = { step: "compaction.create", when: "before", fault: "ENOSPC" } as const
    const prune = Effect.flatMap(JournalStore, (store) => store.prune({ runtimeRoot: source, olderThan: 0 }))
    const copied = Effect.gen(function* () {
      const store = yield* JournalStore
      const { turns } = yield* store.copy({ runtimeRoot: source, targetRoot: target })
      const { transitions } = yield* store.history({ path: pathOf(target, "turn-1") })
      return [turns[0]?.outcome, transitions.length]
    })
    yield* Effect.gen(function* () {
      yield* writeAll(source, wholeTurn({ turnKey: "turn-1", todoId: "todo-1", instanceId: "i-1" }))
      yield* Effect.provide(prune, storeOn(faultyDisk(nodeDisk, step)), { local: true })
      const [outcome, count] = yield* copied
      assert.deepStrictEqual([outcome, Number(count) > 1], ["copied", true])
      yield* prune
      assert.deepStrictEqual(yield* copied, ["extended", 1])
      assert.deepStrictEqual(yield* copied, ["same", 1])
    }).pipe(Effect.provide(storeOn(nodeDisk)))
  })
)

it.effect("the time of the last write is the same to the millisecond", () =>
  Effect.gen(function* () {
    const [source, target] = [yield* folder, yield* folder]
    const store = yield* JournalStore
    yield* writeAll(source, [plainTurn("turn-1", "in_progress", [])])
    const { snapshot } = filesOf(placeOf(source, "turn-1"))
    const { folder: copied } = filesOf(placeOf(target, "turn-1"))
    const updatedAt = (root: string) =>
      Effect.map(store.list({ runtimeRoot: root }), ({ turns }) => turns[0]?.updated_at ?? assert.fail())
    for (let millisecond = 0; millisecond < 50; millisecond++) {
      utimesSync(snapshot, 0, 1_796_010_031 + (millisecond * 1000 + 0.5) / 1_000_000)
      rmSync(copied, { recursive: true, force: true })
      yield* store.copy({ runtimeRoot: source, targetRoot: target })
      assert.strictEqual(yield* updatedAt(target), yield* updatedAt(source))
    }
  }).pipe(Effect.provide(storeOn(nodeDisk)))
)

it.effect("what a writer left at the source whose journal never appeared is not copied", () =>
  Effect.gen(function* () {
    const [source, target] = [yield* folder, yield* folder]
    const store = yield* JournalStore
    const [first, second, third] = ["a", "b", "c"].map((mark) => plainTurn("turn-1", "in_progress", [], { mark }))
    const { snapshot, history } = filesOf(placeOf(source, "turn-1"))
    yield* writeAll(source, [first ?? {}, second ?? {}])
    const stands = readFileSync(snapshot)
    yield* writeAll(source, [third ?? {}])
    writeFileSync(snapshot, stands)
    writeFileSync(history, readFileSync(history, "utf8").replace(/\n$/, "\r"))

    const { turns } = yield* store.copy({ runtimeRoot: source, targetRoot: target })
    assert.deepStrictEqual(
      turns.map(({ outcome, transitions }) => [outcome, transitions]),
      [["copied", 2]]
    )
    assert.deepStrictEqual(readFileSync(filesOf(placeOf(target, "turn-1")).snapshot), stands)
    assert.isTrue((yield* store.verify({ runtimeRoot: target })).ok)
  }).pipe(Effect.provide(storeOn(nodeDisk)))
)
