/** Every step of a commit goes wrong once, in every way that a disk can go wrong without taking the process along. */
import { mkdirSync, readdirSync, writeFileSync } from "node:fs"
import { dirname, join } from "node:path"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { JsonObject } from "../../src/contract/Json.ts"
import { operationId } from "../../src/journal/OperationId.ts"
import { type Disk, nodeDisk, type Step } from "../../src/store/Disk.ts"
import { type Fault, faultyDisk } from "../../src/store/Fault.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { pathOf, quickFolder, wholeTurn } from "./Turns.ts"

const TURN = { turnKey: "turn-1", todoId: "todo-1", instanceId: "i-1" }
const JOURNALS = wholeTurn(TURN)
const journal = (index: number): JsonObject => JOURNALS[index] ?? assert.fail("no such journal")

interface Scenario {
  readonly name: string
  /** What stands before. */
  readonly prepare: (root: string) => Effect.Effect<unknown, unknown, JournalStore>
  /** What goes wrong. */
  readonly act: (root: string) => Effect.Effect<unknown, unknown, JournalStore>
  /** What may stand afterwards: the journal before, and the one that was to be written. */
  readonly before: JsonObject | null
  readonly after: JsonObject | null
  /** A write that follows on whatever stands. */
  readonly next: (standing: string | null) => JsonObject
}

const writeUpTo = (count: number) => (root: string) =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    for (let index = 0; index < count; index++) {
      yield* store.write({ path: pathOf(root, TURN.turnKey), journal: journal(index) })
    }
  })

const write = (index: number) => (root: string) =>
  Effect.flatMap(JournalStore, (store) => store.write({ path: pathOf(root, TURN.turnKey), journal: journal(index) }))

const copy = (root: string) =>
  Effect.flatMap(JournalStore, (store) => store.copy({ runtimeRoot: join(root, "source"), targetRoot: root }))

/** The journal of a turn that follows on one of these. */
const following = (standing: string | null): JsonObject => {
  const index = JOURNALS.findIndex((journal) => operationId(journal) === standing)
  return journal(Math.min(index + 1, JOURNALS.length - 1))
}

const SCENARIOS: ReadonlyArray<Scenario> = [
  {
    name: "first write",
    prepare: () => Effect.void,
    act: write(0),
    before: null,
    after: journal(0),
    next: following
  },
  { name: "later write", prepare: writeUpTo(2), act: write(2), before: journal(1), after: journal(2), next: following },
  {
    name: "replayed write",
    prepare: writeUpTo(2),
    act: write(1),
    before: journal(1),
    after: journal(1),
    next: following
  },
  {
    name: "adoption",
    prepare: (root) =>
      Effect.sync(() => {
        const path = pathOf(root, TURN.turnKey)
        mkdirSync(dirname(path), { recursive: true })
        writeFileSync(path, JSON.stringify(journal(1), null, 1))
      }),
    act: write(2),
    before: journal(1),
    after: journal(2),
    next: following
  },
  {
    name: "copy",
    prepare: (root) => Effect.all([writeUpTo(1)(join(root, "source")), copy(root), writeUpTo(4)(join(root, "source"))]),
    act: copy,
    before: journal(0),
    after: journal(3),
    next: following
  },
  {
    name: "prune",
    prepare: writeUpTo(JOURNALS.length),
    act: (root) =>
      Effect.gen(function* () {
        const store = yield* JournalStore
        const { turns } = yield* store.prune({ runtimeRoot: root, olderThan: 0 })
        const damage = turns.find(({ damage }) => damage !== null)
        if (damage !== undefined) return yield* Effect.fail(damage)
        return turns
      }),
    before: journal(JOURNALS.length - 1),
    // The tombstone: told by what it inspects to.
    after: null,
    next: () => journal(JOURNALS.length - 1)
  }
]

const storeOn = (disk: Disk): Layer.Layer<JournalStore, unknown> =>
  JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer({ disk })))

