/** A journal whose file is removed while it is open: what is written to it is lost. */
import { rmSync } from "node:fs"
import { dirname } from "node:path"
import { setTimeout } from "node:timers/promises"
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { DurableRun } from "../../src/run/DurableRun.ts"
import { make } from "../../src/run/RunJournal.ts"
import { newPath, withJournal } from "./Journals.ts"

it.effect("nothing is written to a file that has lost its name", () =>
  withJournal((journal, path) =>
    Effect.gen(function* () {
      const event = { runId: "r", seq: 0, kind: "iteration", payload: { index: 0 } } as const
      const loop = (run: DurableRun) =>
        Effect.gen(function* () {
          yield* run.iteration(0)
          rmSync(dirname(path), { recursive: true })
          yield* Effect.scoped(make({ path }))
          // It is not looked at more often.
          yield* Effect.promise(() => setTimeout(150))
          yield* run.iteration(1)
        })
      const writes = [
        journal.drive("driven", loop),
        journal.append(event),
        journal.openRun("r"),
        journal.drive("r", loop)
      ]
      for (const write of writes) {
        const error = yield* Effect.flip(write as Effect.Effect<unknown, { kind: string; message: string }>)
        assert.strictEqual(error.kind, "store_io_failed")
        assert.include(error.message, "was removed or replaced while it was open")
      }
      assert.deepStrictEqual(yield* journal.events("r"), [])
    })
  )
)

it.effect("a journal that is opened again is written to", () => {
  const path = newPath()
  return Effect.gen(function* () {
    yield* Effect.scoped(make({ path }))
    rmSync(dirname(path), { recursive: true })
    const again = Effect.flatMap(make({ path }), (journal) => Effect.as(journal.openRun("r"), true))
    assert.isTrue(yield* Effect.scoped(again))
  })
})
