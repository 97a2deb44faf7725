/** How long a database may take. */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { DEFAULTS } from "../../../src/store/Databases.ts"
import * as Server from "../../../src/store/postgres/Server.ts"
import { serverUrl } from "./Roots.ts"

const TIMEOUT = 2
const within = (seconds: number) => `SELECT pg_sleep(${seconds})`

describe("patience", () => {
  it.live("is each statement's own: a transaction may have many", () =>
    Effect.gen(function* () {
      const server = yield* Server.connect(serverUrl().href, { ...DEFAULTS, timeout: TIMEOUT })
      const whole = yield* server.transact("read committed", (query) =>
        Effect.as(
          Effect.forEach([1, 2, 3, 4], () => query(within(0.3 * TIMEOUT), [])),
          "done"
        )
      )
      assert.strictEqual(whole, "done")
      const late = yield* Effect.flip(
        server.transact("read committed", (query) => Effect.as(query(within(20 * TIMEOUT), []), "done"))
      )
      assert.strictEqual(late._tag, "Unsure")
      assert.strictEqual(yield* server.transact("read committed", (query) => Effect.as(query(within(0), []), 1)), 1)
    }).pipe(Effect.scoped)
  )
})
