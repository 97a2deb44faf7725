/** A root that nobody uses any more holds no connection. */
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { JournalStore } from "../../../src/store/JournalStore.ts"
import * as PostgresDriver from "../../../src/store/postgres/PostgresDriver.ts"
import { connection, root } from "./Roots.ts"

const COUNT = "SELECT count(*)::int4 AS open FROM pg_stat_activity WHERE application_name = $1"

layer(JournalStore.layer({ signingKey: null }).pipe(Layer.provide(PostgresDriver.layer({ idle: 1.5 }))), {
  excludeTestServices: true
})("connections", (it) => {
  it.effect("are closed when nobody used them for a while, and opened again", () =>
    Effect.gen(function* () {
      const url = new URL(yield* root)
      const name = url.searchParams.get("options")?.split("=").at(-1) ?? ""
      url.searchParams.set("application_name", name)
      const beside = yield* connection
      const open = Effect.map(beside.query(COUNT, [name]), ({ rows }) => rows[0]?.["open"])
      const store = yield* JournalStore
      const list = store.list({ runtimeRoot: url.href })
      for (let round = 0; round < 2; round++) {
        yield* Effect.all([list, list, list], { concurrency: "unbounded" })
        assert.notStrictEqual(yield* open, 0)
        while ((yield* open) !== 0) yield* Effect.sleep(20)
      }
    })
  )
})
