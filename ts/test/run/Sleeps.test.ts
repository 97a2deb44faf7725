/** Sleeps that outlive their process: run-journal.md, section 4. */
import { assert, describe, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Tracer from "effect/Tracer"
import * as TestClock from "effect/testing/TestClock"
import type { DurableRun } from "../../src/run/DurableRun.ts"
import type { StepError } from "../../src/run/Errors.ts"
import type { Payload } from "../../src/run/Payload.ts"
import { checkReplay } from "../../src/run/Rehearsal.ts"
import { make } from "../../src/run/RunJournal.ts"
import { LOOK, type SleepOptions } from "../../src/run/Sleeps.ts"
import { interrupt, type Journal, newPath, withJournal } from "./Journals.ts"

const HOUR = 3600
const NOON = Date.UTC(2030, 4, 1, 12) / 1000
const atNoon = TestClock.setTime(NOON * 1000)

const anHour = (options?: SleepOptions) => (run: DurableRun) =>
  Effect.andThen(run.sleep("1 hour", options), run.tool("wake", {}, Effect.succeed("awake")))

/** How long a drive takes, in seconds; the clock goes on as long as somebody waits for it. */
const timed = <A, E>(drive: Effect.Effect<A, E>) =>
  Effect.gen(function* () {
    const begun = yield* Clock.currentTimeMillis
    const fiber = yield* Effect.forkChild(drive)
    let passed = 0
    const settled = Effect.repeat(Effect.yieldNow, { times: 20 })
    yield* settled
    while (fiber.pollUnsafe() === undefined && passed < 3 * HOUR) {
      yield* TestClock.adjust("1 second")
      yield* settled
      passed = ((yield* Clock.currentTimeMillis) - begun) / 1000
    }
    const exit = yield* Fiber.await(fiber)
    return [passed, Exit.isSuccess(exit) ? exit.value : exit] as const
  })

const begin = <E>(journal: Journal, loop: (run: DurableRun) => Effect.Effect<unknown, E>, seconds: number) =>
  Effect.gen(function* () {
    const fiber = yield* Effect.forkChild(journal.drive("r", loop))
    yield* TestClock.adjust(Duration.seconds(seconds))
    return fiber
  })

describe("sleeps", () => {
  it.effect("one is recorded as a value before it is waited for, and a later drive waits for what is left", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        yield* atNoon
        const fiber = yield* begin(journal, anHour(), 15)
        yield* Fiber.interrupt(fiber)
        const until = NOON + HOUR
        const [event] = yield* journal.events("r")
        assert.deepStrictEqual(event?.payload, { name: "sleep", seconds: HOUR, result: until })
        assert.deepStrictEqual(yield* journal.interruptedRuns(), ["r"])
        assert.deepStrictEqual(yield* journal.uncertain("r"), [])
        assert.deepStrictEqual(yield* journal.pendingSleeps(), [{ runId: "r", seq: 0, until }])
        assert.deepStrictEqual(yield* journal.pendingSleeps("s"), [])
        yield* TestClock.setTime((until - 7) * 1000)
        assert.deepStrictEqual(yield* timed(journal.drive("r", anHour())), [7, "awake"])
        assert.deepStrictEqual(yield* journal.pendingSleeps(), [])
        assert.deepStrictEqual(yield* timed(journal.drive("r", anHour())), [0, "awake"])
      })
    )
  )

  it.effect("a moment is a number of seconds, a Date or a DateTime, and may have passed", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        yield* atNoon
        const until = NOON + 100
        const moments = [until, new Date(until * 1000), DateTime.makeUnsafe(until * 1000)]
        const loop = (moment: (typeof moments)[number]) => (run: DurableRun) =>
          Effect.andThen(run.sleepUntil(moment), run.iteration(0))
        for (const [at, moment] of moments.entries()) {
          yield* TestClock.setTime(NOON * 1000)
          assert.deepStrictEqual(yield* timed(journal.drive(`${at}`, loop(moment))), [100, 0])
          const [event] = yield* journal.events(`${at}`)
          assert.deepStrictEqual(event?.payload, { name: "sleep_until", until, result: until })
          for (const same of moments) assert.strictEqual(yield* journal.drive(`${at}`, loop(same)), 0)
        }
        assert.deepStrictEqual(yield* timed(journal.drive("past", loop(NOON))), [0, 0])
      })
    )
  )

  it.effect("another sleep is another step, and what is none is refused", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        yield* interrupt(journal, "r", (run) => Effect.andThen(run.sleep("0 seconds"), run.iteration(0)))
        const others: ReadonlyArray<[(run: DurableRun) => Effect.Effect<unknown, StepError>, ReadonlyArray<string>]> = [
          [(run) => run.sleep("1 second"), ["seconds"]],
          [(run) => run.sleepUntil(0), ["name", "until"]],
          [(run) => run.now, ["name"]],
          [(run) => run.tool("sleep", { seconds: 0 }, Effect.succeed(1)), ["kind"]]
        ]
        for (const [step, fields] of others) {
          const error = yield* Effect.flip(journal.drive("r", step))
          assert.strictEqual(error._tag, "ReplayDivergence")
          assert.deepStrictEqual(error.details["fields"], fields)
        }
        const none = [
          (run: DurableRun) => run.sleep(Duration.infinity),
          (run: DurableRun) => run.sleep(-1),
          (run: DurableRun) => run.sleep(Number.NaN),
          (run: DurableRun) => run.sleepUntil(Number.NaN),
          (run: DurableRun) => run.sleepUntil(new Date(Number.NaN)),
          (run: DurableRun) => run.sleepUntil(1e12)
        ]
        for (const step of none) {
          assert.strictEqual((yield* Effect.flip(journal.drive("s", step)))._tag, "InvalidJournal")
        }
        assert.deepStrictEqual(yield* journal.events("s"), [])
      })
    )
  )

  it.effect("a clock that is set back makes no sleep longer, and one that is set forward ends it", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const steady = yield* Clock.Clock
        for (const [by, expected] of [
          [-100 * HOUR, HOUR],
          [100 * HOUR, LOOK]
        ] as const) {
          let set = 0
          const wall = (): number => NOON * 1000 + steady.currentTimeMillisUnsafe() + set * 1000
          const clock = Object.assign(Object.create(steady) as Clock.Clock, {
            currentTimeMillisUnsafe: wall,
            currentTimeMillis: Effect.sync(wall)
          })
          const drive = Effect.provideService(journal.drive(`${by}`, anHour()), Clock.Clock, clock)
          const fiber = yield* Effect.forkChild(drive)
          yield* TestClock.adjust("1 second")
          set = by
          yield* TestClock.adjust(Duration.seconds(expected - 2))
          assert.isUndefined(fiber.pollUnsafe(), `${by}`)
          yield* TestClock.adjust("1 second")
          assert.strictEqual(yield* Fiber.join(fiber), "awake")
        }
      })
    )
  )

  it.effect("a run sleeps in no process", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        yield* atNoon
        const drive = journal.drive("r", anHour({ suspend: true }), { maxResumes: 0 })
        for (let number = 0; number < 3; number++) {
          const error = yield* Effect.flip(drive)
          assert.deepInclude(error, { _tag: "TurnSuspended", kind: "turn_suspended" })
          assert.deepStrictEqual(error.details, { run_id: "r", seq: 0, due_at: NOON + HOUR })
          assert.include(error.message, "until 2030-05-01 13:00:00 UTC")
        }
        yield* TestClock.adjust("1 hour")
        assert.deepStrictEqual(yield* timed(drive), [0, "awake"])
      })
    )
  )

  it.effect("a value that redact would change is refused, and one that is not on record is no value", () =>
    Effect.gen(function* () {
      const values: ReadonlyArray<readonly [string, (run: DurableRun) => Effect.Effect<unknown, StepError>, Payload]> =
        [
          ["now", (run) => run.now, {}],
          ["random", (run) => run.random, {}],
          ["uuid", (run) => run.uuid, {}],
          ["sleep", (run) => run.sleep("1 hour"), { seconds: HOUR }],
          ["sleep_until", (run) => run.sleepUntil(NOON), { until: NOON }]
        ]
      const without = ({ result: _, ...rest }: Payload): Payload => rest
      const hidden = (payload: Payload): Payload => ("result" in payload ? { ...payload, result: "***" } : payload)
      for (const redact of [without, hidden]) {
        const path = newPath()
        const journal = yield* make({ path, redact })
        const other = yield* make({ path })
        for (const [name, step, given] of values) {
          const refused = yield* Effect.flip(journal.drive(name, step))
          assert.strictEqual(refused._tag, "InvalidJournal")
          assert.include(refused.message, "leave the `result` of now, random, uuid and sleeps")
          assert.deepStrictEqual(yield* journal.events(name), [])
          // What was recorded before that was refused.
          yield* other.append({ runId: name, seq: 0, kind: "tool_result", payload: { name, ...given, result: null } })
          const error = yield* Effect.flip(journal.drive(name, step))
          assert.deepInclude(error, { _tag: "JournalCorrupt", kind: "journal_corrupt" })
          assert.include(error.message, `no value at step 0 (${name})`)
        }
      }
    }).pipe(Effect.scoped)
  )

  it.effect("a redact may add to a payload, and take keys out that no replay gives", () =>
    Effect.gen(function* () {
      const loop = (run: DurableRun) =>
        Effect.gen(function* () {
          yield* Effect.ignore(run.tool("fail", {}, Effect.fail(new Error("no"))))
          yield* run.tool("t", { n: 1 }, Effect.succeed(1))
          yield* run.verification("v", true)
          yield* run.sleep("0 seconds")
          return yield* run.iteration(3)
        })
      for (const taken of ["", "message", "error_type", "name", "args", "index", "success", "seconds"]) {
        const redact = ({ [taken]: _, ...rest }: Payload): Payload => ({ ...rest, by: "us" })
        const journal = yield* make({ path: newPath(), redact })
        for (let number = 0; number < 2; number++) assert.strictEqual(yield* journal.drive("r", loop), 3, taken)
        for (const event of yield* journal.events("r")) assert.strictEqual(event.payload["by"], "us")
      }
    }).pipe(Effect.scoped)
  )

  it.effect("a sleep is listed whatever redact puts beside it", () =>
    Effect.gen(function* () {
      yield* atNoon
      const journal = yield* make({ path: newPath(), redact: (payload) => ({ by: "us", ...payload }) })
      yield* Effect.flip(journal.drive("r", anHour({ suspend: true })))
      // What is called so and is none, as another program may have noted it.
      for (const [seq, result] of [null, "soon", true, 1e300].entries()) {
        yield* journal.append({ runId: "r", seq: seq + 1, kind: "tool_result", payload: { name: "sleep", result } })
      }
      assert.deepStrictEqual(yield* journal.pendingSleeps(), [{ runId: "r", seq: 0, until: NOON + HOUR }])
    }).pipe(Effect.scoped)
  )

  it.effect("a rehearsal waits for nothing", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        yield* Effect.flip(journal.drive("r", anHour({ suspend: true })))
        assert.deepInclude(yield* checkReplay(journal, "r", anHour()), { steps: 1, replayed: 1, problem: null })
      })
    )
  )

  it.effect("another driver ends the wait", () =>
    withJournal((journal, path) =>
      Effect.gen(function* () {
        const other = yield* make({ path })
        const fiber = yield* begin(journal, anHour(), 1)
        const taken = yield* Effect.forkChild(other.drive("r", anHour(), { takeOver: true }))
        yield* TestClock.adjust(Duration.seconds(LOOK))
        const error = yield* Effect.flip(Fiber.join(fiber))
        assert.strictEqual(error._tag, "TurnBusy")
        assert.isUndefined(taken.pollUnsafe())
      }).pipe(Effect.scoped)
    )
  )

  it.effect("a time-out around a sleep ends the drive", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const loop = (run: DurableRun) =>
          Effect.catchTag(Effect.timeout(run.sleep("1 hour"), "1 second"), "TimeoutError", () => run.iteration(1))
        const error = yield* Effect.flip(Fiber.join(yield* begin(journal, loop, 2)))
        assert.include(error.message, "was interrupted")
        assert.lengthOf(yield* journal.events("r"), 1)
      })
    )
  )

  it.effect("a step that stops the drive wakes the one that sleeps", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const woken: Array<unknown> = []
        const loop = (run: DurableRun) =>
          Effect.gen(function* () {
            const sleeping = yield* Effect.forkChild(Effect.flip(run.sleep("1 hour")))
            yield* Effect.yieldNow
            yield* Effect.flip(run.approval("go on?"))
            woken.push((yield* Fiber.join(sleeping))._tag)
          })
        assert.deepStrictEqual(yield* timed(journal.drive("r", loop)), [0, undefined])
        assert.deepStrictEqual(woken, ["TurnSuspended"])
        assert.deepStrictEqual(yield* journal.interruptedRuns(), ["r"])
      })
    )
  )

  it.effect("a loop that is left waits for no sleep", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const woken: Array<unknown> = []
        const loop = (run: DurableRun) =>
          Effect.gen(function* () {
            yield* Effect.forkChild(
              Effect.tapError(run.sleep("1 hour"), (error) => Effect.sync(() => woken.push(error)))
            )
            yield* Effect.yieldNow
            return "left"
          })
        assert.deepStrictEqual(yield* timed(journal.drive("r", loop)), [0, "left"])
        assert.include((woken[0] as Error).message, "has ended")
        assert.strictEqual((yield* journal.runMeta("r"))?.status, "done")
      })
    )
  )

  it.effect("a sleep is a span while it is waited for", () =>
    withJournal((journal) =>
      Effect.gen(function* () {
        const seen: Array<unknown> = []
        const tracer = Tracer.make({
          span: (options) => {
            const span = new Tracer.NativeSpan(options)
            seen.push(span)
            return span
          }
        })
        const drive = Effect.withTracer(
          journal.drive("r", (run) => run.sleep("1 hour")),
          tracer
        )
        yield* timed(drive)
        yield* drive
        assert.deepStrictEqual(
          (seen as ReadonlyArray<Tracer.NativeSpan>).map(({ name, attributes }) => [
            name,
            Object.fromEntries(attributes)
          ]),
          [["turn_journal sleep", { "turn_journal.run_id": "r", "turn_journal.seq": 0 }]]
        )
      })
    )
  )
})
