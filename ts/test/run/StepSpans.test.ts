/** What a tracer sees of a run: the steps that are taken, under the caller's span, and none that are replayed. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Tracer from "effect/Tracer"
import type { DurableRun } from "../../src/run/DurableRun.ts"
import { make } from "../../src/run/RunJournal.ts"
import { Killed, newPath } from "./Journals.ts"

it.live("a step is a span when it is taken, and none when it is replayed", () =>
  Effect.scoped(
    Effect.gen(function* () {
      const journal = yield* make({ path: newPath() })
      const loop =
        (last: Effect.Effect<string, Killed>) =>
        (run: DurableRun): Effect.Effect<unknown, unknown> =>
          Effect.gen(function* () {
            yield* run.model(Effect.withSpan(Effect.succeed("secret"), "ask"), { request: "secret" })
            yield* run.tool("look", { secret: 1 }, Effect.withSpan(Effect.succeed("secret"), "looking"))
            yield* run.iteration(0)
            return yield* run.tool("last", {}, last, { restartSafe: true })
          })
      const seen = (last: Effect.Effect<string, Killed>) =>
        Effect.gen(function* () {
          const spans: Array<Tracer.NativeSpan> = []
          const tracer = Tracer.make({
            span: (options) => {
              const span = new Tracer.NativeSpan(options)
              spans.push(span)
              return span
            }
          })
          yield* journal.drive("r", loop(last)).pipe(Effect.exit, Effect.withSpan("agent"), Effect.withTracer(tracer))
          return spans.map((span) => {
            const parent = spans.find(({ spanId }) => spanId === Option.getOrNull(span.parent)?.spanId)
            return [span.name, parent?.name, Object.fromEntries(span.attributes)]
          })
        })
      const place = (seq: number) => ({ "turn_journal.run_id": "r", "turn_journal.seq": seq })
      const last = ["turn_journal tool", "agent", { ...place(3), "turn_journal.tool": "last" }]
      assert.deepStrictEqual(yield* seen(Effect.fail(new Killed())), [
        ["agent", undefined, {}],
        ["turn_journal model", "agent", place(0)],
        ["ask", "turn_journal model", {}],
        ["turn_journal tool", "agent", { ...place(1), "turn_journal.tool": "look" }],
        ["looking", "turn_journal tool", {}],
        last
      ])
      assert.deepStrictEqual(yield* seen(Effect.succeed("done")), [["agent", undefined, {}], last])
      assert.deepStrictEqual(yield* seen(Effect.succeed("never")), [["agent", undefined, {}]])
    })
  )
)
