/** What the disk does where a test's own file system does not show it. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as TestClock from "effect/testing/TestClock"
import { renamePatiently } from "../../src/store/Disk.ts"

const failing = (code: string, times: number) => {
  const state = { tried: 0 }
  const attempt = Effect.suspend(() => {
    state.tried++
    return state.tried > times ? Effect.void : Effect.fail(Object.assign(new Error(code), { code }))
  })
  return { state, attempt }
}

it.effect("a rename that a virus scanner blocks is tried again until it is let through", () =>
  Effect.gen(function* () {
    for (const code of ["EPERM", "EACCES", "EBUSY"]) {
      const { state, attempt } = failing(code, 5)
      const renaming = yield* Effect.forkChild(renamePatiently(attempt))
      yield* TestClock.adjust("1 second")
      yield* Fiber.join(renaming)
      assert.strictEqual(state.tried, 6)
    }
  })
)

it.effect("it is given up after two and a half seconds, and any other failure at once", () =>
  Effect.gen(function* () {
    const blocked = failing("EPERM", Number.POSITIVE_INFINITY)
    const renaming = yield* Effect.forkChild(renamePatiently(blocked.attempt))
    yield* TestClock.adjust("2400 millis")
    assert.isUndefined(renaming.pollUnsafe())
    yield* TestClock.adjust("400 millis")
    assert.strictEqual(((yield* Effect.flip(Fiber.join(renaming))) as NodeJS.ErrnoException).code, "EPERM")
    const full = failing("ENOSPC", 1)
    yield* Effect.flip(renamePatiently(full.attempt))
    assert.strictEqual(full.state.tried, 1)
  })
)
