/**
 * What a run journal may answer instead of a result, beside the core's own errors. Each has the `kind` of its class in
 * Python (errors.py). Messages say what is wrong and what to do; the values are in `details`. run-journal.md.
 */
import * as Schema from "effect/Schema"
import { InvalidJournal, JournalConflict, JournalCorrupt, StoreFailure, TurnBusy } from "../contract/Errors.ts"

const Details = Schema.Record(Schema.String, Schema.Unknown)

/** No run of that id is recorded, or no such step of it. */
export class RunNotFound extends Schema.TaggedError<RunNotFound>()("RunNotFound", {
  kind: Schema.Literals(["run_not_found"]),
  message: Schema.String,
  details: Details
}) {}

/** The run has ended: its record is replayed, and the step that is not on record was not taken. */
export class RunEnded extends Schema.TaggedError<RunEnded>()("RunEnded", {
  kind: Schema.Literals(["run_ended"]),
  message: Schema.String,
  details: Details
}) {}

/** A tool may have run and nothing tells whether it did; somebody has to say what became of it. */
export class UncertainEffect extends Schema.TaggedError<UncertainEffect>()("UncertainEffect", {
  kind: Schema.Literals(["effect_uncertain"]),
  message: Schema.String,
  details: Details
}) {}

/** A replayed step is not the recorded one; nothing was run, and the record is untouched. */
export class ReplayDivergence extends Schema.TaggedError<ReplayDivergence>()("ReplayDivergence", {
  kind: Schema.Literals(["replay_divergence"]),
  message: Schema.String,
  details: Details
}) {}

/** A tool or a model failed: now, or on record. */
export class RecordedToolError extends Schema.TaggedError<RecordedToolError>()("RecordedToolError", {
  kind: Schema.Literals(["tool_failed"]),
  message: Schema.String,
  details: Details
}) {}

/** The run waits in no process: for a decision, drive it again after `approve`, or until `details.due_at`, drive it again then. */
export class TurnSuspended extends Schema.TaggedError<TurnSuspended>()("TurnSuspended", {
  kind: Schema.Literals(["turn_suspended"]),
  message: Schema.String,
  details: Details
}) {}

/** The run was resumed too often; nothing was run. */
export class ResumeBudgetExhausted extends Schema.TaggedError<ResumeBudgetExhausted>()("ResumeBudgetExhausted", {
  kind: Schema.Literals(["resume_budget_exhausted"]),
  message: Schema.String,
  details: Details
}) {}

/** What reading and writing a journal may answer. */
export type RunJournalError =
  | InvalidJournal
  | JournalConflict
  | JournalCorrupt
  | StoreFailure
  | TurnBusy
  | RunNotFound
  | ReplayDivergence

/** What a step of a run may answer. */
export type StepError = RunJournalError | RunEnded | UncertainEffect | RecordedToolError | TurnSuspended

const CLASSES = [
  InvalidJournal,
  JournalConflict,
  JournalCorrupt,
  StoreFailure,
  TurnBusy,
  RunNotFound,
  ReplayDivergence,
  RunEnded,
  UncertainEffect,
  RecordedToolError,
  TurnSuspended,
  ResumeBudgetExhausted
]

export const isRunError = (error: unknown): error is StepError | ResumeBudgetExhausted =>
  CLASSES.some((kind) => error instanceof kind)

export const unknownRun = (runId: string): RunNotFound =>
  new RunNotFound({
    kind: "run_not_found",
    message: `No run ${JSON.stringify(runId)} is recorded here: \`turn-journal runs\` lists those that are, \`openRun\` begins one.`,
    details: { run_id: runId }
  })

export const invalid = (message: string): InvalidJournal =>
  new InvalidJournal({ kind: "invalid_request", message, details: {} })

export const conflict = (message: string, details: JournalConflict["details"]): JournalConflict =>
  new JournalConflict({ kind: "journal_transition_conflict", message, details })

export const checkRunId = (runId: unknown): void => {
  if (typeof runId !== "string" || runId === "" || !runId.isWellFormed()) {
    throw invalid("A run id is a text that is not empty.")
  }
}

type Stopped = ReplayDivergence | TurnSuspended | UncertainEffect

/** Whether a run inside of a step has stopped, and goes on with it: that is no failure of the step. */
export const hasStopped = (error: unknown): error is Stopped =>
  error instanceof ReplayDivergence || error instanceof TurnSuspended || error instanceof UncertainEffect

/** The error of a value that the record would not have as it is, so that a replay would give another one. */
export const changedValue = (runId: string, seq: number, name: string): InvalidJournal =>
  new InvalidJournal({
    kind: "invalid_request",
    message: `\`redact\` changes what step ${seq} of run ${JSON.stringify(runId)} gives (${name}), and a replay would give something else. Nothing was recorded: have it leave the \`result\` of now, random, uuid and sleeps as it is.`,
    details: { run_id: runId, seq }
  })

/** The error of a value that the record does not have. */
export const noValue = (runId: string, seq: number, name: string): JournalCorrupt =>
  new JournalCorrupt({
    kind: "journal_corrupt",
    message: `The record of run ${JSON.stringify(runId)} has no value at step ${seq} (${name}): something else wrote it, or a \`redact\` that takes the \`result\` out. It was left as it is: have \`redact\` leave it, and fork the run before that step to go on.`,
    details: { run_id: runId, seq, kind: "tool_result" }
  })

/** The error of a tool that has run, and whose result is no JSON. */
export const unrecordable = (runId: string, seq: number, error: InvalidJournal): InvalidJournal => {
  const where = `The tool at step ${seq} of run ${JSON.stringify(runId)} has run and its result cannot be recorded`
  return new InvalidJournal({
    kind: "invalid_request",
    message: `${where}: ${error.message} Unless the loop goes on, the step stays uncertain until it is settled.`,
    details: { ...error.details, run_id: runId, seq }
  })
}

/** The error of a call that may have happened. */
export const uncertainEffect = (
  runId: string,
  seq: number,
  tool: string,
  key: string,
  last: { readonly errorType: string | null; readonly message: string | null } | undefined
): UncertainEffect => {
  const ended = last?.message ? `${last.errorType}: ${last.message}` : last?.errorType
  const known = ended ? ` Its last attempt ended with ${ended.replace(/\.+$/, "").slice(0, 300)}.` : ""
  const settle = `settle(${JSON.stringify(runId)}, ${seq}`
  return new UncertainEffect({
    kind: "effect_uncertain",
    message: `Tool ${JSON.stringify(tool)} at step ${seq} of run ${JSON.stringify(runId)} may have run: it was begun with the key ${JSON.stringify(key)}, and no outcome is recorded.${known} It was not run again. Find out with that key, then settle it: ${settle}, { result }) when it happened, ${settle}, { absent: true }) when it did not. Or declare the tool: restartSafe, or a readback.`,
    details: {
      run_id: runId,
      seq,
      tool,
      idempotency_key: key,
      choices: [
        `${settle}, { result })`,
        `${settle}, { absent: true })`,
        "declare the tool restartSafe",
        "declare a readback"
      ]
    }
  })
}
