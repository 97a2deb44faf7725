/** A lock that is held waits with a deadline, and then says who has it. What other processes do: tests/chaos/store. */
import { existsSync, readdirSync, readlinkSync, writeFileSync } from "node:fs"
import { basename, dirname, join } from "node:path"
import { DatabaseSync } from "node:sqlite"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import type { JsonObject } from "../../src/contract/Json.ts"
import { type Disk, nodeDisk } from "../../src/store/Disk.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import * as Lock from "../../src/store/Lock.ts"
import { pidIn } from "../../src/store/LockHolder.ts"
import { filesOf } from "../../src/store/Place.ts"
import { AGENT, folder, GOAL, kindOf, pathOf, placeOf, plainTurn, writeElsewhere } from "./Turns.ts"

/** A disk whose syncs wait, when it is told to hang, until it is let go. */
const makeDisk = () => {
  let gate = Promise.resolve()
  let open = () => {}
  const hang = () => {
    gate = new Promise((resolve) => {
      open = resolve
    })
  }
  const disk: Disk = {
    ...nodeDisk,
    sync: (step, fds) =>
      Effect.andThen(
        Effect.promise(() => gate),
        nodeDisk.sync(step, fds)
      )
  }
  return { disk, hang, letGo: () => open() }
}

it.live("callers behind one whose disk hangs wait until their deadline, and are told of their own process", () =>
  Effect.scoped(
    Effect.gen(function* () {
      const root = yield* folder
      const { disk, hang, letGo } = makeDisk()
      const path = pathOf(root, "turn-1")
      const marked = (mark: string) => ({ path, journal: plainTurn("turn-1", "in_progress", [], { mark }) })
      yield* Effect.gen(function* () {
        const store = yield* JournalStore
        yield* store.write(marked("first"))
        hang()
        const hanging = yield* Effect.forkChild(store.write(marked("hanging")))
        yield* Effect.yieldNow
        const ask = { runtimeRoot: root, goalId: GOAL, agentId: AGENT, turnKey: "turn-1" }
        for (const call of [store.write(marked("late")), store.read({ path }), store.inspectStored(ask)]) {
          const began = Date.now()
          const error = yield* Effect.flip(call as Effect.Effect<unknown, { kind: string; details: unknown }>)
          assert.strictEqual(error.kind, "turn_busy")
          const { holder, waiting_since } = error.details as { holder: { pid: number }; waiting_since: string }
          assert.strictEqual(holder.pid, process.pid)
          assert.isAtLeast(Date.now() - began, 190)
          assert.isAtLeast(Date.parse(waiting_since), began)
        }
        letGo()
        assert.isTrue((yield* Fiber.join(hanging)).appended)
        assert.isTrue((yield* store.write(marked("after"))).appended)
      }).pipe(
        Effect.provide(
          JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer({ disk, lockTimeout: 0.2 })))
        )
      )
    })
  )
)

it.live("callers come in their turn when the one before them is done", () =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    const path = pathOf(yield* folder, "turn-1")
    const journals = Array.from({ length: 20 }, (_, mark) => plainTurn("turn-1", "in_progress", [], { mark }))
    const writers = yield* Effect.forEach(journals, (journal) => Effect.forkChild(store.write({ path, journal })))
    for (const writer of writers) assert.isTrue((yield* Fiber.join(writer)).appended)
    assert.lengthOf((yield* store.history({ path })).transitions, 20)
  }).pipe(Effect.provide(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer()))))
)

it.live("a lock that is held is kept open, however few are", () =>
  Effect.gen(function* () {
    const root = yield* folder
    const { disk, hang, letGo } = makeDisk()
    const path = pathOf(root, "turn-1")
    yield* Effect.gen(function* () {
      const store = yield* JournalStore
      yield* store.write({ path, journal: plainTurn("turn-1", "in_progress", []) })
      hang()
      const next = plainTurn("turn-1", "in_progress", ["a"])
      const hanging = yield* Effect.forkChild(store.write({ path, journal: next }))
      yield* Effect.yieldNow
      for (const turn of ["turn-2", "turn-3"]) {
        writeFileSync(filesOf(placeOf(root, turn)).lock, "")
        assert.strictEqual(yield* kindOf(store.read({ path: pathOf(root, turn) })), "journal_not_found")
      }
      assert.strictEqual(writeElsewhere(path, next), "turn_busy")
      letGo()
      assert.isTrue((yield* Fiber.join(hanging)).appended)
    }).pipe(
      Effect.ensuring(Effect.sync(letGo)),
      Effect.provide(
        JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer({ disk, openLocks: 1 })))
      )
    )
  })
)

