/**
 * What an agent's loop is written against: recorded steps return what is on record, and real work starts where the record
 * ends. The twin of `AsyncDurableRun` in Python, over the same file: run-journal.md, section 4.
 */
import * as Context from "effect/Context"
import type * as DateTime from "effect/DateTime"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type { StepError } from "./Errors.ts"
import type { Payload, Recorded, Value } from "./Payload.ts"
import type { SleepOptions } from "./Sleeps.ts"

/** A readback's answer: the effect happened with this result, did not happen, or nobody can tell. */
export type Readback =
  | { readonly _tag: "Committed"; readonly result: unknown }
  | { readonly _tag: "Absent" }
  | { readonly _tag: "Unknown" }
export const Committed = (result: unknown): Readback => ({ _tag: "Committed", result })
export const Absent: Readback = { _tag: "Absent" }
export const Unknown: Readback = { _tag: "Unknown" }

/** The key of the tool call that is running here, stable across every attempt at it; null outside of one. */
export const CurrentIdempotencyKey = Context.Reference<string | null>("turn-journal-core/run/CurrentIdempotencyKey", {
  defaultValue: () => null
})

export interface ToolOptions<E, R> {
  /** Whether it may be run again when nobody knows whether it ran. */
  readonly restartSafe?: boolean
  /** Asked with the key when nobody knows. */
  readonly readback?: (key: string) => Effect.Effect<Readback, E, R>
  /** The model provider's id of the call; kept, never compared. */
  readonly label?: string
}

export interface ModelOptions {
  /** What decides the answer (prompt, model, tools, settings); each field's digest is recorded. */
  readonly request?: unknown
  /** What to do with another request than the recorded one: refuse it, or ask again and keep both answers. */
  readonly onChange?: "diverge" | "ask_again"
}

/**
 * One drive of one run. A step's value is what a replay will give: JSON, with integers beyond ±(2^53−1) as `bigint`. A
 * tool or model that fails, fails as `RecordedToolError`, live and on replay. After `UncertainEffect`, `ReplayDivergence`
 * or `TurnSuspended` the drive takes no further step; nor after a step that was interrupted or whose record could not be
 * written, so that its outcome is not on record. A run that is driven inside of a step and stops in one of the first three
 * ways stops the outer one, too.
 */
export interface DurableRun {
  readonly runId: string
  /** A model's decision: asked once, then replayed. */
  readonly model: <A, E, R>(
    ask: Effect.Effect<A, E, R>,
    options?: ModelOptions
  ) => Effect.Effect<Recorded<A>, StepError, R>
  /** A tool's call: recorded, run, its result recorded; then replayed, and never run again. */
  readonly tool: <A, E, R, E2 = never, R2 = never>(
    name: string,
    args: unknown,
    run: Effect.Effect<A, E, R>,
    options?: ToolOptions<E2, R2>
  ) => Effect.Effect<Recorded<A>, StepError | E2, R | R2>
  /** A question to a person, bound to the arguments that it shows: fails with `TurnSuspended` until there is a decision. */
  readonly approval: (question: string, binds?: unknown) => Effect.Effect<Value, StepError>
  /** Notes that a round of the loop begins; its number is given back. */
  readonly iteration: (index: number) => Effect.Effect<number, StepError>
  /** Notes a check and how it came out; what is on record is given back. */
  readonly verification: (
    name: string,
    success: boolean,
    details?: Readonly<Record<string, unknown>>
  ) => Effect.Effect<Payload, StepError>
  /** Seconds since the epoch, read once. */
  readonly now: Effect.Effect<number, StepError>
  /** A random number from 0 to 1, drawn once. */
  readonly random: Effect.Effect<number, StepError>
  /** A random UUID, made once. */
  readonly uuid: Effect.Effect<string, StepError>
  /**
   * Waits that long, once: a later drive waits only for what is left, and one that comes after it not at all. The first
   * one records until when, by the wall clock: where that is set forward the sleep ends earlier, where it is set back a
   * drive waits no longer than the sleep was to last. On a replay it must last as long as it did.
   */
  readonly sleep: (duration: Duration.Input, options?: SleepOptions) => Effect.Effect<void, StepError>
  /**
   * Waits until the wall clock has come to a moment (a number is seconds since the epoch); at once when it has passed. On a
   * replay it must be the same moment: take it from `now` or from the run's task, not from the clock.
   */
  readonly sleepUntil: (
    moment: number | Date | DateTime.DateTime,
    options?: SleepOptions
  ) => Effect.Effect<void, StepError>
  /** Closes the run with an outcome and ends the drive, once its steps in flight have ended. */
  readonly finish: (outcome: string) => Effect.Effect<void, StepError>
}
