/** Pruning that is cut off, and pruning beside a writer. */
import { mkdirSync, rmSync, utimesSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { JsonObject } from "../../src/contract/Json.ts"
import type { TurnHead } from "../../src/contract/Store.ts"
import { nodeDisk } from "../../src/store/Disk.ts"
import { Driver, type Near } from "../../src/store/Driver.ts"
import { faultyDisk } from "../../src/store/Fault.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import * as MemoryDriver from "../../src/store/MemoryDriver.ts"
import { AGENT, GOAL, pathOf, plainTurn, quickFolder, wholeTurn } from "./Turns.ts"

const JOURNALS = wholeTurn({ turnKey: "turn-1", todoId: "todo-1", instanceId: "i-1" })

const writeAll = (root: string) =>
  Effect.forEach(JOURNALS, (journal) =>
    Effect.flatMap(JournalStore, (store) => store.write({ path: pathOf(root, "turn-1"), journal }))
  )

const prune = (root: string, olderThan = 0) =>
  Effect.flatMap(JournalStore, (store) => store.prune({ runtimeRoot: root, olderThan }))

const over = (driver: Layer.Layer<Driver, unknown>) =>
  JournalStore.layer({ signingKey: null }).pipe(Layer.provide(driver))

it.live("shortens a history to its tombstone when the one before was cut off between the two", () =>
  Effect.gen(function* () {
    const root = yield* quickFolder
    const failing = faultyDisk(nodeDisk, { step: "compaction.create", when: "before", fault: "ENOSPC" })
    yield* Effect.gen(function* () {
      yield* writeAll(root)
      const { operation_id, damage } = (yield* prune(root)).turns[0] ?? assert.fail()
      assert.deepStrictEqual([operation_id, damage?.kind], [null, "store_full"])
      assert.include(damage?.message, "prune again", "it is not said that nothing was changed")
    }).pipe(Effect.provide(over(FileDriver.layer({ disk: failing }))))

    yield* Effect.gen(function* () {
      const store = yield* JournalStore
      const history = Effect.map(store.history({ path: pathOf(root, "turn-1") }), ({ transitions }) =>
        transitions.map(({ seq, pruned }) => ({ seq, pruned }))
      )
      assert.lengthOf(yield* history, JOURNALS.length + 1)
      assert.lengthOf((yield* prune(root)).turns, 1)
      assert.deepStrictEqual(yield* history, [{ seq: JOURNALS.length + 1, pruned: true }])
      assert.isTrue((yield* store.verify({ runtimeRoot: root })).ok)
    }).pipe(Effect.provide(over(FileDriver.layer())))
  })
)

it.live("leaves one line, also of a journal that had no history", () =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    const root = yield* quickFolder
    const path = pathOf(root, "turn-1")
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, JSON.stringify(JOURNALS.at(-1)))
    assert.isFalse((yield* store.verify({ runtimeRoot: root })).turns[0]?.signed, "there is nothing to sign")
    assert.lengthOf((yield* prune(root)).turns, 1)
    const { transitions } = yield* store.history({ path })
    assert.deepStrictEqual(
      transitions.map(({ seq, pruned }) => ({ seq, pruned })),
      [{ seq: 2, pruned: true }]
    )
    assert.isTrue((yield* store.verify({ runtimeRoot: root })).ok)
  }).pipe(Effect.provide(over(FileDriver.layer())))
)

it.live("leaves a history that fits the heads of any time before", () =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    const root = yield* quickFolder
    const exported: Array<TurnHead> = []
    for (const journal of JOURNALS) {
      yield* store.write({ path: pathOf(root, "turn-1"), journal })
      exported.push(...(yield* store.heads({ runtimeRoot: root })).heads)
    }
    assert.lengthOf((yield* prune(root)).turns, 1)
    assert.lengthOf(exported, JOURNALS.length)
    for (const head of exported) {
      const { turns } = yield* store.verify({ runtimeRoot: root, heads: [head] })
      assert.deepStrictEqual(
        turns.map(({ problem }) => problem),
        [null]
      )
    }
  }).pipe(Effect.provide(over(FileDriver.layer())))
)

it.live(
  "keeps the latest turns: of those of one moment the last by name, and one that cannot be read is one of them",
  () =>
    Effect.gen(function* () {
      const store = yield* JournalStore
      const root = yield* quickFolder
      const paths = ["turn-1", "turn-2", "turn-3"].map((turnKey) => pathOf(root, turnKey))
      for (const [index, path] of paths.entries()) {
        const turn = wholeTurn({ turnKey: `turn-${index + 1}`, todoId: `todo-${index}`, instanceId: `i-${index}` })
        for (const journal of turn) yield* store.write({ path, journal })
        utimesSync(path, 1, 1)
      }
      const pruned = (keep: number) =>
        Effect.map(store.prune({ runtimeRoot: root, olderThan: 0, keep, dryRun: true }), ({ turns }) =>
          turns.filter(({ damage }) => damage === null).map(({ turn_key }) => turn_key)
        )
      assert.deepStrictEqual(yield* pruned(1), ["turn-1", "turn-2"])
      rmSync(paths[0] ?? "")
      mkdirSync(paths[0] ?? "")
      assert.deepStrictEqual(yield* pruned(1), ["turn-2", "turn-3"])
    }).pipe(Effect.provide(over(FileDriver.layer())))
)

