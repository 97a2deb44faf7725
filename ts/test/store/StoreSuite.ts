/** What every driver keeps: one suite, run against each of them. */
import { readFileSync } from "node:fs"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Result from "effect/Result"
import type { JsonObject, JsonValue } from "../../src/contract/Json.ts"
import { operationId } from "../../src/journal/OperationId.ts"
import type { Driver } from "../../src/store/Driver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { historySuite } from "./HistorySuite.ts"
import { querySuite } from "./QuerySuite.ts"
import { AGENT, fresh, GOAL, kindOf, type Plant, pathIn, pathOf, plainTurn, wholeTurn } from "./Turns.ts"

export const suite = (name: string, driver: Layer.Layer<Driver, unknown>, plant: Plant): void =>
  layer(Layer.provideMerge(JournalStore.layer({ signingKey: null }), driver), { excludeTestServices: true })(
    name,
    (it) => {
      historySuite(it)
      querySuite(it, plant)

      it.effect("stores a first journal, and answers what it stored", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          const path = pathOf(root, "turn-1")
          const journal = plainTurn("turn-1", "in_progress", [])
          const result = yield* store.write({ path, journal })
          assert.deepStrictEqual(result, {
            ok: true,
            appended: true,
            replayed: false,
            effect_id: "effect-of-turn-1",
            operation_id: operationId(journal)
          })
          assert.deepStrictEqual<unknown>(yield* store.read({ path }), {
            journal,
            operation_id: operationId(journal),
            seq: 1
          })
        })
      )

      it.effect("writes the same journal once", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          const path = pathOf(root, "turn-1")
          const journal = plainTurn("turn-1", "in_progress", [])
          yield* store.write({ path, journal })
          const { appended, replayed } = yield* store.write({ path, journal: reversed(journal) })
          assert.deepStrictEqual({ appended, replayed }, { appended: false, replayed: true })
          assert.strictEqual((yield* store.read({ path })).seq, 1)
        })
      )

      it.effect("keeps a journal as it was written, whatever the writer does to it afterwards", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          const path = pathOf(root, "turn-1")
          const written = structuredClone(plainTurn("turn-1", "in_progress", []))
          const { operation_id } = yield* store.write({ path, journal: written })
          written.plan.params.depth = 2
          ;(written.completed_phases as Array<string>).push("a", "b", "c")
          const next = plainTurn("turn-1", "in_progress", ["a"])
          assert.isTrue((yield* store.write({ path, journal: next, expectedPrevious: operation_id })).appended)
          next.plan.params.depth = 2
          assert.deepStrictEqual<unknown>(
            (yield* store.read({ path })).journal,
            plainTurn("turn-1", "in_progress", ["a"])
          )
        })
      )

      it.effect("gives every journal of a turn as it was", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          const turnKey = `sha256:${"a1".repeat(32)}`
          const path = pathOf(root, turnKey)
          const journals = wholeTurn({ turnKey, todoId: "todo-1", instanceId: "i-1" })
          for (const journal of journals) yield* store.write({ path, journal })
          for (const [index, journal] of journals.entries()) {
            const found = yield* store.read({ path, at: index + 1 })
            assert.deepStrictEqual<unknown>(found, { journal, operation_id: operationId(journal), seq: index + 1 })
          }
          assert.strictEqual(yield* kindOf(store.read({ path, at: journals.length + 1 })), "journal_not_found")
          assert.strictEqual(yield* kindOf(store.read({ path, at: 0 })), "journal_not_found")
        })
      )

      it.effect("keeps a journal of any other path by that path alone: no list of a root has it", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          for (const name of ["loose.json", "goals/goal/loose.json", "goals/goal/turns/a,b.json"]) {
            const path = pathIn(root, name)
            const opening = plainTurn("turn-1", "in_progress", [])
            assert.isTrue((yield* store.write({ path, journal: opening })).appended)
            assert.isTrue(
              (yield* store.write({ path, journal: plainTurn("turn-1", "committed", ["a", "b", "c"]) })).appended
            )
            assert.strictEqual((yield* store.read({ path })).seq, 2)
            assert.lengthOf((yield* store.history({ path })).transitions, 2)
            assert.strictEqual((yield* store.repair({ path })).repair, "nothing")
          }
          assert.deepStrictEqual((yield* store.list({ runtimeRoot: root })).turns, [])
          assert.deepStrictEqual((yield* store.recoverable({ runtimeRoot: root })).turns, [])
          assert.deepStrictEqual((yield* store.verify({ runtimeRoot: root })).turns, [])
          assert.deepStrictEqual((yield* store.prune({ runtimeRoot: root, olderThan: 0 })).turns, [])
        })
      )

      it.effect("inspects what is stored", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          const turnKey = "turn-1"
          const ask = { runtimeRoot: root, goalId: GOAL, agentId: AGENT, turnKey }
          const missing = yield* Effect.flip(store.inspectStored(ask))
          assert.strictEqual(missing.kind, "journal_not_found")
          assert.include(missing.message, turnKey)
          assert.include(JSON.stringify(missing.details), turnKey)
          for (const journal of wholeTurn({ turnKey, todoId: "todo-1", instanceId: "i-1" })) {
            yield* store.write({ path: pathOf(root, turnKey), journal })
            const { journal_status, completed_phases } = yield* store.inspectStored(ask)
            assert.deepStrictEqual<unknown>(
              { journal_status, completed_phases },
              { journal_status: journal["status"], completed_phases: journal["completed_phases"] }
            )
          }
          assert.isTrue((yield* store.inspectStored(ask)).replay_legal)
          assert.isFalse((yield* store.inspectStored({ ...ask, agentId: "somebody" })).replay_legal)
        })
      )

      it.effect("refuses what does not follow, and changes nothing", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          const path = pathOf(root, "turn-1")
          const first = plainTurn("turn-1", "in_progress", [])
          const refused = (journal: JsonValue, kind: string, more: object = {}) =>
            Effect.gen(function* () {
              const before = yield* Effect.result(store.read({ path }))
              assert.strictEqual(yield* kindOf(store.write({ path, journal, ...more })), kind)
              assert.deepStrictEqual(yield* Effect.result(store.read({ path })), before)
            })
          yield* refused(plainTurn("turn-1", "in_progress", ["a"]), "journal_transition_conflict")
          yield* refused(first, "journal_previous_conflict", { expectedPrevious: operationId(first) })
          yield* refused(first, "invalid_request", { expectedEffectId: "another" })
          yield* refused(plainTurn("turn-2", "in_progress", []), "journal_path_mismatch")
          yield* refused([], "journal_snapshot_invalid")
          yield* refused(plainTurn("turn-1", "in_progress", [], { n: Number.NaN }), "journal_snapshot_invalid")
          yield* refused(plainTurn("turn-1", "in_progress", [], { n: nested(130) }), "journal_too_deep")
          yield* store.write({ path, journal: first, expectedPrevious: null })
          const second = plainTurn("turn-1", "in_progress", ["a", "b"])
          yield* refused(second, "journal_previous_conflict", { expectedPrevious: null })
          yield* refused({ ...second, plan: { phases: ["a", "b"] } }, "journal_plan_conflict")
          yield* refused({ ...second, effect_id: "another" }, "journal_effect_conflict")
          yield* store.write({ path, journal: second, expectedPrevious: operationId(first) })
          yield* refused(plainTurn("turn-1", "in_progress", ["a"]), "journal_transition_conflict")
          assert.strictEqual((yield* store.read({ path })).seq, 2)
        })
      )

      it.effect("refuses a journal that is too large, and takes one that is just not", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          const sized = (bytes: number) => {
            const empty = plainTurn("turn-1", "in_progress", [], { bulk: "" })
            return { ...empty, bulk: "x".repeat(bytes - JSON.stringify(empty).length) }
          }
          const path = pathOf(root, "turn-1")
          const limit = 8 * 1024 * 1024
          assert.strictEqual(yield* kindOf(store.write({ path, journal: sized(limit + 1) })), "journal_too_large")
          assert.isTrue((yield* store.write({ path, journal: sized(limit) })).appended)
          assert.deepStrictEqual<unknown>((yield* store.read({ path, at: 1 })).journal, sized(limit))
        })
      )

      it.effect("keeps values that other stores lose", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          const path = pathOf(root, "turn-1")
          const odd = JSON.parse(
            `{"__proto__":{"a":1},"constructor":1,"":2,"10":3,"9":4,"big":1e300,"whole":1e21,"text":"\\u0000\\ud83d\\ude00\\u2028"}`
          ) as JsonObject
          const journal = plainTurn("turn-1", "in_progress", [], { odd })
          const { operation_id } = yield* store.write({ path, journal })
          for (const at of [undefined, 1]) {
            const found = yield* store.read({ path, at })
            assert.deepStrictEqual<unknown>(found.journal, journal)
            assert.strictEqual(operationId(found.journal as JsonObject), operation_id)
          }
        })
      )

      it.effect("queues writers of one turn: each sees what the one before it wrote", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          const path = pathOf(root, "turn-1")
          yield* store.write({ path, journal: plainTurn("turn-1", "in_progress", []) })
          const many = Array.from({ length: 40 }, (_, n) =>
            store.write({ path, journal: plainTurn("turn-1", "in_progress", ["a"], { n }) })
          )
          yield* Effect.all(many, { concurrency: "unbounded" })
          assert.strictEqual((yield* store.read({ path })).seq, 41)
          const seen = yield* Effect.forEach(many, (_, index) => store.read({ path, at: index + 2 }))
          assert.deepStrictEqual(
            seen.map(({ journal }) => journal["n"]).sort((left, right) => Number(left) - Number(right)),
            many.map((_, n) => n)
          )
        })
      )

      it.effect("adopts a journal that another program wrote", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          const path = pathOf(root, "turn-1")
          const theirs = plainTurn("turn-1", "in_progress", ["a"])
          yield* plant(path, JSON.stringify(theirs, null, 2))
          assert.deepStrictEqual<unknown>(yield* store.read({ path }), {
            journal: theirs,
            operation_id: operationId(theirs),
            seq: null
          })
          assert.isTrue((yield* store.write({ path, journal: theirs })).replayed)
          const ours = plainTurn("turn-1", "in_progress", ["a", "b"])
          assert.isTrue((yield* store.write({ path, journal: ours, expectedPrevious: operationId(theirs) })).appended)
          assert.deepStrictEqual<unknown>((yield* store.read({ path, at: 1 })).journal, theirs)
          assert.deepStrictEqual<unknown>((yield* store.read({ path, at: 2 })).journal, ours)
        })
      )

      it.effect("leaves a damaged journal as it is", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          const path = pathOf(root, "turn-1")
          for (const text of ["", "{", "[]", '{"a":1,"a":1}', '{"n":9007199254740993}', "\u0000", "\ufeff{}"]) {
            yield* plant(path, text)
            const ask = { runtimeRoot: root, goalId: GOAL, agentId: AGENT, turnKey: "turn-1" }
            assert.strictEqual(yield* kindOf(store.inspectStored(ask)), "journal_corrupt")
            assert.strictEqual(yield* kindOf(store.read({ path })), "journal_corrupt")
            const write = store.write({ path, journal: plainTurn("turn-1", "in_progress", []) })
            assert.strictEqual(yield* kindOf(write), "journal_corrupt")
          }
        })
      )

      const transitions = readFileSync(
        new URL("../../../tests/contract/corpus/transitions.jsonl", import.meta.url),
        "utf8"
      )
        .split("\n")
        .filter((line) => line !== "")
        .map((line) => JSON.parse(line) as TransitionCase)

      it.effect("decides the whole corpus of transitions as the rules alone do", () =>
        Effect.gen(function* () {
          const { store, root } = yield* fresh
          assert.strictEqual(transitions.length, 500)
          for (const [index, { request, expected }] of transitions.entries()) {
            const path = pathIn(root, `case-${index}.json`)
            if (request.existing !== null) yield* plant(path, JSON.stringify(request.existing))
            const outcome = yield* Effect.result(
              store.write({ path, journal: request.incoming, expectedEffectId: request.expected_effect_id })
            )
            const answer = Result.isFailure(outcome)
              ? { refused: outcome.failure.kind }
              : {
                  appended: outcome.success.appended,
                  replayed: outcome.success.replayed,
                  effect_id: outcome.success.effect_id
                }
            assert.deepStrictEqual<unknown>(answer, expected, `transition ${index}`)
          }
        })
      )
    }
  )

interface TransitionCase {
  readonly request: {
    readonly existing: JsonValue
    readonly incoming: JsonValue
    readonly expected_effect_id?: string | null
  }
  readonly expected: unknown
}

const nested = (depth: number): JsonValue => (depth === 0 ? 1 : [nested(depth - 1)])

const reversed = (journal: JsonObject): JsonObject => Object.fromEntries(Object.entries(journal).reverse())
