/** What is made durable, and how often: no more than docs/store.md says, as each sync is a wait for the disk. */
import { existsSync, writeFileSync } from "node:fs"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type Disk, nodeDisk, type Step } from "../../src/store/Disk.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { filesOf } from "../../src/store/Place.ts"
import { folder, pathOf, placeOf, plainTurn } from "./Turns.ts"

/** A store that tells how many files each of its syncs was for since it was asked last. */
const counted = Effect.gen(function* () {
  let synced: Array<readonly [Step, number]> = []
  const disk: Disk = {
    ...nodeDisk,
    sync: (step, fds) => {
      synced.push([step, fds.length])
      return nodeDisk.sync(step, fds)
    }
  }
  const context = yield* Layer.build(
    JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer({ disk })))
  )
  const write = (path: string, completed: ReadonlyArray<string>) =>
    Effect.gen(function* () {
      synced = []
      const store = yield* JournalStore
      yield* store.write({ path, journal: plainTurn("turn-1", "in_progress", completed) })
      return synced
    }).pipe(Effect.provide(context))
  return write
})

/** Folders from a turn's own up to the file system's. */
const depthOf = (folder: string): number => folder.split("/").filter((name) => name !== "").length

it.live("a write syncs three files, and the first one of a process the folders above them too", () =>
  Effect.gen(function* () {
    const write = yield* counted
    const root = yield* folder
    const path = pathOf(root, "turn-1")
    const above = depthOf(filesOf(placeOf(root, "turn-1")).folder)
    assert.deepStrictEqual(yield* write(path, []), [
      ["commit.sync", 2 + above],
      ["folder.sync", 1]
    ])
    assert.deepStrictEqual(yield* write(path, ["a"]), [
      ["commit.sync", 2],
      ["folder.sync", 1]
    ])
  })
)

it.live("a replay syncs what stands once, and not what this process made durable itself", () =>
  Effect.gen(function* () {
    const root = yield* folder
    const path = pathOf(root, "turn-1")
    const above = depthOf(filesOf(placeOf(root, "turn-1")).folder)
    const first = yield* counted
    yield* first(path, [])
    assert.deepStrictEqual(yield* first(path, []), [])

    const second = yield* counted
    assert.deepStrictEqual(yield* second(path, []), [["replay.sync", 2 + above]])
    assert.deepStrictEqual(yield* second(path, []), [])
    assert.deepStrictEqual(yield* second(path, ["a"]), [
      ["commit.sync", 2],
      ["folder.sync", 1]
    ])
  })
)

it.live("a replay removes what another writer left, also where it has nothing to sync", () =>
  Effect.gen(function* () {
    const write = yield* counted
    const root = yield* folder
    const path = pathOf(root, "turn-1")
    const { snapshotDraft, historyDraft } = filesOf(placeOf(root, "turn-1"))
    yield* write(path, [])
    for (const draft of [snapshotDraft, historyDraft]) writeFileSync(draft, "cut off")
    yield* write(path, [])
    for (const draft of [snapshotDraft, historyDraft]) assert.isFalse(existsSync(draft))
  })
)