/** A turn that failed, with what its audit says beside the recovery that was planned. */
const failedTurn = (given: JsonObject): JsonObject =>
  plainTurn("turn-1", "failed", [], {
    receipt: { failed_phase: "a" },
    recovery_audit: {
      schema_version: "loopx_turn_recovery_audit_v0",
      planned: {
        schema_version: "loopx_turn_recovery_decision_v0",
        action: "continue",
        can_continue: true,
        resume_from: "a",
        reinvoke_host: true,
        reason: "resume_in_progress",
        retry_failed: false,
        checks: []
      },
      actual: { status: "finished", journal_status: "failed", completed_phases: [], host_invoked: false },
      ...given
    }
  })

it.live("prunes a failed turn that was given up when that is asked for, and it goes on no more", () =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    const root = yield* quickFolder
    const path = pathOf(root, "turn-1")
    const pruned = (givenUp: boolean) =>
      Effect.map(store.prune({ runtimeRoot: root, olderThan: 0, givenUp }), ({ turns }) => turns.length)
    const inspections = Effect.forEach([false, true], (retryFailed) =>
      store.inspectStored({ runtimeRoot: root, goalId: GOAL, agentId: AGENT, turnKey: "turn-1", retryFailed })
    )
    const recoverable = Effect.map(store.recoverable({ runtimeRoot: root, retryFailed: true }), ({ turns }) => turns)
    const open = plainTurn("turn-1", "in_progress", [])
    for (const journal of [open, failedTurn({}), failedTurn({ given_up: true })]) {
      yield* store.write({ path, journal })
      assert.strictEqual(yield* pruned(true), 0)
    }
    const given = failedTurn({ given_up: { by: "ann" } })
    yield* store.write({ path, journal: given })
    assert.strictEqual(yield* pruned(false), 0)
    const before = yield* inspections
    assert.isTrue(before[1]?.recovery_decision.can_continue)
    assert.lengthOf(yield* recoverable, 1)
    assert.strictEqual(yield* pruned(true), 1)
    assert.deepStrictEqual(yield* inspections, before)
    assert.deepStrictEqual(yield* recoverable, [])
    assert.isTrue((yield* store.verify({ runtimeRoot: root })).ok)

    const { journal: left } = yield* store.read({ path })
    const { receipt: _, ...rest } = left
    // Its last write arrives again; what stands is written again; it is to go on, or to be given up otherwise.
    for (const journal of [given, left]) assert.isTrue((yield* store.write({ path, journal })).replayed)
    for (const journal of [
      { ...rest, status: "in_progress" },
      { ...left, recovery_audit: failedTurn({})["recovery_audit"] }
    ]) {
      const error = yield* Effect.flip(store.write({ path, journal: journal as JsonObject }))
      assert.strictEqual(error.kind, "journal_transition_conflict")
      assert.include(error.message, "was pruned")
    }
    assert.deepStrictEqual((yield* store.read({ path })).journal, left)
    assert.strictEqual(yield* pruned(true), 0)
  }).pipe(Effect.provide(over(FileDriver.layer())))
)

it.live("the pruning of a turn that was given up is made whole by any other one", () =>
  Effect.gen(function* () {
    const root = yield* quickFolder
    const path = pathOf(root, "turn-1")
    const journals = [plainTurn("turn-1", "in_progress", []), failedTurn({}), failedTurn({ given_up: { by: "ann" } })]
    const failing = faultyDisk(nodeDisk, { step: "compaction.create", when: "before", fault: "ENOSPC" })
    yield* Effect.gen(function* () {
      const store = yield* JournalStore
      for (const journal of journals) yield* store.write({ path, journal })
      const { turns } = yield* store.prune({ runtimeRoot: root, olderThan: 0, givenUp: true })
      assert.strictEqual(turns[0]?.damage?.kind, "store_full")
    }).pipe(Effect.provide(over(FileDriver.layer({ disk: failing }))))
    yield* Effect.gen(function* () {
      const store = yield* JournalStore
      assert.lengthOf((yield* store.history({ path })).transitions, journals.length + 1)
      assert.lengthOf((yield* prune(root)).turns, 1)
      assert.lengthOf((yield* store.history({ path })).transitions, 1)
    }).pipe(Effect.provide(over(FileDriver.layer())))
  })
)

/** A driver at whose glance every journal is old: what is read under the lock was written since. */
const seenLate = Layer.effect(
  Driver,
  Effect.map(Driver, (driver) => {
    const glance: Near["glance"] = (place) =>
      Effect.map(driver.glance(place), (snapshot) => (snapshot === null ? null : { ...snapshot, updatedAt: 0 }))
    return Driver.of({ ...driver, glance, ahead: () => Effect.succeed({ glance, scan: driver.scan }) })
  })
).pipe(Layer.provide(MemoryDriver.layer))

it.live("leaves a turn alone that was written to after it was looked at", () =>
  Effect.gen(function* () {
    yield* writeAll("/root")
    assert.deepStrictEqual((yield* prune("/root", 3600)).turns, [])
    assert.lengthOf((yield* prune("/root")).turns, 1)
  }).pipe(Effect.provide(over(seenLate)))
)
