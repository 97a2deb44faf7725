/**
 * A store whose calls are spans and are timed, for programs that have a tracer and read metrics: with Effect's own
 * OTLP exporter or with `@effect/opentelemetry`. Without this layer a store does neither.
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import type { CoreError } from "../contract/Errors.ts"
import { JournalStore } from "./JournalStore.ts"

/** The seconds that a call of the store took, by method and outcome (`ok`, or the error's kind). */
export const callDuration = Metric.histogram("turn_journal.call.duration", {
  description: "How long a call of the store took, by method and outcome.",
  boundaries: [0.000_1, 0.000_25, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]
})

type Call = (request: never) => Effect.Effect<unknown, CoreError>

const observeCall =
  (name: string, call: Call): Call =>
  (request) =>
    Effect.clockWith((clock) => {
      const begun = clock.currentTimeNanosUnsafe()
      const measured = (outcome: string) =>
        Metric.update(
          Metric.withAttributes(callDuration, { method: name, outcome }),
          Number(clock.currentTimeNanosUnsafe() - begun) / 1e9
        )
      return call(request).pipe(
        Effect.tap(() => measured("ok")),
        Effect.tapError((error) => measured(error.kind)),
        Effect.withSpan(name)
      )
    })

/** The same store, observed. */
export const observe = (store: JournalStore["Service"]): JournalStore["Service"] =>
  Object.fromEntries(
    Object.entries(store).map(([name, call]) => [name, observeCall(`turn_journal.${name}`, call as Call)])
  ) as unknown as JournalStore["Service"]

/** Puts an observed store in the place of the one below: `Layer.provide(Observed.layer, NodeRuntime.layer)`. */
export const layer: Layer.Layer<JournalStore, never, JournalStore> = Layer.effect(
  JournalStore,
  Effect.map(JournalStore, observe)
)