/** The steps that a scenario takes. */
const stepsOf = (scenario: Scenario): Effect.Effect<ReadonlyArray<Step>, unknown> =>
  Effect.scoped(
    Effect.gen(function* () {
      const root = yield* quickFolder
      yield* Effect.provide(scenario.prepare(root), storeOn(nodeDisk))
      const steps = new Set<Step>()
      const noted = <K extends keyof Disk>(method: K): Disk[K] =>
        ((step: Step, ...rest: ReadonlyArray<unknown>) => {
          steps.add(step)
          return (nodeDisk[method] as (...all: ReadonlyArray<unknown>) => unknown)(step, ...rest)
        }) as Disk[K]
      const disk: Disk = {
        open: noted("open"),
        close: nodeDisk.close,
        write: noted("write"),
        truncate: noted("truncate"),
        sync: noted("sync"),
        rename: noted("rename"),
        remove: noted("remove"),
        makeFolder: noted("makeFolder")
      }
      yield* Effect.provide(scenario.act(root), storeOn(disk))
      return [...steps]
    })
  )

const WRITES: ReadonlySet<Step> = new Set(["snapshot.write", "history.write", "history.seal", "compaction.write"])

const faultsOf = (steps: ReadonlyArray<Step>): ReadonlyArray<Fault> =>
  steps.flatMap((step) => [
    ...(["EIO", "ENOSPC"] as const).flatMap((fault) =>
      (["before", "after"] as const).map((when) => ({ step, when, fault }))
    ),
    ...(WRITES.has(step) ? [{ step, when: "before", fault: "short" } as const] : [])
  ])

const check = (scenario: Scenario, fault: Fault): Effect.Effect<void, unknown> =>
  Effect.scoped(
    Effect.gen(function* () {
      const root = yield* quickFolder
      const path = pathOf(root, TURN.turnKey)
      const where = `${scenario.name}, ${fault.fault} ${fault.when} ${fault.step}`
      yield* Effect.provide(scenario.prepare(root), storeOn(nodeDisk))
      const outcome = yield* Effect.result(Effect.provide(scenario.act(root), storeOn(faultyDisk(nodeDisk, fault))))
      yield* Effect.gen(function* () {
        const store = yield* JournalStore
        const stored = yield* Effect.result(store.read({ path }))
        const standing = stored._tag === "Success" ? stored.success.operation_id : null
        const old = scenario.before === null ? null : operationId(scenario.before)
        if (scenario.after !== null) {
          const written = operationId(scenario.after)
          if (outcome._tag === "Success")
            assert.strictEqual(standing, written, `${where}: what was acknowledged is there`)
          else if (isKnown(outcome.failure))
            assert.strictEqual(standing, old, `${where}: what was refused changed nothing`)
          else assert.include([old, written], standing, `${where}: the old journal or the new one`)
        }
        const verified = yield* store.verify({ runtimeRoot: root })
        assert.deepStrictEqual(
          verified.turns.map(({ problem }) => problem).filter((problem) => problem !== null),
          [],
          where
        )
        const answer = yield* store.write({ path, journal: scenario.next(standing) })
        assert.isTrue(answer.ok, where)
        const { turns } = yield* store.verify({ runtimeRoot: root })
        assert.deepStrictEqual(
          turns.map(({ ok, unfinished }) => ({ ok, unfinished })),
          [{ ok: true, unfinished: false }],
          where
        )
        assert.deepStrictEqual(
          readdirSync(dirname(path)).filter((name) => name.endsWith(".tmp")),
          [],
          where
        )
      }).pipe(Effect.provide(storeOn(nodeDisk)))
    })
  )

/** Whether an error says that nothing was changed. */
const isKnown = (error: unknown): boolean =>
  (error as { readonly details?: { readonly outcome?: string } }).details?.outcome !== "unknown"

describe("a disk that fails in the middle of a commit", () => {
  for (const scenario of SCENARIOS) {
    it(scenario.name, async () => {
      const faults = faultsOf(await Effect.runPromise(stepsOf(scenario)))
      for (const fault of faults) await Effect.runPromise(check(scenario, fault))
      process.stdout.write(`crash matrix, ${scenario.name}: ${faults.length} cells of failing calls\n`)
      assert.isAbove(faults.length, 5)
    })
  }
})
