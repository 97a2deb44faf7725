import { mkdirSync, utimesSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/testing/TestClock"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { suite } from "./StoreSuite.ts"
import { fresh, pathOf, wholeTurn } from "./Turns.ts"

suite("files", FileDriver.layer(), (path, text) =>
  Effect.sync(() => {
    mkdirSync(dirname(path), { recursive: true })
    writeFileSync(path, text)
  })
)

it.effect("prunes what was written in this very millisecond, which a file dates finer than the clock", () =>
  Effect.gen(function* () {
    const { store, root } = yield* fresh
    const path = pathOf(root, "turn-1")
    const now = 1_700_000_000_000
    yield* TestClock.setTime(now)
    for (const journal of wholeTurn({ turnKey: "turn-1", todoId: "todo-1", instanceId: "i-1" })) {
      yield* store.write({ path, journal })
    }
    const prune = store.prune({ runtimeRoot: root, olderThan: 0 })
    utimesSync(path, (now + 1) / 1000, (now + 1) / 1000)
    assert.lengthOf((yield* prune).turns, 0)
    utimesSync(path, now / 1000, (now + 0.9) / 1000)
    assert.lengthOf((yield* prune).turns, 1)
  }).pipe(Effect.provide(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer()))))
)
