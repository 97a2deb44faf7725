import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { Databases } from "../../../src/store/Databases.ts"
import * as FileDriver from "../../../src/store/FileDriver.ts"
import { JournalStore } from "../../../src/store/JournalStore.ts"
import { copySuite, writeAll } from "../CopySuite.ts"
import { folder, pathOf, plainTurn } from "../Turns.ts"
import { root } from "./Roots.ts"

const signed = JournalStore.layer({ signingKey: Redacted.make("a key for this test") })
const both = Layer.provideMerge(signed, Layer.provideMerge(Databases.layer, FileDriver.layer()))

for (const [name, roots] of Object.entries({
  "from folder to database": { source: folder, target: root },
  "from database to folder": { source: root, target: folder },
  "from database to database": { source: root, target: root }
})) {
  layer(both, { excludeTestServices: true })(name, (it) => copySuite(it, roots))
}

layer(both, { excludeTestServices: true })("a turn that is driven", (it) => {
  it.effect("is copied neither from there nor over there, until its lease ends", () =>
    Effect.gen(function* () {
      const [source, target] = [yield* root, yield* root]
      const store = yield* JournalStore
      const leases = yield* Databases
      yield* writeAll(source, [plainTurn("turn-1", "in_progress", [])])
      const outcome = Effect.map(
        store.copy({ runtimeRoot: source, targetRoot: target }),
        ({ turns }) => `${turns[0]?.outcome} ${turns[0]?.problem?.kind ?? ""}`
      )
      for (const at of [source, target]) {
        const path = pathOf(at, "turn-1")
        const { number } = yield* leases.acquire({ path, holder: {}, ttl_ms: 60_000 })
        assert.strictEqual(yield* outcome, "driven turn_busy")
        yield* leases.release({ path, number })
      }
      assert.strictEqual(yield* outcome, "copied ")
    })
  )
})
