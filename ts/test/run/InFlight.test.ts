/** Steps in flight when their loop ends: waited for, recorded, and no dead end. run-journal.md, section 4. */
import { assert, describe, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import type { DurableRun } from "../../src/run/DurableRun.ts"
import { type Journal, Killed, withJournal } from "./Journals.ts"

const results = (journal: Journal, runId: string) =>
  Effect.map(journal.events(runId), (events) =>
    events.filter(({ kind }) => kind === "tool_result").map(({ payload }) => payload["result"])
  )

const slow = (run: DurableRun) => run.tool("work", {}, Effect.as(Effect.sleep(20), "worked"))

describe("steps in flight when the loop ends", () => {
  it.live("are recorded before the run is closed, finished or left with a failure", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const ends: Readonly<Record<string, (run: DurableRun) => Effect.Effect<void, { readonly _tag: string }>>> = {
          closed: () => Effect.void,
          finished: (run) => run.finish("succeeded"),
          failed: () => Effect.fail(new Killed()),
          died: () => Effect.die("bug")
        }
        for (const [runId, end] of Object.entries(ends)) {
          const fibers: Array<Fiber.Fiber<unknown, unknown>> = []
          yield* Effect.exit(
            journal.drive(runId, (run) =>
              Effect.gen(function* () {
                fibers.push(yield* Effect.forkChild(slow(run)))
                yield* end(run)
              })
            )
          )
          assert.deepStrictEqual(yield* results(journal, runId), ["worked"], runId)
          for (const fiber of fibers) assert.strictEqual(yield* Fiber.join(fiber), "worked")
        }
        assert.deepStrictEqual(yield* journal.interruptedRuns(), ["failed", "died"])
        assert.strictEqual((yield* journal.runMeta("finished"))?.outcome, "succeeded")
      })
    )
  )

  it.live("are the last ones: a fork that steps for ever does not keep the loop", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        for (const end of [Effect.void, Effect.fail(new Killed())]) {
          const forks: Array<Fiber.Fiber<unknown, { readonly _tag: string; readonly message: string }>> = []
          yield* Effect.exit(
            journal.drive("r", (run) =>
              Effect.gen(function* () {
                forks.push(yield* Effect.forkDetach(Effect.forever(slow(run))))
                yield* Effect.sleep(5)
                yield* end
              })
            )
          ).pipe(Effect.timeout("20 seconds"))
          for (const fork of forks) {
            const refused = yield* Effect.flip(Fiber.join(fork))
            assert.include(refused.message, "has ended")
          }
          assert.deepStrictEqual(yield* results(journal, "r"), ["worked"])
          yield* journal.deleteRun("r")
        }
      })
    )
  )

  it.live("are none once the drive was interrupted: a fork that goes on asks nothing", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const gate = yield* Deferred.make<void>()
        const started = yield* Deferred.make<void>()
        const asked: Array<string> = []
        const forks: Array<Fiber.Fiber<unknown, { readonly _tag: string; readonly message: string }>> = []
        const driving = yield* Effect.forkChild(
          journal.drive("r", (run) =>
            Effect.gen(function* () {
              const ask = run.model(Effect.sync(() => asked.push("model")))
              forks.push(yield* Effect.forkDetach(Effect.andThen(Deferred.await(gate), ask)))
              yield* Deferred.succeed(started, undefined)
              yield* Effect.never
            })
          )
        )
        yield* Deferred.await(started)
        yield* Fiber.interrupt(driving)
        yield* Deferred.succeed(gate, undefined)
        for (const fork of forks) assert.include((yield* Effect.flip(Fiber.join(fork))).message, "has ended")
        assert.deepStrictEqual([asked, forks.length], [[], 1])
      })
    )
  )

  it.live("are not waited for by who interrupts", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        // One is interrupted in its loop, one while it waits at its end.
        for (const loop of [Effect.never, Effect.void]) {
          const begun = yield* Deferred.make<void>()
          const hangs = Effect.andThen(Deferred.succeed(begun, undefined), Effect.never)
          const driving = yield* Effect.forkChild(
            journal.drive("r", (run) => Effect.andThen(Effect.forkDetach(run.tool("t", {}, hangs)), loop))
          )
          yield* Deferred.await(begun)
          yield* Effect.timeout(Fiber.interrupt(driving), "20 seconds")
          assert.deepStrictEqual(
            (yield* journal.uncertain("r")).map(({ tool }) => tool),
            ["t"]
          )
          assert.deepStrictEqual(yield* journal.interruptedRuns(), ["r"])
          yield* journal.deleteRun("r")
        }
      })
    )
  )

  it.live("that are interrupted keep the run from being closed", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const error = yield* Effect.flip(
          journal.drive("r", (run) =>
            Effect.gen(function* () {
              const fiber = yield* Effect.forkChild(slow(run))
              yield* Effect.sleep(5)
              yield* Effect.forkChild(Fiber.interrupt(fiber))
              yield* run.finish("succeeded")
            })
          )
        )
        assert.include(error.message, "was interrupted")
        assert.strictEqual((yield* journal.runMeta("r"))?.status, "running")
      })
    )
  )

  it.live("a finish that is given up leaves the drive as it was", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const loop = (run: DurableRun) =>
          Effect.gen(function* () {
            const gate = yield* Deferred.make<void>()
            const fiber = yield* Effect.forkChild(run.tool("work", {}, Deferred.await(gate)))
            yield* Effect.sleep(1)
            assert.isTrue(Exit.isFailure(yield* Effect.exit(Effect.timeout(run.finish("failed"), 1))))
            yield* Deferred.succeed(gate, undefined)
            yield* Fiber.join(fiber)
            return yield* run.iteration(1)
          })
        assert.strictEqual(yield* journal.drive("r", loop), 1)
        assert.strictEqual((yield* journal.runMeta("r"))?.outcome, "done")
      })
    )
  )
})
