/** A client that is cut off in the middle of a transaction, of which the server hears nothing. */
import { assert, layer } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { DEFAULTS } from "../../../src/store/Databases.ts"
import * as Server from "../../../src/store/postgres/Server.ts"
import { root } from "./Roots.ts"

const options = { ...DEFAULTS, maxConnections: 2 }
const ROW =
  "INSERT INTO turn_journal_sessions (goal_id, line, binding) VALUES ('g', 'l', '{}') ON CONFLICT (goal_id, line) DO UPDATE SET binding = '{}'"

layer(Layer.empty, { excludeTestServices: true })("a transaction whose client is silent", (it) => {
  it.effect("keeps nothing locked, is not made, and is told so", () =>
    Effect.gen(function* () {
      const url = yield* root
      const silent = yield* Server.connect(url, { ...options, timeout: 0.5 })
      const other = yield* Server.connect(url, { ...options, timeout: 10 })
      const locking = yield* Effect.forkChild(
        Effect.flip(
          silent.transact("read committed", (query) =>
            Effect.gen(function* () {
              yield* query(ROW, [])
              yield* Effect.sleep(5000)
              yield* query(ROW, [])
              return "made"
            })
          )
        )
      )
      yield* Effect.sleep(200)
      const began = performance.now()
      yield* other.ask(ROW, [])
      assert.isBelow(performance.now() - began, 4500)
      const { _tag } = yield* Fiber.join(locking)
      assert.include(["Unsure", "StoreUnavailable"], _tag)
    })
  )

  it.effect("holds up a change no longer than is said, of which it is not said that nothing was changed", () =>
    Effect.gen(function* () {
      const url = yield* root
      const holder = yield* Server.connect(url, { ...options, timeout: 30 })
      const hurried = yield* Server.connect(url, { ...options, timeout: 1 })
      const [isLocked, isTold] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()]
      const locking = yield* Effect.forkChild(
        holder.transact("read committed", (query) =>
          Effect.gen(function* () {
            yield* query(ROW, [])
            yield* Deferred.succeed(isLocked, undefined)
            yield* Deferred.await(isTold)
            return "made"
          })
        )
      )
      yield* Deferred.await(isLocked)
      const changed = yield* Effect.flip(hurried.change(ROW, []))
      yield* Deferred.succeed(isTold, undefined)
      const asked = yield* Effect.flip(hurried.ask("SELECT pg_sleep(10)", []))
      assert.deepStrictEqual([changed.kind, asked.kind], ["store_outcome_unknown", "store_unavailable"])
      yield* Fiber.join(locking)
    })
  )
})
