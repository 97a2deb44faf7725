/** Writes that wait for a connection. */
import { Socket } from "node:net"
import { assert, layer } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { vi } from "vitest"
import { DEFAULTS } from "../../../src/store/Databases.ts"
import * as Server from "../../../src/store/postgres/Server.ts"
import { serverUrl } from "./Roots.ts"

layer(Layer.empty, { excludeTestServices: true })("a write that waits for a connection", (it) => {
  it.effect("is sent before anything is done with the answer that it waited for", () =>
    Effect.gen(function* () {
      const server = yield* Server.connect(serverUrl().href, { ...DEFAULTS, maxConnections: 1 })
      const tell = server.tell("SELECT 1", [])
      yield* tell
      const write = yield* Effect.acquireRelease(
        Effect.sync(() => vi.spyOn(Socket.prototype, "write")),
        (spy) => Effect.sync(() => spy.mockRestore())
      )
      const sent = Effect.map(tell, () => write.mock.calls.length)
      assert.deepStrictEqual(yield* Effect.all([sent, sent, sent], { concurrency: "unbounded" }), [2, 3, 3])
    })
  )
})
