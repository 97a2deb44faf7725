/** Who reads a turn that has no lock yet may be overtaken by the turn's first writer, between any two looks at the disk. */
import fs, { copyFileSync, mkdirSync } from "node:fs"
import { syncBuiltinESMExports } from "node:module"
import { dirname } from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { type Disk, nodeDisk } from "../../src/store/Disk.ts"
import { Driver } from "../../src/store/Driver.ts"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { filesOf } from "../../src/store/Place.ts"
import { folder, pathOf, placeOf, plainTurn, writeElsewhere } from "./Turns.ts"

const KEY = "turn-1"
const stores = JournalStore.layer({ signingKey: null }).pipe(Layer.provideMerge(FileDriver.layer()))

const replaceLook = (look: typeof fs.lstatSync): void => {
  Object.assign(fs, { lstatSync: look })
  syncBuiltinESMExports()
}

/** Calls `then` after the look `number` at the disk, which does not see what `then` does. */
const afterLook = (number: number, then: () => void) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const look = fs.lstatSync
      let looks = 0
      const counted = (...given: Parameters<typeof look>) => {
        const found = look(...given)
        if (++looks === number) then()
        return found
      }
      replaceLook(counted as typeof look)
      return { looks: () => looks, restore: () => replaceLook(look) }
    }),
    ({ restore }) => Effect.sync(restore)
  )

it.live("is seen whole or not at all, wherever it comes in between", () =>
  Effect.scoped(
    Effect.gen(function* () {
      const written = yield* folder
      yield* Effect.provide(
        Effect.flatMap(JournalStore, (store) =>
          store.write({ path: pathOf(written, KEY), journal: plainTurn(KEY, "started", []) })
        ),
        stores
      )
      const from = filesOf(placeOf(written, KEY))
      let seen = 0
      for (let number = 1, isOver = false; !isOver; number++) {
        const root = yield* folder
        const place = placeOf(root, KEY)
        const to = filesOf(place)
        mkdirSync(dirname(place.path), { recursive: true })
        const putInPlace = () => {
          for (const name of ["lock", "history", "snapshot"] as const) copyFileSync(from[name], to[name])
        }
        const { snapshot, history } = yield* Effect.scoped(
          Effect.gen(function* () {
            const { looks } = yield* afterLook(number, putInPlace)
            const driver = yield* Driver
            const found = yield* driver.load(place)
            isOver = looks() < number
            return found
          })
        ).pipe(Effect.provide(FileDriver.layer()))
        assert.isFalse(snapshot !== null && history === null, `a journal without its history, after look ${number}`)
        if (snapshot !== null) seen++
      }
      assert.isAbove(seen, 0)
    })
  )
)

it.live("one that is overtaken while it makes the turn's folder decides anew", () =>
  Effect.scoped(
    Effect.gen(function* () {
      const path = pathOf(yield* folder, KEY)
      const [mine, others] = ["mine", "others"].map((mark) => plainTurn(KEY, "in_progress", [], { mark }))
      const disk: Disk = {
        ...nodeDisk,
        makeFolder: (step, made) => {
          nodeDisk.makeFolder(step, made)
          if (made === dirname(path)) assert.strictEqual(writeElsewhere(path, others ?? {}), "ok")
        }
      }
      yield* Effect.gen(function* () {
        const store = yield* JournalStore
        assert.isTrue((yield* store.write({ path, journal: mine ?? null })).appended)
        assert.lengthOf((yield* store.history({ path })).transitions, 2)
      }).pipe(Effect.provide(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer({ disk })))))
    })
  )
)
