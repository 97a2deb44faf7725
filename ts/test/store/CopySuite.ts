/** Copies between two roots: the same turns, whole or not at all, and nothing of the target's own is touched. */
import { assert, type Vitest } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import type { Scope } from "effect/Scope"
import type { JsonObject } from "../../src/contract/Json.ts"
import type { CopiedTurn } from "../../src/contract/Store.ts"
import { Driver } from "../../src/store/Driver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import type { Place } from "../../src/store/Place.ts"
import { GOAL, pathOf, placeOf, plainTurn, settledTurn, wholeTurn } from "./Turns.ts"

const ID = { turnKey: "turn-1", todoId: "todo-1", instanceId: "i-1" }

/** Makes an empty root for the length of a scope. */
export type MakeRoot = Effect.Effect<string, never, Scope>

/** Writes journals one after another. */
export const writeAll = (root: string, journals: ReadonlyArray<JsonObject>, turnKey = "turn-1", goalId = GOAL) =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    for (const journal of journals) yield* store.write({ path: pathOf(root, turnKey, goalId), journal })
  })

/** Puts a journal there as another program does: without a history. */
export const plant = (place: Place, text: string, updatedAt: number) =>
  Effect.flatMap(Driver, (driver) =>
    driver.transact(
      place,
      () => Result.succeed({ answer: null, commit: { after: null, lines: [], snapshot: text, updatedAt } }),
      null
    )
  )

/** All that is kept of a turn: its sealed and open lines, its journal, and when it was written, in milliseconds. */
export const contentOf = (place: Place) =>
  Effect.gen(function* () {
    const driver = yield* Driver
    const lines: Array<string> = []
    const take = ({ text, end }: { readonly text: string; readonly end: string }) => {
      lines.push(text + (end === "" ? "<torn>" : ""))
      return true
    }
    const { snapshot, history } = yield* driver.scan(place, take, "settled")
    return {
      lines,
      history,
      snapshot: snapshot === null ? null : Buffer.from(snapshot.bytes).toString(),
      updatedAt: snapshot === null ? null : Math.floor(snapshot.updatedAt)
    }
  })

const copied = (
  source: string,
  target: string,
  more: { readonly goalId?: string; readonly verifyOnly?: boolean } = {}
) =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    const turns: Array<CopiedTurn> = []
    let after: string | null = null
    do {
      const page: { readonly turns: ReadonlyArray<CopiedTurn>; readonly next: string | null } = yield* store.copy({
        runtimeRoot: source,
        targetRoot: target,
        after,
        limit: 2,
        ...more
      })
      turns.push(...page.turns)
      after = page.next
    } while (after !== null)
    return turns
  })

const outcomes = (turns: ReadonlyArray<CopiedTurn>) =>
  turns.map(({ turn_key, outcome, transitions }) => `${turn_key} ${outcome} ${transitions}`)

const step = (n: number) => plainTurn("turn-1", "in_progress", [], { n })

