/** A drive and its claim: what it writes while it holds the run, and that it changes nothing once it has lost it. */
import { DatabaseSync } from "node:sqlite"
import { assert, describe, it } from "@effect/vitest"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { CurrentIdempotencyKey, type DurableRun } from "../../src/run/DurableRun.ts"
import { make, type RunJournal } from "../../src/run/RunJournal.ts"
import { Killed, newPath } from "./Journals.ts"

interface Stage {
  readonly journal: RunJournal["Service"]
  /** Another handle on the same file. */
  readonly other: RunJournal["Service"]
  readonly rows: (sql: string) => ReadonlyArray<Record<string, unknown>>
  /** Another driver takes the run over. */
  readonly takeOver: Effect.Effect<void>
}

const staged = <A, E>(use: (stage: Stage) => Effect.Effect<A, E>) =>
  Effect.scoped(
    Effect.gen(function* () {
      const path = newPath()
      const journal = yield* make({ path })
      const other = yield* make({ path })
      const connection = yield* Effect.acquireRelease(
        Effect.sync(() => new DatabaseSync(path)),
        (opened) => Effect.sync(() => opened.close())
      )
      const takeOver = Effect.sync(() => connection.exec("UPDATE run_drives SET fence = fence + 1, owner = 'thief'"))
      return yield* use({ journal, other, rows: (sql) => connection.prepare(sql).all(), takeOver })
    })
  )

const OWNER = "SELECT owner FROM run_drives"

describe("a drive that lost its run", () => {
  it.live("takes no step, ends nothing, and leaves its successor alone", () =>
    staged(({ journal, rows, takeOver }) =>
      Effect.gen(function* () {
        const ran: Array<string> = []
        const steps: ReadonlyArray<(run: DurableRun) => Effect.Effect<unknown, { readonly _tag: string }>> = [
          (run) =>
            run.tool(
              "t",
              {},
              Effect.sync(() => ran.push("twice"))
            ),
          (run) => run.finish("failed"),
          () => Effect.fail(new Killed())
        ]
        for (const step of steps) {
          const error = yield* Effect.flip(journal.drive("r", (run) => Effect.andThen(takeOver, step(run))))
          assert.strictEqual(error._tag, step === steps[2] ? "Killed" : "TurnBusy")
          assert.deepStrictEqual({ ...rows(OWNER)[0] }, { owner: "thief" })
          assert.strictEqual((yield* journal.runMeta("r"))?.status, "running")
        }
        assert.deepStrictEqual([ran, yield* journal.events("r")], [[], []])
      })
    )
  )

  it.live("leaves the run to the one that has taken it over, in the same handle and in another", () =>
    staged(({ journal, other }) =>
      Effect.gen(function* () {
        for (const [runId, elsewhere] of [
          ["same", journal],
          ["another", other]
        ] as const) {
          const taken = yield* Deferred.make<void>()
          const ended = yield* Deferred.make<void>()
          const first = Effect.exit(
            journal.drive(runId, () =>
              Effect.andThen(Deferred.succeed(taken, undefined), Effect.andThen(Effect.sleep(20), Effect.void))
            )
          )
          const second = elsewhere.drive(
            runId,
            (run) =>
              Effect.gen(function* () {
                yield* Deferred.await(ended)
                assert.notInclude(yield* journal.interruptedRuns(), runId)
                assert.strictEqual((yield* Effect.flip(other.drive(runId, () => Effect.void)))._tag, "TurnBusy")
                return yield* run.tool("t", {}, Effect.succeed("mine"))
              }),
            { takeOver: true }
          )
          const driving = yield* Effect.forkChild(first)
          yield* Deferred.await(taken)
          const replacing = yield* Effect.forkChild(second)
          const exit = yield* Fiber.join(driving)
          const lost = exit._tag === "Failure" ? exit.cause.reasons[0] : undefined
          assert.strictEqual(lost?._tag === "Fail" ? lost.error._tag : null, "TurnBusy")
          yield* Deferred.succeed(ended, undefined)
          assert.strictEqual(yield* Fiber.join(replacing), "mine")
          assert.strictEqual((yield* journal.runMeta(runId))?.outcome, "done")
        }
      })
    )
  )

  it.live("records neither a result nor a failure of the tool that it was at", () =>
    staged(({ journal, rows, takeOver }) =>
      Effect.gen(function* () {
        for (const [runId, end] of [
          ["works", Effect.succeed("too late")],
          ["fails", Effect.fail(new Killed())]
        ] as const) {
          const error = yield* Effect.flip(
            journal.drive(runId, (run) =>
              run.tool("t", {}, Effect.andThen(takeOver, end as Effect.Effect<string, Killed>))
            )
          )
          assert.strictEqual(error._tag, "TurnBusy")
          assert.deepStrictEqual(
            (yield* journal.uncertain(runId)).map(({ tool, errorType }) => [tool, errorType]),
            [["t", null]]
          )
        }
        assert.deepStrictEqual(rows("SELECT * FROM step_attempts"), [])
      })
    )
  )

  it.live("replaces no answer", () =>
    staged(({ journal, takeOver }) =>
      Effect.gen(function* () {
        yield* Effect.flip(
          journal.drive("r", (run) =>
            Effect.andThen(run.model(Effect.succeed("first"), { request: 1 }), Effect.fail(new Killed()))
          )
        )
        const before = yield* journal.events("r")
        const again = (run: DurableRun) =>
          run.model(Effect.as(takeOver, "second"), { request: 2, onChange: "ask_again" })
        assert.strictEqual((yield* Effect.flip(journal.drive("r", again)))._tag, "TurnBusy")
        assert.deepStrictEqual(yield* journal.events("r"), before)
      })
    )
  )
})

