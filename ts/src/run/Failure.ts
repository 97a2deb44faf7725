/** What a tool or a model has failed with, as the record has it, and the error that it is, live and on replay. */
import * as Cause from "effect/Cause"
import * as Predicate from "effect/Predicate"
import { RecordedToolError } from "./Errors.ts"
import type { Payload } from "./Payload.ts"

/** The error of a step that has failed, or is on record as failed. */
export const failure = (runId: string, seq: number, errorType: string, message: string): RecordedToolError =>
  new RecordedToolError({
    kind: "tool_failed",
    message: message === "" ? errorType : message,
    details: { run_id: runId, seq, error_type: errorType, message }
  })

/** The type and message of an error. */
export interface Said {
  readonly errorType: string
  readonly message: string
}

/** Of a failure, as `redact` lets it be kept. */
export const keptOf = (shown: Payload): Said => ({
  errorType: String(shown["error_type"] ?? "Error"),
  message: String(shown["message"] ?? "")
})

/** Of what was thrown. */
export const saidBy = (error: unknown): Said => {
  // What `Effect.tryPromise` and `Effect.try` have wrapped says more than the wrapping.
  const thrown = Cause.isUnknownError(error) ? error.cause : error
  return { errorType: nameOf(thrown), message: messageOf(thrown) }
}

const nameOf = (error: unknown): string => {
  if (Predicate.hasProperty(error, "_tag") && typeof error._tag === "string") return error._tag
  return error instanceof Error ? error.name : typeof error
}

/** What an error says of itself. Its other fields are not taken: what they hold nobody could keep off the record. */
const messageOf = (error: unknown): string => {
  if (Predicate.hasProperty(error, "message") && typeof error.message === "string") return error.message.toWellFormed()
  return typeof error === "object" && error !== null ? "" : String(error).toWellFormed()
}
