/**
 * A stored run replayed against a loop, from a copy in which nothing new can be run. The copy has ended, whatever the run
 * has: an ended run is replayed and nothing else. The twin of `check_replay` in Python: run-journal.md, section 4.
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import type { DurableRun } from "./DurableRun.ts"
import { RecordedToolError, ReplayDivergence, RunEnded, type RunJournalError, unknownRun } from "./Errors.ts"
import { RUNNING } from "./Events.ts"
import { MEMORY, make, type RunJournal, type RunJournalOptions } from "./RunJournal.ts"
import type { Redact } from "./Runs.ts"

/** Whether a loop is still the one that a run was recorded with. */
export interface ReplayCheck {
  readonly runId: string
  /** How many steps are on record. */
  readonly steps: number
  /** How many of them the loop took as they stand there. */
  readonly replayed: number
  /** Where it parts from the record, or what it failed with; null when it replays. */
  readonly problem: unknown
}

/**
 * Replays a run against a loop, and says where the loop parts from it: no model is asked and no tool is run, and the first
 * step that is not on record ends the replay. `redact` is that of the journal, where it has one.
 */
export const checkReplay = <A, E, R>(
  journal: RunJournal["Service"],
  runId: string,
  loop: (run: DurableRun) => Effect.Effect<A, E, R>,
  { redact }: Pick<RunJournalOptions, "redact"> = {}
): Effect.Effect<ReplayCheck, RunJournalError, R> =>
  Effect.scoped(
    Effect.gen(function* () {
      const meta = yield* journal.runMeta(runId)
      if (meta === null) return yield* Effect.fail(unknownRun(runId))
      const lines = yield* journal.exportRun(runId)
      // What is on record went through it before; what the loop issues goes through it now.
      let isRecorded = false
      const kept: Redact = (payload) => (isRecorded && redact !== undefined ? redact(payload) : payload)
      const copy = yield* make({ path: MEMORY, ...(redact === undefined ? {} : { redact: kept }) })
      yield* copy.importRun(lines)
      isRecorded = true
      if (meta.status === RUNNING) yield* copy.closeRun(runId)
      const seen: Seen = { issued: 0, divergence: null }
      const exit = yield* Effect.exit(copy.drive(runId, (run) => loop(watched(run, seen))))
      if (Exit.isFailure(exit) && Cause.hasInterrupts(exit.cause)) return yield* Effect.interrupt
      const raised = Exit.isFailure(exit) ? Cause.squash(exit.cause) : null
      const steps = stepsOf(lines)
      const problem = problemOf(runId, meta.status, steps, seen, raised)
      const parted = problem instanceof ReplayDivergence ? Number(problem.details["seq"]) : seen.issued
      return { runId, steps, replayed: Math.min(parted, steps), problem }
    })
  )

interface Seen {
  issued: number
  /** Also one that the loop goes on after. */
  divergence: ReplayDivergence | null
}

/** The same run, whose steps are counted as they start. */
const watched = (run: DurableRun, seen: Seen): DurableRun => {
  const step = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.suspend(() => {
      seen.issued++
      return Effect.tapError(effect, (error) =>
        Effect.sync(() => {
          if (error instanceof ReplayDivergence) seen.divergence ??= error
        })
      )
    })
  return {
    ...run,
    model: (ask, options) => step(run.model(ask, options)),
    tool: (name, args, tool, options) => step(run.tool(name, args, tool, options)),
    approval: (question, binds) => step(run.approval(question, binds)),
    iteration: (index) => step(run.iteration(index)),
    verification: (name, success, details) => step(run.verification(name, success, details)),
    now: step(run.now),
    random: step(run.random),
    uuid: step(run.uuid),
    sleep: (duration, options) => step(run.sleep(duration, options)),
    sleepUntil: (moment, options) => step(run.sleepUntil(moment, options))
  }
}

/** One more than the highest number of an export's events and attempts. */
const stepsOf = (lines: ReadonlyArray<string>): number => {
  let steps = 0
  for (const line of lines) {
    const { event, attempt } = JSON.parse(line) as Record<"event" | "attempt", { seq: number } | undefined>
    steps = Math.max(steps, ((event ?? attempt)?.seq ?? -1) + 1)
  }
  return steps
}

/** A run that came to its end without an error. */
const WENT_WELL: ReadonlySet<string> = new Set(["done", "succeeded"])

const problemOf = (
  runId: string,
  status: string,
  steps: number,
  { issued, divergence }: Seen,
  raised: unknown
): unknown => {
  if (divergence !== null) return divergence
  if (raised instanceof ReplayDivergence) return raised
  const failed = isEndOfRecord(raised, runId) ? null : raised
  if (issued < steps) return failed ?? parts(runId, issued, `the loop ended after ${issued} of ${steps} steps`)
  if (issued > steps && status !== RUNNING) {
    return parts(runId, steps, `the run ended after ${steps} steps, and the loop takes another one`)
  }
  return failed instanceof RecordedToolError && !WENT_WELL.has(status) ? null : failed
}

const isEndOfRecord = (error: unknown, runId: string): boolean =>
  error instanceof RunEnded && error.details["run_id"] === runId

const parts = (runId: string, seq: number, what: string): ReplayDivergence =>
  new ReplayDivergence({
    kind: "replay_divergence",
    message: `Run ${JSON.stringify(runId)} parts from its record at its end: ${what}. Nothing was run and the record is untouched.`,
    details: { run_id: runId, seq, recorded: {}, issued: {}, fields: ["kind"] }
  })