it.live("a lock that is held has no companion: whoever is killed with it leaves none", () =>
  Effect.gen(function* () {
    const root = yield* folder
    const { disk, hang, letGo } = makeDisk()
    const { lock, snapshotDraft } = filesOf(placeOf(root, "turn-1"))
    yield* Effect.gen(function* () {
      const store = yield* JournalStore
      hang()
      const journal = plainTurn("turn-1", "in_progress", [])
      const hanging = yield* Effect.forkChild(store.write({ path: pathOf(root, "turn-1"), journal }))
      while (!existsSync(snapshotDraft)) yield* Effect.sleep(1)
      const beside = readdirSync(dirname(lock)).filter((name) => name.startsWith(basename(lock)))
      assert.deepStrictEqual(beside, [basename(lock)])
      letGo()
      assert.isTrue((yield* Fiber.join(hanging)).appended)
    }).pipe(
      Effect.ensuring(Effect.sync(letGo)),
      Effect.provide(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer({ disk }))))
    )
  })
)

it.live("a reader waits for a writer, and a writer for a reader", () =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    const root = yield* folder
    const path = pathOf(root, "turn-1")
    yield* store.write({ path, journal: plainTurn("turn-1", "in_progress", []) })
    const write = Effect.suspend(() => store.write({ path, journal: plainTurn("turn-1", "in_progress", ["a"]) }))
    const other = new DatabaseSync(filesOf(placeOf(root, "turn-1")).lock)
    other.exec("BEGIN EXCLUSIVE")
    const began = Date.now()
    const busy = yield* Effect.flip(store.read({ path }))
    assert.strictEqual(busy.kind, "turn_busy")
    const waitingSince = Date.parse(String((busy.details as JsonObject)["waiting_since"]))
    assert.isAtLeast(waitingSince, began - 1)
    assert.isAtMost(waitingSince, Date.now() - 190, "since it began to wait, and not since it was told")
    other.exec("ROLLBACK; BEGIN; SELECT name FROM sqlite_master")
    assert.strictEqual((yield* store.read({ path })).seq, 1)
    assert.strictEqual(yield* kindOf(write), "turn_busy")
    other.exec("ROLLBACK")
    assert.isTrue((yield* write).appended)
    other.close()
  }).pipe(
    Effect.provide(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer({ lockTimeout: 0.2 }))))
  )
)

it.live("no more lock files are kept open than may be, and nobody stands in a queue when it is over", () =>
  Effect.gen(function* () {
    const root = yield* folder
    const locks = Lock.make({ patienceMs: 200, maxOpen: 2, disk: nodeDisk })
    const files = ["a", "b", "c", "d"].map((name) => join(root, `${name}.lock`))
    const open = () =>
      readdirSync("/proc/self/fd").filter((fd) => {
        try {
          return readlinkSync(`/proc/self/fd/${fd}`).startsWith(root)
        } catch {
          return false
        }
      }).length
    for (const file of files) yield* locks.with(file, "exclusive", Effect.void)
    assert.strictEqual(open(), 2)
    for (const file of files) {
      const held = locks.tryShared(file)
      if (held === null || held === "open") return assert.fail("the lock is free")
      held.release()
    }
    assert.strictEqual(open(), 2)
    locks.closeAll()
    assert.strictEqual(open(), 0)
  })
)

describe("the kernel's list of locks", () => {
  const locks = [
    "1: POSIX  ADVISORY  READ 11 fe:00:77 123 123",
    "2: POSIX  ADVISORY  READ 12 fe:00:77 1073741826 1073742335",
    "3: POSIX  ADVISORY  WRITE 13 00:19:77 1073741825 1073741825",
    "3: -> POSIX  ADVISORY  WRITE 14 fe:00:77 1073741824 1073742335",
    "4: FLOCK  ADVISORY  WRITE 15 fe:00:78 0 EOF",
    "5: POSIX  ADVISORY  WRITE 0 fe:00:79 1073741824 1073742335",
    ""
  ].join("\n")

  it("names the writer before a reader, and nobody who waits", () => {
    assert.strictEqual(pidIn(locks, 77n), 13)
    assert.strictEqual(pidIn(locks.replace("WRITE 13", "READ 13"), 77n), 12)
  })

  it("names nobody for a lock of another kind, and none of another container", () => {
    assert.isNull(pidIn(locks, 78n))
    assert.isNull(pidIn(locks, 79n))
    assert.isNull(pidIn("", 77n))
  })
})
