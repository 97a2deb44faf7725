/** History, verification, pruning and repair, as every driver has them. */
import { assert, type Vitest } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { JsonObject } from "../../src/contract/Json.ts"
import { operationId } from "../../src/journal/OperationId.ts"
import type { Driver } from "../../src/store/Driver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { AGENT, fresh, GOAL, kindOf, pathOf, plainTurn, settledTurn, wholeTurn } from "./Turns.ts"

const ID = { turnKey: "turn-1", todoId: "todo-1", instanceId: "i-1" }

/** Writes a whole turn. */
const writeAll = (root: string, journals: ReadonlyArray<JsonObject>, turnKey = "turn-1", goalId = GOAL) =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    for (const journal of journals) yield* store.write({ path: pathOf(root, turnKey, goalId), journal })
  })

export const historySuite = (it: Vitest.MethodsNonLive<JournalStore | Driver>): void => {
  it.effect("lists the transitions of a turn in pages", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      const journals = wholeTurn(ID)
      yield* writeAll(root, journals)
      const path = pathOf(root, "turn-1")
      const { transitions, next } = yield* store.history({ path })
      assert.strictEqual(next, null)
      assert.deepStrictEqual(
        transitions.map(({ seq, operation_id, status }) => ({ seq, operation_id, status })),
        journals.map((journal, index) => ({
          seq: index + 1,
          operation_id: operationId(journal),
          status: journal["status"] as string
        }))
      )
      const first = yield* store.history({ path, limit: 4 })
      const second = yield* store.history({ path, limit: 4, after: first.next })
      assert.deepStrictEqual([first.next, second.next], [4, null])
      assert.deepStrictEqual([...first.transitions, ...second.transitions], transitions)
      assert.strictEqual(yield* kindOf(store.history({ path: pathOf(root, "other") })), "journal_not_found")
    })
  )

  it.effect("verifies a root, a goal and a turn, and gives heads that hold later", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      for (const goalId of ["goal-1", "goal-2"]) {
        for (const turnKey of ["turn-1", "turn-2", "turn-3"]) {
          yield* writeAll(root, wholeTurn({ ...ID, turnKey, goalId }).slice(0, 3), turnKey, goalId)
        }
      }
      const all = yield* store.verify({ runtimeRoot: root })
      assert.isTrue(all.ok)
      assert.deepStrictEqual(
        all.turns.map(({ goal_id, turn_key, transitions }) => [goal_id, turn_key, transitions]),
        ["goal-1", "goal-2"].flatMap((goal) => ["turn-1", "turn-2", "turn-3"].map((key) => [goal, key, 3]))
      )
      const one = yield* store.verify({ runtimeRoot: root, goalId: "goal-2", turnKey: "turn-2" })
      assert.deepStrictEqual(one.turns, all.turns.slice(4, 5))
      assert.lengthOf((yield* store.verify({ runtimeRoot: root, goalId: "goal-2" })).turns, 3)

      const { heads, damaged } = yield* store.heads({ runtimeRoot: root })
      assert.deepStrictEqual([heads.length, damaged], [6, []])
      assert.isTrue((yield* store.verify({ runtimeRoot: root, heads })).ok)
      const [head] = heads
      if (head === undefined) return assert.fail("no head")
      const changed = [
        { ...head, digest: `sha256:${"0".repeat(64)}` },
        { ...head, count: 4 },
        { ...head, turn_key: "turn-9" }
      ]
      const { ok, turns } = yield* store.verify({ runtimeRoot: root, heads: changed })
      assert.isFalse(ok)
      assert.deepStrictEqual(
        turns.map(({ problem }) => problem?.kind),
        ["head_mismatch", "head_missing", "head_missing"]
      )
      yield* writeAll(root, wholeTurn({ ...ID, turnKey: "turn-1", goalId: "goal-1" }).slice(3), "turn-1", "goal-1")
      assert.isTrue((yield* store.verify({ runtimeRoot: root, heads })).ok, "a history may grow")
    })
  )

  it.effect("prunes what is over: the tombstone inspects the same, replays, is found, and verifies", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      const journals = wholeTurn(ID)
      yield* writeAll(root, journals)
      const path = pathOf(root, "turn-1")
      const ask = { runtimeRoot: root, goalId: GOAL, agentId: AGENT, turnKey: "turn-1" }
      const before = yield* store.inspectStored(ask)
      const { heads } = yield* store.heads({ runtimeRoot: root })
      const listed = yield* store.list({ runtimeRoot: root })

      const prune = { runtimeRoot: root, olderThan: 0 }
      const planned = yield* store.prune({ ...prune, dryRun: true })
      assert.strictEqual((yield* store.history({ path })).transitions.length, journals.length)
      const { turns } = yield* store.prune(prune)
      assert.deepStrictEqual(turns, planned.turns)
      assert.lengthOf(turns, 1)

      assert.deepStrictEqual(yield* store.inspectStored(ask), before)
      const { journal, operation_id } = yield* store.read({ path })
      assert.strictEqual(operation_id, turns[0]?.operation_id)
      assert.isUndefined((journal["host_result"] as JsonObject)["output"])
      const left = yield* store.history({ path })
      assert.deepStrictEqual(
        left.transitions.map(({ seq, pruned }) => ({ seq, pruned })),
        [{ seq: journals.length + 1, pruned: true }]
      )
      assert.strictEqual(yield* kindOf(store.read({ path, at: 1 })), "journal_not_found")
      assert.isTrue((yield* store.verify({ runtimeRoot: root })).ok)
      assert.isTrue((yield* store.verify({ runtimeRoot: root, heads })).ok, "the heads of before hold")
      const settles = { runtimeRoot: root, goalId: GOAL, agentId: AGENT, todoId: "todo-1", turnInstanceId: "i-1" }
      assert.strictEqual((yield* store.findSettlement(settles)).turn_key, "turn-1")
      assert.deepStrictEqual(
        (yield* store.list({ runtimeRoot: root })).turns.map(({ updated_at }) => updated_at),
        listed.turns.map(({ updated_at }) => updated_at)
      )
      const last = journals.at(-1) as JsonObject
      assert.isTrue((yield* store.write({ path, journal: last })).replayed, "the last write still replays")
      assert.deepStrictEqual((yield* store.prune(prune)).turns, [], "and nothing is pruned twice")
    })
  )

  it.effect("prunes nothing that may go on, is young, or is to be kept", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      yield* writeAll(root, wholeTurn({ ...ID, turnKey: "a-over" }), "a-over")
      yield* writeAll(root, wholeTurn({ ...ID, turnKey: "b-open" }).slice(0, 3), "b-open")
      const failed = [
        settledTurn({ ...ID, turnKey: "c-failed" }, "in_progress", 0),
        settledTurn({ ...ID, turnKey: "c-failed" }, "failed", 0, { receipt: { failed_phase: "host_execute" } })
      ]
      yield* writeAll(root, failed, "c-failed")
      // Nothing is left to do in it, and it is not over: its driver's last write is still to come.
      const whole = [[], ["a", "b", "c"]].map((completed) => plainTurn("c-whole", "in_progress", completed))
      yield* writeAll(root, whole, "c-whole")
      yield* writeAll(root, wholeTurn({ ...ID, turnKey: "d-over" }), "d-over")
      const pruned = (request: object) =>
        Effect.map(store.prune({ runtimeRoot: root, olderThan: 0, ...request }), ({ turns }) =>
          turns.map(({ turn_key }) => turn_key)
        )
      assert.deepStrictEqual(yield* pruned({ olderThan: 3600 }), [])
      assert.deepStrictEqual(yield* pruned({ keep: 5 }), [])
      assert.deepStrictEqual(yield* pruned({ keep: 1, dryRun: true }), ["a-over"])
      assert.deepStrictEqual(yield* pruned({ goalId: "other" }), [])
      assert.deepStrictEqual(yield* pruned({}), ["a-over", "d-over"])
    })
  )

  it.effect("tells which turns were pruned, and of no other that it was", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      for (const turnKey of ["over", "not-asked"]) yield* writeAll(root, wholeTurn({ ...ID, turnKey }), turnKey)
      yield* writeAll(root, wholeTurn({ ...ID, turnKey: "open" }).slice(0, 3), "open")
      const turnKeys = ["over", "open", "later", "unknown"]
      const found = (request: object = {}) =>
        Effect.map(store.findPruned({ runtimeRoot: root, turnKeys, ...request }), ({ turns }) => turns)
      assert.deepStrictEqual(yield* found(), [])
      yield* store.prune({ runtimeRoot: root, olderThan: 0 })
      yield* writeAll(root, wholeTurn({ ...ID, turnKey: "later" }), "later")
      const over = { goal_id: GOAL, turn_key: "over" }
      assert.deepStrictEqual(yield* found(), [over])
      assert.deepStrictEqual(yield* found({ goalId: GOAL, turnKeys: ["over"] }), [over])
      assert.deepStrictEqual(yield* found({ goalId: "other" }), [])
      assert.deepStrictEqual(yield* found({ turnKeys: [] }), [])
      assert.strictEqual(yield* kindOf(found({ goalId: ".." })), "invalid_request")
      assert.strictEqual(yield* kindOf(found({ runtimeRoot: "relative" })), "invalid_request")
    })
  )

  it.effect("takes a write that is tried again for what it is: written once, whatever followed", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      const path = pathOf(root, "turn-1")
      const [mine, others] = ["mine", "others"].map((mark) => plainTurn("turn-1", "in_progress", [], { mark }))
      if (mine === undefined || others === undefined) return assert.fail()
      const since = Date.now()
      assert.isTrue((yield* store.write({ path, journal: mine, retrySince: since })).appended, "it never stood")
      assert.isTrue((yield* store.write({ path, journal: mine, retrySince: since })).replayed, "it stands")
      yield* store.write({ path, journal: others })
      for (const follows of [{}, { expectedPrevious: null }]) {
        const answer = yield* store.write({ path, journal: mine, retrySince: since, ...follows })
        assert.deepStrictEqual([answer.appended, answer.replayed], [false, true], "it stood")
      }
      assert.strictEqual((yield* store.read({ path })).operation_id, operationId(others))
      const { at } = (yield* store.history({ path })).transitions[0] ?? assert.fail()
      const first = { path, journal: mine, retrySince: Date.parse(at) }
      assert.isTrue((yield* store.write(first)).replayed, "it stood in the very millisecond of that call")
      const later = { ...first, retrySince: Date.parse(at) + 1 }
      assert.isTrue((yield* store.write(later)).appended, "what stood before that call is another write")
      assert.lengthOf((yield* store.history({ path })).transitions, 3)
    })
  )

  it.effect("has nothing to repair where nothing is wrong", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      const path = pathOf(root, "turn-1")
      yield* writeAll(root, wholeTurn(ID))
      const { repair, plan } = yield* store.repair({ path })
      assert.deepStrictEqual({ repair, plan }, { repair: "nothing", plan: null })
    })
  )
}