describe("a drive that has its run", () => {
  it.live("keeps the outcome that a step was settled with while its tool ran", () =>
    staged(({ journal }) =>
      Effect.gen(function* () {
        const settling = (runId: string, result: string) => (run: DurableRun) =>
          run.tool("t", {}, Effect.as(Effect.orDie(journal.settle(runId, 0, { result })), "ran"))
        const error = yield* Effect.flip(journal.drive("r", settling("r", "settled")))
        assert.include(error.message, "settled while the tool ran")
        assert.deepStrictEqual((yield* journal.events("r"))[1]?.payload, { result: "settled" })
        assert.strictEqual(yield* journal.drive("s", settling("s", "ran")), "ran")
      })
    )
  )

  it.live("keeps the outcome that the run was closed with by hand", () =>
    staged(({ journal }) =>
      Effect.gen(function* () {
        yield* journal.drive("r", () => journal.closeRun("r", "cancelled"))
        assert.strictEqual((yield* journal.runMeta("r"))?.outcome, "cancelled")
      })
    )
  )

  it.live("frees it for every handle when it ends", () =>
    staged(({ journal, other }) =>
      Effect.gen(function* () {
        yield* journal.drive("r", (run) => run.iteration(0))
        yield* journal.openRun("r")
        assert.deepStrictEqual(yield* other.interruptedRuns(), ["r"])
      })
    )
  )

  it.live("has a number of its own, and counts as waiting only while it waits", () =>
    staged(({ journal, rows }) =>
      Effect.gen(function* () {
        const seen: Array<unknown> = []
        const look = Effect.sync(() => {
          const [row] = rows("SELECT fence, suspended FROM run_drives")
          seen.push([row?.["fence"], row?.["suspended"]])
        })
        const loop = (run: DurableRun) => Effect.andThen(look, run.approval("Go?"))
        yield* Effect.flip(journal.drive("r", loop))
        yield* look
        yield* journal.approve("r", 0, true, "me")
        yield* journal.drive("r", loop)
        assert.deepStrictEqual(seen, [
          [1, 0],
          [1, 1],
          [2, 0]
        ])
      })
    )
  )

  it.live("does not take a failure beside a parallel step for one that the loop went on after", () =>
    staged(({ journal }) =>
      Effect.gen(function* () {
        const done = yield* Deferred.make<void>()
        const loop = (run: DurableRun) =>
          Effect.all(
            [
              Effect.ignore(run.tool("a", {}, Effect.andThen(Deferred.await(done), Effect.fail(new Killed())))),
              Effect.ignore(run.tool("b", {}, Deferred.succeed(done, undefined)))
            ],
            { concurrency: "unbounded" }
          )
        yield* Effect.flip(journal.drive("r", (run) => Effect.andThen(loop(run), Effect.fail(new Killed()))))
        assert.deepStrictEqual(
          (yield* journal.uncertain("r")).map(({ tool }) => tool),
          ["a"]
        )
      })
    )
  )

  it.live("tries steps again that were forked together and all failed at once", () =>
    staged(({ journal }) =>
      Effect.gen(function* () {
        let isUp = false
        const call = Effect.suspend(() => (isUp ? Effect.succeed("up") : Effect.fail(new Killed())))
        const step = (run: DurableRun) => run.tool("call", {}, call, { restartSafe: true })
        const loops = {
          forks: (run: DurableRun) =>
            Effect.flatMap(
              Effect.forEach([0, 1, 2], () => Effect.forkChild(step(run))),
              (fibers) => Effect.forEach(fibers, Fiber.join)
            ),
          exits: (run: DurableRun) =>
            Effect.flatMap(
              Effect.forEach([0, 1, 2], () => Effect.exit(step(run)), { concurrency: "unbounded" }),
              Effect.all
            )
        }
        for (const [runId, loop] of Object.entries(loops)) {
          isUp = false
          yield* Effect.flip(journal.drive(runId, loop))
          assert.lengthOf(yield* journal.uncertain(runId), 3, runId)
          isUp = true
          assert.deepStrictEqual(yield* journal.drive(runId, loop), ["up", "up", "up"])
        }
      })
    )
  )

  it.live("takes nothing that was recorded before a failure for what follows from it", () =>
    staged(({ journal }) =>
      Effect.gen(function* () {
        let isUp = false
        yield* journal.openRun("r")
        for (const [seq, name] of ["a", "b", "c"].entries()) {
          const payload = { name, args: {}, idempotency_key: `r:${seq}:${name}` }
          yield* journal.append({ runId: "r", seq, kind: "tool_call", payload })
        }
        yield* journal.append({ runId: "r", seq: 2, kind: "tool_result", payload: { result: "c" } })
        const late = Effect.andThen(
          Effect.sleep(20),
          Effect.suspend(() => (isUp ? Effect.succeed("up") : Effect.fail(new Killed())))
        )
        const loop = (run: DurableRun) =>
          Effect.flatMap(
            Effect.forEach(
              ["a", "b", "c"],
              (name) => Effect.exit(run.tool(name, {}, late, { restartSafe: name === "a" })),
              { concurrency: "unbounded" }
            ),
            Effect.all
          )
        // The second is in doubt, which stops the drive before the third.
        assert.strictEqual((yield* Effect.flip(journal.drive("r", loop)))._tag, "RecordedToolError")
        yield* journal.settle("r", 1, { result: "b" })
        isUp = true
        assert.deepStrictEqual(yield* journal.drive("r", loop), ["up", "b", "c"])
      })
    )
  )

  it.live("tries an effect of a fork again under the key that the outside knows", () =>
    staged(({ journal }) =>
      Effect.gen(function* () {
        const keys: Array<string | null> = []
        const pay = Effect.map(CurrentIdempotencyKey, (key) => keys.push(key))
        const loop = (run: DurableRun) =>
          run.tool("pay", {}, Effect.andThen(pay, Effect.die("bug")), { restartSafe: true })
        yield* Effect.exit(journal.drive("r", loop))
        yield* journal.fork("r", "s", 0)
        yield* Effect.exit(journal.drive("s", loop))
        assert.deepStrictEqual(keys, ["r:0:pay", "r:0:pay"])
      })
    )
  )

  it.live("goes no further over a damaged row that the loop swallows", () =>
    staged(({ journal, rows }) =>
      Effect.gen(function* () {
        yield* Effect.flip(journal.drive("r", (run) => Effect.andThen(run.iteration(0), Effect.fail(new Killed()))))
        rows("UPDATE journal SET payload = '{' RETURNING seq")
        const error = yield* Effect.flip(
          journal.drive("r", (run) => Effect.andThen(Effect.ignore(run.iteration(0)), run.iteration(1)))
        )
        assert.strictEqual(error._tag, "JournalCorrupt")
        assert.lengthOf(rows("SELECT seq FROM journal"), 1)
      })
    )
  )
})
