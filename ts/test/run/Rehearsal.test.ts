/** A stored run is replayed against a loop, and where the loop has changed is said; nothing is run meanwhile. */
import { readFileSync } from "node:fs"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { DurableRun } from "../../src/run/DurableRun.ts"
import { RecordedToolError, ReplayDivergence } from "../../src/run/Errors.ts"
import { checkReplay } from "../../src/run/Rehearsal.ts"
import { withJournal } from "./Journals.ts"

const RUN = "run-1"

/** A loop with a step for each name; `ask` is a question, `break` a tool that fails and is gone on after. */
const loopOf =
  (done: Array<string>, ...steps: ReadonlyArray<string>) =>
  (run: DurableRun) =>
    Effect.gen(function* () {
      yield* run.model(
        Effect.sync(() => done.push("model")),
        { request: { prompt: "hello" } }
      )
      for (const name of steps) {
        const tool = Effect.suspend(() => {
          done.push(name)
          return name === "break" ? Effect.fail(new Error("the line is cut")) : Effect.succeed(`${name} done`)
        })
        if (name === "ask") yield* run.approval("May I?")
        else if (name === "break") yield* Effect.ignore(run.tool(name, {}, tool))
        else yield* run.tool(name, { to: "you" }, tool)
      }
    })

describe("checkReplay", () => {
  for (const steps of [[], ["mail"], ["mail", "break", "pay"]]) {
    it.live(`a loop replays the run that it made, and runs nothing: ${steps.join(", ") || "no tools"}`, () =>
      withJournal((journal, path) =>
        Effect.gen(function* () {
          const done: Array<string> = []
          yield* journal.drive(RUN, loopOf(done, ...steps))
          const before = [readFileSync(path).toString("hex"), ...done, ...(yield* journal.exportRun(RUN))]
          const check = yield* checkReplay(journal, RUN, loopOf(done, ...steps))
          const length = steps.length + 1
          assert.deepStrictEqual(check, { runId: RUN, steps: length, replayed: length, problem: null })
          const after = [readFileSync(path).toString("hex"), ...done, ...(yield* journal.exportRun(RUN))]
          assert.deepStrictEqual(after, before)
        })
      )
    )
  }

  for (const [what, now, seq] of [
    ["renamed", ["mail", "post"], 2],
    ["one more before", ["look", "mail", "pay"], 1],
    ["another order", ["pay", "mail"], 1],
    ["one less", ["mail"], 2],
    ["one more at the end", ["mail", "pay", "mail"], 3]
  ] as const) {
    it.live(`a loop that has changed parts where it did: ${what}`, () =>
      withJournal((journal) =>
        Effect.gen(function* () {
          const done: Array<string> = []
          yield* journal.drive(RUN, loopOf(done, "mail", "pay"))
          const loops = [
            loopOf(done, ...now),
            (run: DurableRun) => Effect.ignore(loopOf(done, ...now)(run)) // one that swallows what it meets
          ]
          for (const loop of loops) {
            const { steps, replayed, problem } = yield* checkReplay(journal, RUN, loop)
            assert.instanceOf(problem, ReplayDivergence)
            assert.deepStrictEqual([steps, replayed, (problem as ReplayDivergence).details["seq"]], [3, seq, seq])
          }
          assert.deepStrictEqual(done, ["model", "mail", "pay"])
        })
      )
    )
  }

  it.live("a run that did not end replays as far as it got, and can be driven on", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const done: Array<string> = []
        yield* Effect.flip(journal.drive(RUN, loopOf(done, "mail", "ask", "pay")))
        const replays = (...steps: ReadonlyArray<string>) =>
          Effect.map(checkReplay(journal, RUN, loopOf(done, ...steps)), ({ problem }) => problem === null)
        assert.isTrue(yield* replays("mail", "ask", "pay"))
        assert.isTrue(yield* replays("mail", "ask"), "nobody has seen what follows")
        assert.isFalse(yield* replays("post", "ask"))
        assert.isFalse(yield* replays("mail"), "its question is on record")
        assert.deepStrictEqual(done, ["model", "mail"])
        assert.deepStrictEqual(yield* journal.interruptedRuns(), [RUN])
      })
    )
  )

  it.live("what the loop fails with is said, but for the failure that ended the run", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const done: Array<string> = []
        yield* journal.drive(RUN, loopOf(done, "break", "mail"))
        const unguarded = (run: DurableRun) =>
          Effect.andThen(loopOf(done)(run), run.tool("break", {}, Effect.succeed("never run")))
        const parted = yield* checkReplay(journal, RUN, unguarded)
        assert.instanceOf(parted.problem, RecordedToolError)
        assert.strictEqual(parted.replayed, 2)
        const dying = (run: DurableRun) =>
          Effect.andThen(loopOf(done, "break", "mail")(run), Effect.die(new Error("new code")))
        assert.deepInclude((yield* checkReplay(journal, RUN, dying)).problem as Error, { message: "new code" })
        assert.deepInclude(yield* Effect.flip(checkReplay(journal, "run-2", dying)), { _tag: "RunNotFound" })
      })
    )
  )
})
