/**
 * Payloads as they are stored: exact, or refused with the place of the fault. The twin of run_journal/payload.py:
 * run-journal.md, sections 1 and 5.
 *
 * Integers beyond ±(2^53−1) are `bigint` here; a double that is a whole number beyond that is written with an exponent,
 * so that every reader takes it for the double that it is.
 */
import { createHash } from "node:crypto"
import * as Predicate from "effect/Predicate"
import { InvalidJournal } from "../contract/Errors.ts"

export type Value = null | boolean | number | bigint | string | ReadonlyArray<Value> | Payload
export interface Payload {
  readonly [key: string]: Value
}

/**
 * The type of what a step gives, by the type of what it was given: the same, where that is JSON as it stands (plain objects
 * and arrays, no `undefined`, `bigint` or `Date`), and some JSON value otherwise. What another program recorded is taken
 * to be of that type.
 */
export type Recorded<A> = [Value] extends [A] ? Value : [A] extends [AsJson<A>] ? A : Value
type AsJson<A> = A extends null | boolean | number | string
  ? A
  : A extends object
    ? A extends (...args: never) => unknown
      ? never
      : { readonly [K in keyof A]: AsJson<A[K]> }
    : never

/** How deep the values of a payload may nest. */
export const MAX_DEPTH = 128

/** What is stored is not JSON. */
export class DamagedPayload extends Error {}

/**
 * Compact JSON of a payload. Values that are not JSON become their text, NaN and the infinities `nan`, `inf`, `-inf`;
 * members that are undefined are left out; halves of surrogate pairs stay what they are, escaped. Throws `InvalidJournal`
 * for the rest: what has no text, refers to itself or nests too deep.
 */
export const encode = (payload: unknown, levels = MAX_DEPTH): string => {
  if (!isPlainObject(payload)) throw refused("$", "not_json", "a payload is an object")
  if (arePlain(Object.values(payload), levels)) return JSON.stringify(payload)
  return JSON.stringify(exact(payload, "$", levels, []))
}

/** The value that was encoded, integers of any size exactly. Throws `DamagedPayload`. */
export const decode = (stored: Uint8Array | string): Value => {
  try {
    const text = typeof stored === "string" ? stored : UTF8.decode(stored)
    return parse(text)
  } catch {
    // What the parser says quotes the payload.
    throw new DamagedPayload("it is not JSON in UTF-8")
  }
}

/** RFC 8785 of a JSON value, integers of any size in full: the same text for equal values, in both languages. */
export const canonical = (value: Value): string => {
  if (typeof value === "bigint") return value.toString()
  if (Array.isArray(value)) return `[${value.map(canonical).join(",")}]`
  if (typeof value === "object" && value !== null) {
    const members = Object.entries(value as Payload).sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
    return `{${members.map(([key, item]) => `${JSON.stringify(key)}:${canonical(item)}`).join(",")}}`
  }
  return JSON.stringify(value)
}

/** The SHA-256 of a value's canonical form. */
export const digest = (value: Value): string => `sha256:${createHash("sha256").update(canonical(value)).digest("hex")}`

export const same = (one: Value, other: Value): boolean => canonical(one) === canonical(other)

/** The places where two JSON values differ, objects compared member by member: `["args.limit"]`. */
export const differingFields = (recorded: Value, issued: Value, path = ""): Array<string> => {
  if (!isPlainObject(recorded) || !isPlainObject(issued)) return same(recorded, issued) ? [] : [path]
  const keys = [...new Set([...Object.keys(recorded), ...Object.keys(issued)])].sort()
  return keys.flatMap((key) => {
    const place = path === "" ? key : `${path}.${key}`
    return Object.hasOwn(recorded, key) && Object.hasOwn(issued, key)
      ? differingFields(recorded[key] as Value, issued[key] as Value, place)
      : [place]
  })
}

/** What encoding and decoding makes of a payload. */
export const asStored = (payload: unknown): Payload => decode(encode(payload)) as Payload

const UTF8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })
/** Digits or an exponent that a double may not hold exactly. */
const NEEDS_CARE = /\d{16}|[eE]\+?\d{3}/
const INTEGER = /^-?\d+$/
/** Tokens that other writers (Python's own json) leave; they read as what `encode` stores for such a number. */
const CONSTANTS: Readonly<Record<string, string>> = { NaN: '"nan"', Infinity: '"inf"', "-Infinity": '"-inf"' }
const STRING_OR_CONSTANT = /"(?:[^"\\]|\\.)*"|-?Infinity|NaN/gs

