/** Steps that end without an outcome on record: what a loop did after one, no replay would do again. run-journal.md, 4. */
import { DatabaseSync } from "node:sqlite"
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { CurrentIdempotencyKey, type DurableRun } from "../../src/run/DurableRun.ts"
import { interrupt, Killed, withJournal } from "./Journals.ts"

describe("steps that are cut short", () => {
  const fallback = (run: DurableRun) => run.model(Effect.succeed("the other model"))

  it.live("a time-out around a step ends the drive", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        for (const [runId, step] of [
          ["model", (run: DurableRun, answer: Effect.Effect<string>) => run.model(answer)],
          ["tool", (run: DurableRun, answer: Effect.Effect<string>) => run.tool("t", {}, answer, { restartSafe: true })]
        ] as const) {
          const loop = (answer: Effect.Effect<string>, limit: number) => (run: DurableRun) =>
            Effect.catchTag(Effect.timeout(step(run, answer), limit), "TimeoutError", () => fallback(run))
          const late = Effect.as(Effect.sleep("1 minute"), "late")
          const error = yield* Effect.flip(journal.drive(runId, loop(late, 20)))
          assert.deepInclude(error, { _tag: "JournalConflict", kind: "journal_transition_conflict" })
          assert.include(error.message, "was interrupted")
          assert.strictEqual(yield* journal.drive(runId, loop(Effect.succeed("in time"), 20_000)), "in time")
        }
      })
    )
  )

  it.live("a time-out in the effect of a step is a failure that is recorded", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const asked: Array<string> = []
        const late = Effect.suspend(() => {
          asked.push("late")
          return Effect.timeout(Effect.sleep("1 minute"), 20)
        })
        const loop = (run: DurableRun) =>
          Effect.catchTag(run.tool("t", {}, late), "RecordedToolError", () => fallback(run))
        yield* interrupt(journal, "r", loop)
        assert.strictEqual(yield* journal.drive("r", loop), "the other model")
        assert.deepStrictEqual(asked, ["late"])
      })
    )
  )

  it.live("a loop that swallows a defect or a failed readback does not go on", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const defect = (run: DurableRun) =>
          Effect.catchDefect(run.tool("pay", {}, Effect.die("bug")), () => run.iteration(1))
        assert.include((yield* Effect.flip(journal.drive("r", defect))).message, "was cut short")
        const readback = () => Effect.fail(new Killed())
        const lost = (run: DurableRun) =>
          Effect.catchTag(run.tool("pay", {}, Effect.succeed(1), { readback }), "Killed", () => run.iteration(1))
        assert.include((yield* Effect.flip(journal.drive("r", lost))).message, "was cut short")
        assert.lengthOf(yield* journal.events("r"), 1)
        assert.deepStrictEqual(yield* journal.interruptedRuns(), ["r"])
      })
    )
  )

  it.live("a loop that swallows a refused record does not go on", () =>
    withJournal((journal, path) =>
      Effect.gen(function* () {
        const other = new DatabaseSync(path)
        const loop = (run: DurableRun) =>
          Effect.gen(function* () {
            yield* run.iteration(0)
            other.exec(
              "CREATE TRIGGER full BEFORE INSERT ON journal WHEN NEW.kind = 'tool_result' BEGIN SELECT RAISE(ABORT, 'full'); END"
            )
            yield* Effect.ignore(run.tool("pay", {}, Effect.succeed("paid")))
            other.exec("DROP TRIGGER full")
            return yield* run.iteration(1)
          })
        yield* Effect.flip(journal.drive("r", loop))
        other.close()
        assert.deepStrictEqual(
          (yield* journal.events("r")).map(({ kind }) => kind),
          ["iteration", "tool_call"]
        )
        assert.deepStrictEqual(yield* journal.interruptedRuns(), ["r"])
      })
    )
  )

  it.live("a loop may go on after what cannot be recorded, and replays", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const ran: Array<string> = []
        const deep = JSON.parse("[".repeat(130) + "]".repeat(130))
        const unrecordable = (name: string) =>
          Effect.sync(() => {
            ran.push(name)
            return deep
          })
        const loop = (run: DurableRun) =>
          Effect.gen(function* () {
            const errors = [
              yield* Effect.flip(run.model(unrecordable("model"))),
              yield* Effect.flip(run.tool("t", {}, unrecordable("tool")))
            ]
            yield* run.iteration(0)
            return errors.map(({ details }) => details["error_type"])
          })
        yield* interrupt(journal, "r", loop)
        assert.deepStrictEqual(yield* journal.drive("r", loop), ["InvalidJournal", "InvalidJournal"])
        assert.deepStrictEqual(ran, ["model", "tool"])
      })
    )
  )

  it.live("what could not be recorded is told of a step in doubt", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const deep = JSON.parse("[".repeat(130) + "]".repeat(130))
        const loop = (run: DurableRun) => run.tool("t", {}, Effect.succeed(deep))
        yield* Effect.flip(journal.drive("r", loop))
        const error = yield* Effect.flip(journal.drive("r", loop))
        assert.strictEqual(error._tag, "UncertainEffect")
        assert.include(error.message, "has run and its result cannot be recorded")
      })
    )
  )

  it.live("a question of an inner run suspends the outer one", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const inner = Effect.flatMap(CurrentIdempotencyKey, (key) =>
          journal.drive(key ?? "", (run) => run.approval("May I?"))
        )
        const loop = (run: DurableRun) =>
          Effect.catch(run.tool("research", {}, inner, { restartSafe: true }), () => fallback(run))
        for (let drive = 0; drive < 3; drive++) {
          const error = yield* Effect.flip(journal.drive("r", loop, { maxResumes: 0 }))
          assert.strictEqual(error._tag, "TurnSuspended")
        }
        assert.deepStrictEqual(
          (yield* journal.pendingApprovals()).map(({ runId }) => runId),
          ["r:0:research"]
        )
        yield* journal.approve("r:0:research", 0, "yes", "me")
        assert.strictEqual(yield* journal.drive("r", loop, { maxResumes: 0 }), "yes")
        assert.deepStrictEqual(yield* journal.interruptedRuns(), [])
      })
    )
  )

  it.live("a step inside of a step's effect is refused", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const loop = (run: DurableRun) =>
          Effect.gen(function* () {
            const errors = [
              yield* Effect.flip(run.tool("t", {}, run.now)),
              yield* Effect.flip(run.model(run.tool("t", {}, Effect.succeed(1)))),
              yield* Effect.flip(run.tool("submit_answer", {}, run.finish("succeeded")))
            ]
            assert.match(errors[0]?.message ?? "", /inside of another step's effect/)
            yield* run.iteration(0)
            return errors.map(({ details }) => details["error_type"])
          })
        yield* interrupt(journal, "r", loop)
        const refused = ["InvalidJournal", "InvalidJournal", "InvalidJournal"]
        assert.deepStrictEqual(yield* journal.drive("r", loop), refused)
      })
    )
  )
})
