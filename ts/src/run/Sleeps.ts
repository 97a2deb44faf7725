/**
 * Sleeps that outlive their process: a step's record says until when it waits, and a later drive waits for the rest. That
 * moment is one of the wall clock, the only clock that another process and another host read, too. The twin of
 * run_journal/sleeps.py: run-journal.md, section 4.
 */
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type { Database } from "./Database.ts"
import type { Attempting, Driving } from "./Driving.ts"
import { invalid, type StepError, TurnSuspended } from "./Errors.ts"
import { KIND_TOOL_RESULT } from "./Events.ts"
import type { Payload } from "./Payload.ts"
import { decodeRow } from "./Runs.ts"

/** A sleep whose time has not come. */
export interface PendingSleep {
  readonly runId: string
  readonly seq: number
  /** When it goes on, in seconds since the epoch. */
  readonly until: number
}

export interface SleepOptions {
  /** Do not wait here: the drive ends with `TurnSuspended`, and the run is driven again when it is time. */
  readonly suspend?: boolean
}

/** Seconds after which one that sleeps looks whether the run is still its own. */
export const LOOK = 5
/** The end of the year 9999, which a date can say. */
const LAST = 253_402_300_799

/** What a sleep records, beside until when, and how long it may last at most. */
export interface Sleep {
  readonly name: "sleep" | "sleep_until"
  /** What a replay must ask for, too. */
  readonly given: Payload
  readonly until: (now: number) => number
  readonly longest: number
}

export const lasting = (duration: Duration.Input): Sleep => {
  // A `Duration` of NaN is none at all.
  const seconds = Number.isNaN(duration) ? Number.NaN : Duration.toMillis(duration) / 1000
  if (!(seconds >= 0 && seconds <= LAST)) throw invalid("A sleep is a duration that has an end and is not negative.")
  return { name: "sleep", given: { seconds }, until: (now) => Math.min(now + seconds, LAST), longest: seconds }
}

export const until = (moment: number | Date | DateTime.DateTime): Sleep => {
  const seconds =
    typeof moment === "number"
      ? moment
      : (DateTime.isDateTime(moment) ? DateTime.toEpochMillis(moment) : moment.getTime()) / 1000
  if (!Number.isFinite(seconds) || seconds > LAST) {
    throw invalid(
      "A moment is a number of seconds since the epoch, a Date or a DateTime, and before the end of the year 9999."
    )
  }
  return { name: "sleep_until", given: { until: seconds }, until: () => seconds, longest: Number.POSITIVE_INFINITY }
}

/** Seconds by the wall clock. */
export const now: Effect.Effect<number> = Effect.map(Clock.currentTimeMillis, (millis) => millis / 1000)

const steady = Clock.clockWith((clock) => Effect.map(clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e9))

/** Waits for what is left of a sleep that is on record; null when nothing is. */
export const waiting = (
  driving: Driving,
  attempting: Attempting,
  seq: number,
  due: number,
  longest: number,
  { suspend = false }: SleepOptions
): Effect.Effect<Effect.Effect<void, StepError> | null> =>
  Effect.gen(function* () {
    if (driving.hasEnded || due <= (yield* now)) return null // a run that has ended is only replayed
    const begun = yield* steady
    // A clock that is set back makes no sleep longer than it was to be.
    const left = Effect.zipWith(now, steady, (wall, passed) => Math.min(due - wall, longest - (passed - begun)))
    return Effect.gen(function* () {
      for (let seconds = yield* left; seconds > 0; seconds = yield* left) {
        if (suspend) return yield* Effect.fail(driving.halt(suspended(driving.runId, seq, due)))
        yield* Effect.timeoutOption(driving.stopping, Duration.seconds(Math.min(seconds, LOOK)))
        yield* driving.mustGoOn
        yield* attempting(driving.record.look)
      }
    })
  })

const suspended = (runId: string, seq: number, due: number): TurnSuspended => {
  const moment = new Date(due * 1000).toISOString().slice(0, 19).replace("T", " ")
  return new TurnSuspended({
    kind: "turn_suspended",
    message: `Run ${JSON.stringify(runId)} sleeps at step ${seq} until ${moment} UTC. Drive it again then.`,
    details: { run_id: runId, seq, due_at: due }
  })
}

export const pendingSleeps = (database: Database, runId: string | null, time: number): ReadonlyArray<PendingSleep> =>
  database
    .read(
      // In this order: what tools returned may be large, and is not read.
      "SELECT journal.run_id AS run_id, seq, CAST(payload AS BLOB) AS payload FROM runs " +
        "JOIN journal ON journal.run_id = runs.run_id " +
        "WHERE status = 'running' AND kind = 'tool_result' AND runs.run_id = COALESCE(?, runs.run_id) AND " +
        "CASE WHEN EXISTS (SELECT 1 FROM journal AS call WHERE call.run_id = journal.run_id AND call.seq = journal.seq " +
        `AND call.kind = 'tool_call') THEN 0 ELSE payload LIKE '%"name":"sleep%' END ORDER BY runs.created_at, seq`,
      runId
    )
    .flatMap((row) => {
      const run = row["run_id"] as string
      const seq = row["seq"] as number
      const stored = decodeRow(run, { seq, kind: KIND_TOOL_RESULT, payload: row["payload"] as Uint8Array })
      const due = stored["result"]
      const isSleep = stored["name"] === "sleep" || stored["name"] === "sleep_until"
      return isSleep && typeof due === "number" && due > time && due <= LAST ? [{ runId: run, seq, until: due }] : []
    })
