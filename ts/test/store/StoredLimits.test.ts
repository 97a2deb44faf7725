/** What is stored is held to the limits of a journal whoever wrote it, on every way that reads it. */
import { mkdirSync, readFileSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { GREATEST_DEPTH, type JsonObject, type JsonValue } from "../../src/contract/Json.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { AGENT, folder, GOAL, kindOf, pathOf, plainTurn } from "./Turns.ts"

const BYTES = 2000
const DEPTH = 8

const storeOf = (limits: { readonly journalBytes?: number; readonly depth?: number }) =>
  JournalStore.layer({ signingKey: null, ...limits }).pipe(Layer.provide(FileDriver.layer(limits)))

const nested = (levels: number): JsonValue => (levels === 0 ? 1 : [nested(levels - 1)])

const sized = (bytes: number): JsonObject => {
  const empty = plainTurn("turn-1", "in_progress", [], { bulk: "" })
  return { ...empty, bulk: "x".repeat(bytes - JSON.stringify(empty).length) }
}

/** The document is one level, and the key's value begins the next. */
const deep = (levels: number): JsonObject => plainTurn("turn-1", "in_progress", [], { deep: nested(levels - 1) })

const plant = (path: string, text: string): void => {
  mkdirSync(dirname(path), { recursive: true })
  writeFileSync(path, text)
}

const BEYOND = [
  { reason: "too_large", written: "journal_too_large", journal: sized(BYTES + 1), just: sized(BYTES) },
  { reason: "too_deep", written: "journal_too_deep", journal: deep(DEPTH + 1), just: deep(DEPTH) }
]

describe("a journal beyond the limits", () => {
  for (const { reason, written, journal, just } of BEYOND) {
    it.effect(`that somebody else stored is refused wherever it is read: ${reason}`, () =>
      Effect.gen(function* () {
        const store = yield* JournalStore
        const root = yield* folder
        const path = pathOf(root, "turn-1")
        const text = JSON.stringify(journal)
        plant(path, text)
        const range = { runtimeRoot: root }
        const next = plainTurn("turn-1", "in_progress", ["a"])
        const ask = { ...range, goalId: GOAL, agentId: AGENT, turnKey: "turn-1" }
        for (const call of [
          store.read({ path }),
          store.inspectStored(ask),
          store.write({ path, journal: next }),
          store.write({ path, journal: next, expectedPrevious: null })
        ]) {
          const error = yield* Effect.flip(call as Effect.Effect<unknown, { kind: string; details: unknown }>)
          assert.strictEqual(error.kind, "journal_corrupt")
          assert.strictEqual((error.details as JsonObject)["reason"], reason)
        }
        assert.strictEqual(yield* kindOf(store.write({ path, journal })), written)
        const { turns } = yield* store.list(range)
        assert.strictEqual(turns[0]?.damage?.kind, "journal_corrupt")
        assert.strictEqual((yield* store.recoverable(range)).turns[0]?.damage?.kind, "journal_corrupt")
        assert.strictEqual((yield* store.verify(range)).turns[0]?.problem?.kind, "snapshot_damaged")
        assert.strictEqual((yield* store.heads(range)).damaged.length, 1)
        assert.strictEqual(
          (yield* store.prune({ ...range, olderThan: -1e10 })).turns[0]?.damage?.kind,
          "journal_corrupt"
        )
        const settles = { ...range, goalId: GOAL, agentId: AGENT, todoId: "t", turnInstanceId: "i" }
        assert.strictEqual(yield* kindOf(store.findSettlement(settles)), "journal_readback_conflict")
        assert.strictEqual(readFileSync(path, "utf8"), text, "it was left as it is")

        plant(path, JSON.stringify(just))
        assert.deepStrictEqual<unknown>((yield* store.read({ path })).journal, just, "one that is just not is read")
        assert.isTrue((yield* store.verify(range)).ok)
      }).pipe(Effect.provide(storeOf({ journalBytes: BYTES, depth: DEPTH })))
    )

    it.effect(`that stood before is neither given nor put back: ${reason}`, () =>
      Effect.gen(function* () {
        const root = yield* folder
        const path = pathOf(root, "turn-1")
        yield* Effect.flatMap(JournalStore, (store) => store.write({ path, journal })).pipe(Effect.provide(storeOf({})))
        writeFileSync(path, "{")
        yield* Effect.gen(function* () {
          const store = yield* JournalStore
          assert.strictEqual(yield* kindOf(store.read({ path, at: 1 })), "journal_corrupt")
          assert.strictEqual(yield* kindOf(store.repair({ path })), "journal_corrupt")
        }).pipe(Effect.provide(storeOf({ journalBytes: BYTES, depth: DEPTH })))
        assert.strictEqual(readFileSync(path, "utf8"), "{")
      })
    )
  }

  it.effect("is not told by its white space", () =>
    Effect.gen(function* () {
      const store = yield* JournalStore
      const root = yield* folder
      const path = pathOf(root, "turn-1")
      const text = JSON.stringify(sized(BYTES), null, " ".repeat(10))
      assert.isAbove(text.length, BYTES)
      plant(path, text)
      assert.deepStrictEqual<unknown>((yield* store.read({ path })).journal, sized(BYTES))
    }).pipe(Effect.provide(storeOf({ journalBytes: BYTES })))
  )
})

describe("limits that are set higher", () => {
  it.effect("hold for all that is written and read", () =>
    Effect.gen(function* () {
      const store = yield* JournalStore
      const root = yield* folder
      const path = pathOf(root, "turn-1")
      // Larger than twice what is allowed by default, and as a line of the history longer still.
      const large = sized(17 * 1024 * 1024)
      yield* store.write({ path, journal: large })
      yield* store.write({ path, journal: deep(GREATEST_DEPTH) })
      assert.deepStrictEqual<unknown>((yield* store.read({ path })).journal, deep(GREATEST_DEPTH))
      assert.isTrue((yield* store.read({ path, at: 1 })).journal["bulk"] === large["bulk"])
      assert.strictEqual(yield* kindOf(store.write({ path, journal: deep(GREATEST_DEPTH + 1) })), "journal_too_deep")
      assert.isTrue((yield* store.verify({ runtimeRoot: root })).ok)
    }).pipe(Effect.provide(storeOf({ journalBytes: 20 * 1024 * 1024, depth: 100_000 })))
  )
})
