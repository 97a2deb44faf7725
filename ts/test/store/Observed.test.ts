/** What is seen of a store's calls from outside. */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Tracer from "effect/Tracer"
import { JournalStore } from "../../src/store/JournalStore.ts"
import * as MemoryDriver from "../../src/store/MemoryDriver.ts"
import * as Observed from "../../src/store/Observed.ts"

const store = Layer.provide(JournalStore.layer({ signingKey: null }), MemoryDriver.layer)
const path = "/root/goals/g/turns/t.json"
const journal = {
  schema_version: "loopx_turn_journal_v0",
  goal_id: "g",
  turn_key: "t",
  status: "started",
  plan: { phases: ["a"] },
  completed_phases: []
}

const use = Effect.gen(function* () {
  const store = yield* JournalStore
  yield* Effect.flip(store.read({ path }))
  yield* store.write({ path, journal })
})

it.effect("each call is a span under the caller's and is timed by its outcome", () =>
  Effect.gen(function* () {
    const spans: Array<Tracer.NativeSpan> = []
    const tracer = Tracer.make({
      span: (options) => {
        const span = new Tracer.NativeSpan(options)
        spans.push(span)
        return span
      }
    })
    yield* use.pipe(
      Effect.withSpan("program"),
      Effect.withTracer(tracer),
      Effect.provide(Layer.provide(Observed.layer, store))
    )
    const seen = spans.map(({ name, parent }) => [name, Option.getOrNull(parent)?.spanId === spans[0]?.spanId])
    assert.deepStrictEqual(seen, [
      ["program", false],
      ["turn_journal.read", true],
      ["turn_journal.write", true]
    ])
    const counts = yield* Effect.forEach(["ok", "journal_not_found"], (outcome) =>
      Effect.map(
        Metric.value(
          Metric.withAttributes(Observed.callDuration, {
            method: outcome === "ok" ? "turn_journal.write" : "turn_journal.read",
            outcome
          })
        ),
        ({ count }) => count
      )
    )
    assert.deepStrictEqual(counts, [1, 1])
  })
)

it.effect("a store that is not observed makes no spans", () =>
  Effect.gen(function* () {
    const names: Array<string> = []
    const tracer = Tracer.make({
      span: (options) => {
        names.push(options.name)
        return new Tracer.NativeSpan(options)
      }
    })
    yield* use.pipe(Effect.withTracer(tracer), Effect.provide(store))
    assert.deepStrictEqual(names, [])
  })
)
