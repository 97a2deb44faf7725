/**
 * What a call did, span by span, for the tracer of whoever asked: a request with `"trace": true` is answered with
 * `"spans"` beside its result. The core exports nothing itself, and a call that is not traced costs nothing more.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Tracer from "effect/Tracer"

export interface RecordedSpan {
  readonly name: string
  /** The index of the span that this one is part of; null: of none that is told. */
  readonly parent: number | null
  /** Nanoseconds since the epoch, as text: they are beyond what JSON's numbers carry exactly. */
  readonly start: string
  readonly end: string
  readonly ok: boolean
}

export interface Recording<A, E, R> {
  readonly effect: Effect.Effect<A, E, R>
  /** The spans that have ended, in the order in which they began. */
  readonly spans: () => ReadonlyArray<RecordedSpan>
}

/** Wraps one call. */
export const record = <A, E, R>(name: string, effect: Effect.Effect<A, E, R>): Recording<A, E, R> => {
  const begun: Array<Tracer.NativeSpan> = []
  const tracer = Tracer.make({
    span: (options) => {
      const span = new Tracer.NativeSpan(options)
      begun.push(span)
      return span
    }
  })
  return {
    effect: effect.pipe(Effect.withSpan(name), Effect.withTracer(tracer)),
    spans: () => {
      const ended = begun.flatMap((span) => (span.status._tag === "Ended" ? [{ span, status: span.status }] : []))
      return ended.map(({ span, status }) => {
        const parent = Option.match(span.parent, {
          onNone: () => -1,
          onSome: ({ spanId }) => ended.findIndex((other) => other.span.spanId === spanId)
        })
        return {
          name: span.name,
          parent: parent < 0 ? null : parent,
          start: String(status.startTime),
          end: String(status.endTime),
          ok: status.exit._tag === "Success"
        }
      })
    }
  }
}