export const copySuite = (
  it: Vitest.MethodsNonLive<JournalStore | Driver>,
  roots: { readonly source: MakeRoot; readonly target: MakeRoot }
): void => {
  const both = Effect.all(roots)

  it.effect("copies histories, tombstones and journals without a history, and the same again changes nothing", () =>
    Effect.gen(function* () {
      const { source, target } = yield* both
      const store = yield* JournalStore
      yield* writeAll(source, wholeTurn(ID))
      yield* writeAll(source, [settledTurn({ ...ID, turnKey: "turn-2" }, "in_progress", 0)], "turn-2")
      const pruned = { ...ID, turnKey: "turn-3", goalId: "goal-2" }
      yield* writeAll(source, wholeTurn(pruned), "turn-3", "goal-2")
      yield* store.prune({ runtimeRoot: source, goalId: "goal-2", olderThan: 0 })
      const odd = `${JSON.stringify(plainTurn("turn-4", "in_progress", []), null, 2)}\n`
      yield* plant(placeOf(source, "turn-4", "goal-2"), odd, Date.UTC(2026, 0, 2, 3, 4, 5, 678))

      assert.deepStrictEqual(outcomes(yield* copied(source, target, { verifyOnly: true })), [
        "turn-1 missing 6",
        "turn-2 missing 1",
        "turn-3 missing 1",
        "turn-4 missing 0"
      ])
      assert.deepStrictEqual((yield* store.list({ runtimeRoot: target })).turns, [])
      const first = yield* copied(source, target)
      assert.deepStrictEqual(outcomes(first), [
        "turn-1 copied 6",
        "turn-2 copied 1",
        "turn-3 copied 1",
        "turn-4 copied 0"
      ])
      for (const { goal_id, turn_key } of first) {
        const there = yield* contentOf(placeOf(target, turn_key, goal_id))
        assert.deepStrictEqual(there, yield* contentOf(placeOf(source, turn_key, goal_id)))
      }
      const again = yield* copied(source, target)
      assert.isTrue(again.every(({ outcome, problem }) => outcome === "same" && problem === null))
      const verified = yield* store.verify({ runtimeRoot: target })
      assert.deepStrictEqual(verified, yield* store.verify({ runtimeRoot: source }))
      assert.isTrue(verified.ok && verified.turns.every(({ unfinished }) => !unfinished))
      for (const { goal_id, turn_key } of first) {
        assert.strictEqual(
          (yield* store.read({ path: pathOf(target, turn_key, goal_id) })).operation_id,
          (yield* store.read({ path: pathOf(source, turn_key, goal_id) })).operation_id
        )
      }
    })
  )

  it.effect("takes one goal, and leaves the others", () =>
    Effect.gen(function* () {
      const { source, target } = yield* both
      for (const goalId of ["goal-1", "goal-2"]) yield* writeAll(source, wholeTurn({ ...ID, goalId }), "turn-1", goalId)
      assert.deepStrictEqual(outcomes(yield* copied(source, target, { goalId: "goal-2" })), ["turn-1 copied 6"])
      const { turns } = yield* (yield* JournalStore).list({ runtimeRoot: target })
      assert.deepStrictEqual(
        turns.map(({ goal_id }) => goal_id),
        ["goal-2"]
      )
    })
  )

  it.effect("adds what was written since, one transition or many, and a turn that was copied can go on", () =>
    Effect.gen(function* () {
      const { source, target } = yield* both
      const store = yield* JournalStore
      for (const count of [1, 2, 5]) {
        yield* writeAll(
          source,
          Array.from({ length: count }, (_, n) => step(100 * count + n))
        )
        assert.deepStrictEqual(
          (yield* copied(source, target, { verifyOnly: true }))[0]?.outcome,
          count === 1 ? "missing" : "behind"
        )
        assert.deepStrictEqual((yield* copied(source, target))[0]?.outcome, count === 1 ? "copied" : "extended")
        const there = yield* contentOf(placeOf(target, "turn-1"))
        assert.deepStrictEqual(there, yield* contentOf(placeOf(source, "turn-1")))
      }
      yield* writeAll(target, [step(1), step(2)])
      assert.isTrue((yield* store.verify({ runtimeRoot: target })).ok)
      assert.strictEqual((yield* store.history({ path: pathOf(target, "turn-1") })).transitions.length, 10)
    })
  )

  it.effect("leaves a turn that is another one, or that went on by itself", () =>
    Effect.gen(function* () {
      const { source, target } = yield* both
      yield* writeAll(source, [step(1), step(2)])
      yield* copied(source, target)
      yield* writeAll(target, [step(3)])
      for (const here of [[], [step(4)], [step(5), step(6)]]) {
        yield* writeAll(source, here)
        const before = yield* contentOf(placeOf(target, "turn-1"))
        for (const verifyOnly of [true, false]) {
          const [turn] = yield* copied(source, target, { verifyOnly })
          assert.deepStrictEqual([turn?.outcome, turn?.problem?.kind], ["conflict", "journal_transition_conflict"])
        }
        assert.deepStrictEqual(yield* contentOf(placeOf(target, "turn-1")), before)
      }
    })
  )

  it.effect(
    "leaves a journal of another program that is another one, and takes over one that was taken over here",
    () =>
      Effect.gen(function* () {
        const { source, target } = yield* both
        const text = JSON.stringify(step(1), null, 2)
        for (const root of [source, target]) yield* plant(placeOf(root, "turn-1"), text, Date.UTC(2026, 0, 1))
        assert.deepStrictEqual(outcomes(yield* copied(source, target)), ["turn-1 same 0"])
        yield* writeAll(source, [step(2), step(3)])
        assert.deepStrictEqual(outcomes(yield* copied(source, target)), ["turn-1 extended 3"])
        const there = yield* contentOf(placeOf(target, "turn-1"))
        assert.deepStrictEqual(there, yield* contentOf(placeOf(source, "turn-1")))
        for (const root of [source, target]) {
          yield* plant(placeOf(root, "turn-2"), JSON.stringify({ ...step(1), turn_key: "turn-2", root }), Date.now())
        }
        assert.deepStrictEqual(outcomes(yield* copied(source, target)), ["turn-1 same 3", "turn-2 conflict 0"])
      })
  )

  it.effect("leaves a journal of another program where the source has a history that does not begin with it", () =>
    Effect.gen(function* () {
      const { source, target } = yield* both
      yield* writeAll(source, [step(1), step(2)])
      const place = placeOf(target, "turn-1")
      yield* plant(place, JSON.stringify(step(1)), Date.UTC(2026, 0, 1))
      const before = yield* contentOf(place)
      assert.deepStrictEqual(outcomes(yield* copied(source, target)), ["turn-1 conflict 2"])
      assert.deepStrictEqual(yield* contentOf(place), before)
    })
  )

  it.effect("prunes a copy of what was pruned since", () =>
    Effect.gen(function* () {
      const { source, target } = yield* both
      const store = yield* JournalStore
      yield* writeAll(source, wholeTurn(ID))
      yield* copied(source, target)
      yield* store.prune({ runtimeRoot: source, olderThan: 0 })
      assert.deepStrictEqual(outcomes(yield* copied(source, target)), ["turn-1 extended 1"])
      const there = yield* contentOf(placeOf(target, "turn-1"))
      assert.deepStrictEqual(there, yield* contentOf(placeOf(source, "turn-1")))
      assert.deepStrictEqual(outcomes(yield* copied(source, target)), ["turn-1 same 1"])
      assert.deepStrictEqual(outcomes(yield* copied(target, source)), ["turn-1 same 1"])
    })
  )

  it.effect("leaves a damaged turn, at either side, and copies the others", () =>
    Effect.gen(function* () {
      const { source, target } = yield* both
      const key = (n: number) => `turn-${n}`
      for (const n of [1, 2, 3]) {
        yield* writeAll(source, wholeTurn({ ...ID, turnKey: key(n) }), key(n))
      }
      yield* plant(placeOf(source, "turn-1"), "{", Date.now())
      yield* plant(placeOf(target, "turn-2"), "[", Date.now())
      const turns = yield* copied(source, target)
      assert.deepStrictEqual(outcomes(turns), ["turn-1 damaged 0", "turn-2 damaged 6", "turn-3 copied 6"])
      assert.match(turns[0]?.problem?.message ?? "", /source/)
      assert.match(turns[1]?.problem?.message ?? "", /target/)
      assert.strictEqual((yield* contentOf(placeOf(target, "turn-1"))).snapshot, null)
      assert.strictEqual((yield* contentOf(placeOf(target, "turn-2"))).snapshot, "[")
    })
  )

  it.effect("copies a long history, and what a value cannot carry", () =>
    Effect.gen(function* () {
      const { source, target } = yield* both
      yield* writeAll(
        source,
        Array.from({ length: 520 }, (_, n) => ({
          ...step(n),
          odd: n % 7 === 0 ? "\u0000" : 1e300,
          text: "x".repeat(n)
        }))
      )
      assert.deepStrictEqual(outcomes(yield* copied(source, target)), ["turn-1 copied 520"])
      const there = yield* contentOf(placeOf(target, "turn-1"))
      assert.deepStrictEqual(there, yield* contentOf(placeOf(source, "turn-1")))
      yield* writeAll(target, [step(1000)])
      assert.isTrue((yield* (yield* JournalStore).verify({ runtimeRoot: target })).ok)
    })
  )

  it.effect("keeps every millisecond of the time", () =>
    Effect.gen(function* () {
      const { source, target } = yield* both
      const times = Array.from({ length: 40 }, (_, n) => Date.UTC(2026, 10, 29, 21, 0, n, 25 * n))
      for (const [n, time] of times.entries()) {
        const key = `turn-${n}`
        yield* plant(placeOf(source, key), JSON.stringify({ ...step(1), turn_key: key }), time)
      }
      yield* copied(source, target)
      for (const [n, time] of times.entries()) {
        assert.strictEqual((yield* contentOf(placeOf(target, `turn-${n}`))).updatedAt, time)
      }
    })
  )

  it.effect("copies nothing onto itself", () =>
    Effect.gen(function* () {
      const { source } = yield* both
      const error = yield* Effect.flip((yield* JournalStore).copy({ runtimeRoot: source, targetRoot: source }))
      assert.strictEqual(error.kind, "invalid_request")
    })
  )
}
