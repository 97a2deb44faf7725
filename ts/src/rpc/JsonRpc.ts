/**
 * JSON-RPC 2.0 as values: text in, messages out, and back. Pure; knows nothing of methods or pipes.
 * runtime.md, section 1.
 */
import { type CoreError, ERRORS } from "../contract/Errors.ts"
import * as Json from "../contract/Json.ts"
import { PROTOCOL_ERRORS, type ProtocolErrorKind } from "../contract/ProtocolErrors.ts"
import type { RecordedSpan } from "./Tracing.ts"

export type Id = string | number | null

/** A request, or a notification when its id is undefined. */
export interface Call {
  readonly _tag: "Call"
  readonly id: Id | undefined
  readonly method: string
  readonly params: Json.JsonValue | undefined
  /** Set when the params are readable, and not as strictly as they must be: to be refused, never run. */
  readonly fault: Json.JsonFault | null
  /** Whether the answer is to say what the call did; see Tracing.ts. */
  readonly traced: boolean
}

/** Something that is answered with an error and is no call. */
export interface Refusal {
  readonly _tag: "Refusal"
  readonly id: Id
  readonly error: ErrorObject
}

export type Message = Call | Refusal

/** What one line holds; a batch is answered by one line as well. */
export type Line = Message | { readonly _tag: "Batch"; readonly messages: ReadonlyArray<Message> }

export interface ErrorObject {
  readonly code: number
  readonly message: string
  readonly data: {
    readonly kind: string
    readonly error: string
    readonly details: Json.JsonObject
  }
}

/** Reads one line. `maxDepth` is the nesting allowed for one message. */
export const decode = (text: string, maxDepth: number): Line => {
  // A batch's own array is one level more.
  const strict = Json.parse(text, BATCH.test(text) ? maxDepth + 1 : maxDepth)
  if (strict._tag === "Success") {
    return Array.isArray(strict.success) ? decodeBatch(strict.success) : decodeMessage(strict.success, null)
  }
  const fault = strict.failure
  const lenient = fault.reason === "syntax" ? undefined : parseLeniently(text)
  if (lenient === undefined) return refusal(null, "parse_error", { reason: fault.reason, path: fault.path })
  // The ids of a faulty envelope cannot be trusted: the fault may be in the id, or the id may stand there twice. And a
  // batch is one document: with a fault anywhere in it, none of it is run.
  return fault.path.startsWith(PARAMS)
    ? decodeMessage(lenient, fault)
    : refusal(null, "invalid_envelope", { reason: fault.reason, path: fault.path })
}

const PARAMS = "$.params"
const BATCH = /^\s*\[/

const parseLeniently = (text: string): Json.JsonValue | undefined => {
  try {
    return JSON.parse(text) as Json.JsonValue
  } catch {
    return undefined
  }
}

const decodeBatch = (values: ReadonlyArray<Json.JsonValue>): Line =>
  values.length === 0
    ? refusal(null, "invalid_envelope", { reason: "empty_batch", path: "$" })
    : { _tag: "Batch", messages: values.map((value) => decodeMessage(value, null)) }

const decodeMessage = (value: Json.JsonValue, fault: Json.JsonFault | null): Message => {
  if (!Json.isObject(value)) return refusal(null, "invalid_envelope", { reason: "not_an_object", path: "$" })
  const { jsonrpc, id, method, params, trace } = value
  if (id !== undefined && id !== null && typeof id !== "string" && typeof id !== "number") {
    return refusal(null, "invalid_envelope", { reason: "id", path: "$.id" })
  }
  const known = id ?? null
  if (jsonrpc !== "2.0") return refusal(known, "invalid_envelope", { reason: "version", path: "$.jsonrpc" })
  if (typeof method !== "string") return refusal(known, "invalid_envelope", { reason: "method", path: "$.method" })
  if (params !== undefined && (typeof params !== "object" || params === null)) {
    return refusal(known, "invalid_envelope", { reason: "params", path: PARAMS })
  }
  return { _tag: "Call", id, method, params, fault, traced: trace === true }
}

export const refusal = (id: Id, kind: ProtocolErrorKind, details: Json.JsonObject): Refusal => ({
  _tag: "Refusal",
  id,
  error: protocolError(kind, details)
})

/** One of JSON-RPC's own errors. */
export const protocolError = (kind: ProtocolErrorKind, details: Json.JsonObject, message?: string): ErrorObject => {
  const { code, error, message: standard } = PROTOCOL_ERRORS[kind]
  return { code, message: message ?? standard, data: { kind, error, details } }
}

const CODES: ReadonlyMap<string, number> = new Map(ERRORS.map(({ tag, code }) => [tag, code]))

/** One of ours. */
export const coreError = (error: CoreError): ErrorObject => ({
  code: CODES.get(error._tag) ?? PROTOCOL_ERRORS.internal_error.code,
  message: error.message,
  data: { kind: error.kind, error: error._tag, details: error.details as Json.JsonObject }
})

export const encodeResult = (id: Id, result: unknown): string =>
  `{"jsonrpc":"2.0","id":${Json.stringify(id)},"result":${Json.stringify(result as Json.JsonValue)}}`

export const encodeError = (id: Id, error: ErrorObject): string =>
  `{"jsonrpc":"2.0","id":${Json.stringify(id)},"error":${Json.stringify(error as unknown as Json.JsonValue)}}`

/** An answer with what the call did beside its result or error. */
export const withSpans = (answer: string, spans: ReadonlyArray<RecordedSpan>): string =>
  `${answer.slice(0, -1)},"spans":${JSON.stringify(spans)}}`

export const encodeBatch = (answers: ReadonlyArray<string>): string => `[${answers.join(",")}]`

export const encodeNotification = (method: string, params: unknown): string =>
  `{"jsonrpc":"2.0","method":${JSON.stringify(method)},"params":${Json.stringify(params as Json.JsonValue)}}`

const ID_IN_HEAD = /^\s*\{(?:\s*"(?:jsonrpc|method)"\s*:\s*"[^"\\]*"\s*,)*\s*"id"\s*:\s*(-?\d{1,15}|"[^"\\]*")\s*,/

/** The id of a request of which only the beginning is known; null when it does not stand there. */
export const idInHead = (head: string): Id => {
  const id = ID_IN_HEAD.exec(head)?.[1]
  return id === undefined ? null : (JSON.parse(id) as Id)
}
