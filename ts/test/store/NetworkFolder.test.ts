/** A folder on a file system where locks do not hold between hosts. */
import { existsSync, mkdirSync, writeFileSync } from "node:fs"
import { dirname } from "node:path"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { vi } from "vitest"
import * as FileDriver from "../../src/store/FileDriver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import { filesOf } from "../../src/store/Place.ts"
import { kindOf, placeOf, plainTurn, quickFolder } from "./Turns.ts"

vi.mock("../../src/platform/FileSystemKind.ts", () => ({ networkFileSystem: () => "NFS" }))

it.effect("is refused with what to do instead, and no journal is written or read there", () =>
  Effect.gen(function* () {
    const store = yield* JournalStore
    const place = placeOf(yield* quickFolder, "turn-1")
    const journal = plainTurn("turn-1", "in_progress", [])
    const error = yield* Effect.flip(store.write({ path: place.path, journal }))
    assert.strictEqual(error.kind, "store_unsupported")
    assert.match(error.message, /NFS.*local disk.*postgresql:/)
    assert.isFalse(existsSync(place.path))

    mkdirSync(dirname(place.path), { recursive: true })
    writeFileSync(place.path, JSON.stringify(journal))
    writeFileSync(filesOf(place).lock, "")
    assert.strictEqual(yield* kindOf(store.read({ path: place.path })), "store_unsupported")
  }).pipe(Effect.provide(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(FileDriver.layer()))))
)
