/** Queries over many turns, as every driver answers them. */
import { assert, type Vitest } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { ListedTurn, ListResult } from "../../src/contract/Store.ts"
import { operationId } from "../../src/journal/OperationId.ts"
import type { Driver } from "../../src/store/Driver.ts"
import type { JournalStore } from "../../src/store/JournalStore.ts"
import { AGENT, fresh, GOAL, kindOf, type Plant, pathOf, plainTurn, settledTurn, wholeTurn } from "./Turns.ts"

export const querySuite = (it: Vitest.MethodsNonLive<JournalStore | Driver>, plant: Plant): void => {
  it.effect("does not know of a turn that cannot be read that it was pruned", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      for (const turnKey of ["damaged", "whole"]) {
        const turn = wholeTurn({ turnKey, todoId: "todo-1", instanceId: "i-1" })
        for (const journal of turn) yield* store.write({ path: pathOf(root, turnKey), journal })
      }
      yield* store.prune({ runtimeRoot: root, olderThan: 0 })
      yield* plant(pathOf(root, "damaged"), "{")
      const { turns } = yield* store.findPruned({ runtimeRoot: root, turnKeys: ["damaged", "whole"] })
      assert.deepStrictEqual(turns, [{ goal_id: GOAL, turn_key: "whole" }])
    })
  )

  it.effect("lists turns by goal and key, in pages, and damaged ones as damaged", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      const keys = ["turn-1", "turn-2", "turn-3"]
      for (const goalId of ["goal-b", "goal-a"]) {
        for (const turnKey of keys) {
          const journal = { ...plainTurn(turnKey, "in_progress", []), goal_id: goalId }
          yield* store.write({ path: pathOf(root, turnKey, goalId), journal })
        }
      }
      yield* plant(pathOf(root, "turn-2", "goal-a"), "{")
      const all = yield* store.list({ runtimeRoot: root })
      assert.strictEqual(all.next, null)
      assert.deepStrictEqual(
        all.turns.map(({ goal_id, turn_key, status, damage }) => [goal_id, turn_key, status, damage?.kind ?? null]),
        [
          ["goal-a", "turn-1", "in_progress", null],
          ["goal-a", "turn-2", null, "journal_corrupt"],
          ["goal-a", "turn-3", "in_progress", null],
          ...keys.map((key) => ["goal-b", key, "in_progress", null])
        ]
      )
      const [first] = all.turns
      assert.strictEqual(
        first?.operation_id,
        operationId({ ...plainTurn("turn-1", "in_progress", []), goal_id: "goal-a" })
      )
      assert.strictEqual(new Date(first?.updated_at ?? "").toISOString(), first?.updated_at)

      const paged: Array<ListedTurn> = []
      let after: string | null = null
      do {
        const page: ListResult = yield* store.list({ runtimeRoot: root, limit: 2, after })
        assert.isAtMost(page.turns.length, 2)
        paged.push(...page.turns)
        after = page.next
      } while (after !== null)
      assert.deepStrictEqual(paged, all.turns)
      // A page also follows on a cursor that the store did not just give out: after a restart.
      const resumed = yield* store.list({ runtimeRoot: root, after: "goal-a/turn-2" })
      assert.deepStrictEqual(resumed.turns, all.turns.slice(2))
      assert.deepStrictEqual((yield* store.list({ runtimeRoot: root, goalId: "goal-b" })).turns, all.turns.slice(3))
      assert.lengthOf((yield* store.list({ runtimeRoot: (yield* fresh).root })).turns, 0)
      assert.strictEqual(yield* kindOf(store.list({ runtimeRoot: root, goalId: ".." })), "invalid_request")
      assert.strictEqual(yield* kindOf(store.list({ runtimeRoot: "relative" })), "invalid_request")
      for (const after of ["nonsense", "", "a/b/c", "a/"]) {
        const error = yield* Effect.flip(store.list({ runtimeRoot: root, after }))
        assert.deepStrictEqual([error.kind, error.details], ["invalid_request", { field: "after" }])
      }
    })
  )

  it.effect("lists by status", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      yield* store.write({ path: pathOf(root, "open"), journal: plainTurn("open", "started", []) })
      for (const journal of [plainTurn("done", "started", []), plainTurn("done", "committed", ["a", "b", "c"])]) {
        yield* store.write({ path: pathOf(root, "done"), journal })
      }
      const keys = (status: string) =>
        Effect.map(store.list({ runtimeRoot: root, status }), ({ turns }) => turns.map(({ turn_key }) => turn_key))
      assert.deepStrictEqual(yield* keys("started"), ["open"])
      assert.deepStrictEqual(yield* keys("committed"), ["done"])
      assert.deepStrictEqual(yield* keys("failed"), [])
    })
  )

  it.effect("names the turns that can go on, failed ones when a retry is asked for", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      const settled = (turnKey: string) => ({ turnKey, todoId: "todo-1", instanceId: turnKey })
      const open = settledTurn(settled("open"), "in_progress", 0)
      yield* store.write({ path: pathOf(root, "open"), journal: open })
      for (const journal of wholeTurn(settled("over"))) yield* store.write({ path: pathOf(root, "over"), journal })
      const failure = { receipt: { failed_phase: "host_execute" } }
      for (const journal of [
        settledTurn(settled("failed"), "in_progress", 0),
        settledTurn(settled("failed"), "failed", 0, failure)
      ]) {
        yield* store.write({ path: pathOf(root, "failed"), journal })
      }
      yield* plant(pathOf(root, "damaged"), "[]")
      const found = (retryFailed: boolean) =>
        Effect.map(store.recoverable({ runtimeRoot: root, retryFailed }), ({ turns }) =>
          turns.map(({ turn_key, recovery_decision, damage }) => [
            turn_key,
            recovery_decision?.reason ?? damage?.kind,
            recovery_decision?.resume_from ?? null
          ])
        )
      const damaged = ["damaged", "journal_corrupt", null]
      assert.deepStrictEqual(yield* found(false), [damaged, ["open", "resume_in_progress", "host_execute"]])
      assert.deepStrictEqual(yield* found(true), [
        damaged,
        ["failed", "retry_failed_phase", "host_execute"],
        ["open", "resume_in_progress", "host_execute"]
      ])
    })
  )

  it.effect("finds the one turn that settles a piece of work", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      const work = { runtimeRoot: root, goalId: GOAL, agentId: AGENT, todoId: "todo-1", turnInstanceId: "i-1" }
      assert.strictEqual((yield* store.findSettlement(work)).turn_key, null)
      const put = (turnKey: string, todoId: string, instanceId: string) =>
        store.write({
          path: pathOf(root, turnKey),
          journal: settledTurn({ turnKey, todoId, instanceId }, "in_progress", 0)
        })
      yield* put("turn-1", "todo-1", "i-1")
      yield* put("turn-2", "todo-1", "i-2")
      yield* put("turn-3", "todo-2", "i-1")
      yield* store.write({ path: pathOf(root, "plain"), journal: plainTurn("plain", "started", []) })
      assert.strictEqual((yield* store.findSettlement(work)).turn_key, "turn-1")
      assert.strictEqual((yield* store.findSettlement({ ...work, todoId: ` ${work.todoId} ` })).turn_key, "turn-1")
      assert.strictEqual((yield* store.findSettlement({ ...work, todoId: "todo-3" })).turn_key, null)
      assert.strictEqual((yield* store.findSettlement({ ...work, agentId: "other" })).turn_key, null)
      assert.strictEqual((yield* store.findSettlement({ ...work, goalId: "other" })).turn_key, null)
      assert.strictEqual(yield* kindOf(store.findSettlement({ ...work, goalId: "a/b" })), "invalid_request")
      yield* put("turn-4", "todo-1", "i-1")
      assert.strictEqual(yield* kindOf(store.findSettlement(work)), "journal_readback_conflict")
    })
  )

  it.effect("finds nothing where a stored turn cannot be told", () =>
    Effect.gen(function* () {
      const { store, root } = yield* fresh
      const work = { runtimeRoot: root, goalId: GOAL, agentId: AGENT, todoId: "todo-1", turnInstanceId: "i-1" }
      const nameless = { ...plainTurn("turn-1", "in_progress", []), plan: { transaction: {} } }
      for (const text of ["{", JSON.stringify(nameless)]) {
        yield* plant(pathOf(root, "turn-1"), text)
        assert.strictEqual(yield* kindOf(store.findSettlement(work)), "journal_readback_conflict")
      }
    })
  )
}
