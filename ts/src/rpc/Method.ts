/** One method: its name, what it takes, what it answers, and the work. */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import * as SchemaParser from "effect/SchemaParser"
import { type CoreError, InvalidJournal } from "../contract/Errors.ts"
import * as Json from "../contract/Json.ts"
import { type Call, coreError, type ErrorObject, protocolError } from "./JsonRpc.ts"
import type { Limits } from "./Limits.ts"

/** The params do not fit the method's schema, or are not strict JSON; `path` says where. */
export class InvalidParams extends Schema.TaggedError<InvalidParams>()("InvalidParams", {
  path: Schema.String,
  message: Schema.String
}) {}

export interface Method<R> {
  readonly name: string
  readonly params: Schema.Constraint
  readonly result: Schema.Constraint
  /** Decodes the params and does the work, or refuses and does nothing. `lineBytes` bounds the size of the params. */
  readonly invoke: (
    call: Call,
    lineBytes: number,
    limits: Limits["Service"]
  ) => Effect.Effect<unknown, CoreError | InvalidParams, R>
}

export interface Messages<P extends Schema.ConstraintDecoder<unknown>, A extends Schema.Constraint> {
  readonly params: P
  readonly result: A
  /**
   * Set when the params carry a journal under `journal`. One that is to be stored must be strict JSON to be a journal
   * at all; one that is only looked at fails like any other parameter.
   */
  readonly journal?: "inspected" | "stored"
}

export const make = <P extends Schema.ConstraintDecoder<unknown>, A extends Schema.Constraint, R = never>(
  name: string,
  { params, result, journal }: Messages<P, A>,
  handler: (params: P["Type"]) => Effect.Effect<A["Type"], CoreError, R>
): Method<R> => {
  const decode = closedDecoder(params)
  return {
    name,
    params,
    result,
    invoke: (call, lineBytes, limits) => {
      if (call.fault !== null) return Effect.fail(faultError(call.fault, journal))
      const given = call.params ?? {}
      const decoded = decode(given)
      if (Result.isFailure(decoded)) return Effect.fail(invalidParams(decoded.failure))
      if (journal !== undefined && lineBytes * MAX_GROWTH > limits.journalBytes) {
        const tooLarge = sizeError((given as Json.JsonObject)["journal"] ?? null, limits.journalBytes)
        if (tooLarge !== null) return Effect.fail(tooLarge)
      }
      return handler(decoded.success)
    }
  }
}

/**
 * Decodes, and refuses keys that the schema does not name. The parser has an option for that which takes it off its
 * fast path; so the option is asked only when the copy that decoding makes has lost something.
 */
const closedDecoder = <P extends Schema.ConstraintDecoder<unknown>>(params: P) => {
  const open = SchemaParser.decodeUnknownResult(params)
  const closed = SchemaParser.decodeUnknownResult(params, { onExcessProperty: "error" })
  return (given: Json.JsonValue): Result.Result<P["Type"], SchemaIssue.Issue> => {
    const decoded = open(given)
    return Result.isSuccess(decoded) && !isWhole(given, decoded.success) ? closed(given) : decoded
  }
}

const isWhole = (given: unknown, copy: unknown): boolean => {
  if (given === copy || typeof given !== "object" || typeof copy !== "object" || given === null || copy === null) {
    return true
  }
  const keys = Object.keys(copy)
  if (keys.length !== Object.keys(given).length) return false
  return keys.every((key) => isWhole((given as Json.JsonObject)[key], (copy as Json.JsonObject)[key]))
}

/** Compact JSON can be longer than the text it was read from (`1e15`), but never this many times. */
const MAX_GROWTH = 4

const sizeError = (journal: Json.JsonValue, limit: number): InvalidJournal | null => {
  const bytes = Buffer.byteLength(Json.stringify(journal))
  return bytes <= limit ? null : journalTooLarge(limit, bytes)
}

/** `bytes` where the size is known. */
export const journalTooLarge = (limit: number, bytes?: number): InvalidJournal =>
  new InvalidJournal({
    kind: "journal_too_large",
    message: `A journal may have ${limit} bytes as compact JSON: keep large results outside and their names in it.`,
    details: bytes === undefined ? { limit } : { limit, bytes }
  })

const JOURNAL_PATH = /^\$\.params\.journal(?=$|[.[])/

const faultError = (fault: Json.JsonFault, journal: Messages<never, never>["journal"]): CoreError | InvalidParams => {
  const { reason, message } = fault
  if (journal !== undefined && JOURNAL_PATH.test(fault.path) && (reason === "too_deep" || journal === "stored")) {
    return notStrict({ ...fault, path: fault.path.replace(JOURNAL_PATH, "$") })
  }
  const path = fault.path.replace("$.params", "$")
  return new InvalidParams({ path, message: `The params at ${path}: ${message}.` })
}

/** The text of a journal is not JSON that every reader reads the same. */
export const notStrict = ({ reason, path, message }: Json.JsonFault): InvalidJournal =>
  new InvalidJournal({
    kind: reason === "too_deep" ? "journal_too_deep" : "journal_snapshot_invalid",
    message: `The journal at ${path}: ${message}.`,
    details: { path, reason }
  })

/** A refusal as it goes over the wire. */
export const errorObject = (error: CoreError | InvalidParams): ErrorObject =>
  error._tag === "InvalidParams"
    ? protocolError("invalid_params", { path: error.path }, error.message)
    : coreError(error)

const describe = SchemaIssue.makeFormatterStandardSchemaV1()

/** The first thing that does not fit. Says what was expected and where, never what was there instead. */
const invalidParams = (issue: SchemaIssue.Issue): InvalidParams => {
  const [first] = describe(issue).issues
  const keys = (first?.path ?? []).map((key) => (typeof key === "object" ? key.key : key))
  const path = Json.pathOf(keys.map((key) => (typeof key === "number" ? key : String(key))))
  return new InvalidParams({ path, message: `The params at ${path}: ${first?.message ?? "do not fit the schema"}.` })
}
