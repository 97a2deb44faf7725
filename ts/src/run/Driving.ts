/**
 * A drive and the record it starts from: its steps numbered, halted, ended; and the rule that a replay is the record's.
 * The twin of run_journal/driving.py: run-journal.md, section 4.
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type { InvalidJournal, JournalConflict } from "../contract/Errors.ts"
import { type Attempt, wentOn } from "./Attempts.ts"
import type { Drive } from "./Drive.ts"
import {
  conflict,
  invalid,
  isRunError,
  ReplayDivergence,
  RunEnded,
  type RunJournalError,
  type StepError
} from "./Errors.ts"
import { KIND_TOOL_CALL, KIND_TOOL_RESULT, type Kind } from "./Events.ts"
import { failure } from "./Failure.ts"
import { asStored, type Payload } from "./Payload.ts"
import { decodeRow, type Redact } from "./Runs.ts"

/** The drives in whose steps this effect runs. */
const Within = Context.Reference<ReadonlyArray<Drive>>("turn-journal-core/run/Within", { defaultValue: () => [] })

/** How the service runs a database call. */
export type Attempting = <A>(calls: () => A) => Effect.Effect<A, RunJournalError>

export interface Driving {
  readonly runId: string
  readonly lastSeq: number
  /** Whether the run has ended, and is only replayed. */
  readonly hasEnded: boolean
  /** The first number that can follow from what happens now: what this drive found on record does not. */
  readonly following: () => number
  /** The next step: numbered as it starts, in the order in which steps are run; refused when the drive is halted. */
  readonly step: <A, E, R>(body: (seq: number) => Effect.Effect<A, E, R>) => Effect.Effect<A, E | StepError, R>
  /** What a step is given to run: it takes no steps of this drive, which a replay would not reach. */
  readonly within: <A, E, R>(work: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>
  /** This drive takes no further step. */
  readonly halt: <E extends StepError>(error: E) => E
  /** The writes of the drive: one that is refused ends it. */
  readonly record: Pick<Drive, "insert" | "replace" | "attempt" | "look">
  /** Fails when this drive takes no further step. */
  readonly mustGoOn: Effect.Effect<void, StepError>
  /** Comes back when that has become so: what a step that sleeps is woken by. */
  readonly stopping: Effect.Effect<void>
  readonly at: (seq: number) => ReadonlyMap<Kind, Uint8Array>
  readonly recordedAt: (seq: number, kind: Kind) => Payload | null
  readonly attemptAt: (seq: number) => Attempt | undefined
  /** A payload as the loop gets it, as a replay will give it, and as the record keeps it, which may be less. */
  readonly recordable: (payload: unknown) => { readonly value: Payload; readonly kept: Payload }
  readonly diverge: (seq: number, issued: Payload, fields: ReadonlyArray<string>, what: string) => ReplayDivergence
  /** The record has nothing at this number: no step of another kind, and no failure that is to be raised again. */
  readonly expectNothing: (seq: number, kind: Kind, issued: Payload) => void
  /** Raises the failure of an earlier attempt again when the loop went on after it. */
  readonly repeatFailure: (seq: number) => void
  readonly mustBeOpen: () => void
  readonly finish: (outcome: string) => Effect.Effect<void, StepError>
  /** The loop has been left: no step begins any more, and those in flight come to their end. */
  readonly left: Effect.Effect<void>
  /** Ends the drive as a loop that ended without an error does. */
  readonly succeed: Effect.Effect<void, StepError>
  readonly release: Effect.Effect<void, RunJournalError>
}

export const make = (drive: Drive, redact: Redact | null, attempting: Attempting): Driving => {
  const { runId } = drive
  let nextSeq = 0
  let halted: StepError | null = null
  /** Its loop has been left: steps in flight are waited for, and none is begun any more. */
  let isLeft = false
  let isOver = false
  let inFlight = 0
  const waiting = new Set<() => void>()
  const sleepers = new Set<() => void>()
  const wakeSleepers = (): void => {
    for (const wake of sleepers) wake()
  }

  const halt = <E extends StepError>(error: E): E => {
    halted = error
    wakeSleepers()
    return error
  }

  let over: JournalConflict | null = null
  const refusal = (): StepError | null => {
    if (halted !== null) return halted
    if (!isLeft && !isOver) return null
    over ??= conflict(`This drive of run ${JSON.stringify(runId)} has ended.`, { run_id: runId })
    return over
  }

  /** What a step has ended with: nothing follows it when the record does not say how, for no replay would do that again. */
  const cutShort = (cause: Cause.Cause<unknown>): void => {
    const error = Cause.hasInterrupts(cause) ? null : Cause.squash(cause)
    // A sleep that its loop has left is on record.
    if (halted !== null || (isRunError(error) && (error === over || mayGoOn(error)))) return
    halt(
      isRunError(error)
        ? (error as StepError)
        : conflict(
            `A step of run ${JSON.stringify(runId)} was ${error === null ? "interrupted" : "cut short"}, so that its outcome is not on record: this drive takes no further step. Drive the run again. A time-out belongs into the effect that the step is given: there it is a failure like any other, which is recorded.`,
            { run_id: runId }
          )
    )
  }

  const mayGoOn = (error: StepError | { readonly _tag: string }): boolean =>
    error._tag === "RecordedToolError" || error._tag === "InvalidJournal" || error._tag === "RunEnded"

  const misplaced = (): InvalidJournal =>
    invalid(
      `A step of run ${JSON.stringify(runId)}, or its end, was begun inside of another step's effect, which a replay does not run: take it in the loop, or give the effect a run of its own, drive(key, …) with CurrentIdempotencyKey.`
    )

  const step = <A, E, R>(body: (seq: number) => Effect.Effect<A, E, R>): Effect.Effect<A, E | StepError, R> =>
    Effect.flatMap(Within, (within): Effect.Effect<A, E | StepError, R> => {
      const refused = refusal()
      if (refused !== null) return Effect.fail(refused)
      if (within.includes(drive)) return Effect.fail(misplaced())
      inFlight++
      return Effect.onExit(body(nextSeq++), (exit) =>
        Effect.sync(() => {
          if (Exit.isFailure(exit)) cutShort(exit.cause)
          if (--inFlight === 0) for (const wake of waiting) wake()
        })
      )
    })

  const stopping = Effect.callback<void>((resume) => {
    const wake = (): void => resume(Effect.void)
    if (refusal() !== null) return wake()
    sleepers.add(wake)
    return Effect.sync(() => sleepers.delete(wake))
  })

  /** No step begins from here on, and those in flight, which the loop has forked, come to their end; one that sleeps is woken. */
  const left: Effect.Effect<void> = Effect.andThen(
    Effect.yieldNow, // a fiber that was forked a moment ago has not begun its step yet
    Effect.callback<void>((resume) => {
      isLeft = true
      wakeSleepers()
      const wake = (): void => resume(Effect.void)
      if (inFlight === 0) return wake()
      waiting.add(wake)
      return Effect.sync(() => waiting.delete(wake))
    })
  )

  const written = (write: () => void): void => {
    try {
      write()
    } catch (error) {
      if (isRunError(error)) halt(error as StepError)
      throw error
    }
  }

  const at: Driving["at"] = (seq) => drive.record.get(seq) ?? new Map()

  const recordedAt: Driving["recordedAt"] = (seq, kind) => {
    const payload = at(seq).get(kind)
    return payload === undefined ? null : decodeRow(runId, { seq, kind, payload })
  }

  const diverge: Driving["diverge"] = (seq, issued, fields, what) => {
    const events = at(seq)
    const [first] = events.keys()
    const kind =
      first === undefined
        ? (drive.attempts.get(seq)?.kind ?? "nothing")
        : events.has(KIND_TOOL_CALL)
          ? KIND_TOOL_CALL
          : events.has(KIND_TOOL_RESULT)
            ? "value"
            : first
    const recorded = { kind, ...(first === undefined ? {} : recordedAt(seq, first)) }
    const name = "name" in recorded ? ` ${JSON.stringify(recorded["name"])}` : ""
    return halt(
      new ReplayDivergence({
        kind: "replay_divergence",
        message: `Run ${JSON.stringify(runId)} parts from its record at step ${seq} (${kind}${name} there, ${what} here); they differ in ${fields.join(", ")}. Nothing was run and the record is untouched. The loop's code or input has changed: replay with the old ones, or fork the run before that step.`,
        details: { run_id: runId, seq, recorded, issued, fields }
      })
    )
  }

  const repeatFailure: Driving["repeatFailure"] = (seq) => {
    const attempt = drive.attempts.get(seq)
    if (attempt === undefined || !wentOn(attempt, drive.lastSeq)) return
    throw failure(runId, seq, attempt.errorType ?? "Error", attempt.message ?? "")
  }

  const finish: Driving["finish"] = (outcome) =>
    Effect.flatMap(Within, (within): Effect.Effect<void, StepError> => {
      if (within.includes(drive)) return Effect.fail(misplaced())
      const ending = Effect.suspend(() => {
        if (halted !== null) return Effect.fail(halted)
        if (isOver) return Effect.void
        return attempting(() => {
          if (nextSeq <= drive.lastSeq) throw diverge(nextSeq, { kind: "end" }, ["kind"], "the loop ended")
          if (!drive.hasEnded) drive.finish(outcome)
          isOver = true
        })
      })
      const reopened = Effect.sync(() => {
        isLeft = isOver
      })
      return Effect.ensuring(Effect.andThen(left, ending), reopened)
    })

  return {
    runId,
    lastSeq: drive.lastSeq,
    hasEnded: drive.hasEnded,
    following: () => Math.max(nextSeq, drive.lastSeq + 1),
    step,
    within: (work) => Effect.flatMap(Within, (within) => Effect.provideService(work, Within, [...within, drive])),
    halt,
    record: {
      insert: (...event) => written(() => drive.insert(...event)),
      replace: (...event) => written(() => drive.replace(...event)),
      attempt: (...attempt) => written(() => drive.attempt(...attempt)),
      look: () => written(drive.look)
    },
    mustGoOn: Effect.suspend(() => {
      const refused = refusal()
      return refused === null ? Effect.void : Effect.fail(refused)
    }),
    stopping,
    at,
    recordedAt,
    attemptAt: (seq) => drive.attempts.get(seq),
    recordable: (payload) => {
      const value = asStored(payload)
      return { value, kept: redact === null ? value : asStored(redact(asStored(payload))) }
    },
    diverge,
    expectNothing: (seq, kind, issued) => {
      if (at(seq).size > 0 || (drive.attempts.get(seq)?.kind ?? kind) !== kind) {
        throw diverge(seq, { kind, ...issued }, ["kind"], `a step of kind ${kind}`)
      }
      repeatFailure(seq)
    },
    repeatFailure,
    mustBeOpen: () => {
      if (!drive.hasEnded) return
      throw new RunEnded({
        kind: "run_ended",
        message: `Run ${JSON.stringify(runId)} has ended: its record is replayed, and nothing new is run. Fork it to go on from one of its steps.`,
        details: { run_id: runId }
      })
    },
    finish,
    left,
    succeed: Effect.andThen(
      left,
      Effect.suspend(() => (halted === null ? finish("done") : Effect.void))
    ),
    release: Effect.suspend(() => {
      if (isOver) return Effect.void
      isOver = true
      wakeSleepers()
      return attempting(() => drive.release(halted?._tag === "TurnSuspended"))
    })
  }
}