const parse = (text: string): Value => {
  const read = (json: string): Value =>
    NEEDS_CARE.test(json)
      ? (JSON.parse(json, revive as (key: string, value: unknown) => unknown) as Value)
      : JSON.parse(json)
  try {
    return read(text)
  } catch (error) {
    if (!text.includes("NaN") && !text.includes("Infinity")) throw error
    return read(text.replace(STRING_OR_CONSTANT, (token) => CONSTANTS[token] ?? token))
  }
}

const revive = (_key: string, value: unknown, context: { readonly source?: string }): unknown => {
  if (typeof value !== "number" || context.source === undefined) return value
  if (!Number.isFinite(value)) throw new SyntaxError(`the number ${context.source.slice(0, 40)} is too large`)
  return INTEGER.test(context.source) && !Number.isSafeInteger(value) ? BigInt(context.source) : value
}

const isPlainObject = (value: unknown): value is Readonly<Record<string, unknown>> => {
  if (!Predicate.isObject(value) || Array.isArray(value)) return false
  const prototype = Object.getPrototypeOf(value)
  return prototype === Object.prototype || prototype === null
}

/** Whether `JSON.stringify` writes these values as this module promises to. */
const arePlain = (items: ReadonlyArray<unknown>, levels: number): boolean => {
  for (const item of items) {
    switch (typeof item) {
      case "boolean":
      case "string":
        continue
      case "number":
        if (Number.isFinite(item) && (!Number.isInteger(item) || Number.isSafeInteger(item)) && !Object.is(item, -0)) {
          continue
        }
        return false
      case "object": {
        if (item === null) continue
        if (levels <= 0) return false
        if (Array.isArray(item)) {
          if (arePlain(item, levels - 1)) continue
          return false
        }
        if (!isPlainObject(item)) return false
        if (arePlain(Object.values(item), levels - 1)) continue
        return false
      }
      default:
        return false
    }
  }
  return true
}

const raw = (text: string): unknown => (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(text)

/** A copy that `JSON.stringify` writes as it should, or the fault with its place. */
const exact = (value: unknown, path: string, levels: number, parents: ReadonlyArray<unknown>): unknown => {
  switch (typeof value) {
    case "boolean":
    case "string":
      return value
    case "bigint":
      return raw(value.toString())
    case "number":
      if (Number.isNaN(value)) return "nan"
      if (!Number.isFinite(value)) return value < 0 ? "-inf" : "inf"
      if (Object.is(value, -0)) return raw("-0.0")
      return Number.isInteger(value) && !Number.isSafeInteger(value) ? raw(value.toExponential()) : value
    case "object":
      break
    default:
      return String(value)
  }
  if (value === null) return null
  if (!Array.isArray(value) && !isPlainObject(value)) {
    return text(value, path)
  }
  if (parents.includes(value)) throw refused(path, "refers_to_itself", "a value that contains itself")
  if (levels < 0) {
    throw refused(path, "too_deep", `nested deeper than ${MAX_DEPTH} levels`, "journal_too_deep")
  }
  const inner = [...parents, value]
  if (Array.isArray(value)) {
    return value.map((item, at) => (item === undefined ? null : exact(item, `${path}[${at}]`, levels - 1, inner)))
  }
  return Object.fromEntries(
    Object.entries(value)
      .filter(([, item]) => item !== undefined)
      .map(([key, item]) => [key, exact(item, `${path}.${key}`, levels - 1, inner)])
  )
}

const text = (value: object, path: string): string => {
  try {
    return value instanceof Date ? value.toISOString() : String(value)
  } catch (error) {
    throw refused(path, "has_no_text", `an object whose text cannot be made (${(error as Error)?.name})`)
  }
}

const refused = (
  path: string,
  reason: string,
  fault: string,
  kind: "invalid_request" | "journal_too_deep" = "invalid_request"
): InvalidJournal => {
  const shown = path.toWellFormed()
  return new InvalidJournal({
    kind,
    message: `The payload cannot be stored: ${fault}, at ${shown.slice(0, 200)}.`,
    details: { path: shown, reason }
  })
}
