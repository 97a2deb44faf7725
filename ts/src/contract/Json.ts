/**
 * JSON that survives the trip between Python and Node unchanged, or is refused with the place of the fault.
 *
 * `JSON.parse` alone rounds big integers, keeps the last of two equal keys and lets half a surrogate pair through;
 * each of these would make two different documents look like one.
 */
import * as Result from "effect/Result"

export type JsonValue = null | boolean | number | string | ReadonlyArray<JsonValue> | JsonObject
export interface JsonObject {
  readonly [key: string]: JsonValue
}

export type JsonFaultReason = "syntax" | "duplicate_key" | "number_out_of_range" | "invalid_text" | "too_deep"

export interface JsonFault {
  readonly reason: JsonFaultReason
  /** Where the fault is, as a JSONPath-like text: `$.plan.phases[2]`. */
  readonly path: string
  readonly message: string
}

/** Nesting allowed in a journal: the document itself is level 1. */
export const MAX_DEPTH = 128
/** Size allowed for a journal, as compact JSON in UTF-8 bytes. */
export const MAX_JOURNAL_BYTES = 8 * 1024 * 1024
/** The most that these may be set to: what every JSON library on the way can carry, and what fits in memory. */
export const GREATEST_DEPTH = 250
export const GREATEST_JOURNAL_BYTES = 64 * 1024 * 1024

export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value)

/** Parses JSON text, refusing what another JSON reader could read differently. */
export const parse = (text: string, maxDepth = MAX_DEPTH): Result.Result<JsonValue, JsonFault> => {
  const members = membersOf(text, maxDepth)
  const fault = members === null ? scan(text, maxDepth) : null
  if (fault !== null) return Result.fail(fault)
  try {
    const value = JSON.parse(text) as JsonValue
    const duplicate = members === null || members === keysIn(value) ? null : scan(text, maxDepth)
    return duplicate === null ? Result.succeed(value) : Result.fail(duplicate)
  } catch {
    // What the parser says quotes the text, and no message repeats what a journal contains.
    return Result.fail({ reason: "syntax", path: "$", message: "the text is not JSON" })
  }
}

/** Where a long integer may stand; a text that looks like one costs only time. */
const LONG_INTEGER = /(?:^|[:,[])-?\d{16}/

/**
 * Writes compact JSON. Whole doubles beyond ±(2^53−1) are written with an exponent, so that every reader takes them for
 * the doubles they are and none for an exact integer.
 */
export const stringify = (value: JsonValue): string => {
  const text = JSON.stringify(value)
  return LONG_INTEGER.test(text) ? JSON.stringify(value, exponentForm) : text
}

const exponentForm = (_key: string, value: unknown): unknown =>
  typeof value === "number" && Number.isInteger(value) && !Number.isSafeInteger(value)
    ? (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(value.toExponential())
    : value

const QUOTE = 34
const COLON = 58
const OPEN_OBJECT = 123
const CLOSE_OBJECT = 125
const OPEN_ARRAY = 91
const CLOSE_ARRAY = 93
const COMMA = 44
const MINUS = 45
const POINT = 46
const BACKSLASH = 92
const LETTER_E = 101
const LOWER_CASE = 32

/** Every whole number of so many digits is exact. */
const EXACT_DIGITS = 15
const HALF_PAIR = /\\u[dD][89a-fA-F]/

const isDigit = (code: number): boolean => code >= 48 && code <= 57

/**
 * The quick look at a text: how many members its objects have. When `JSON.parse` keeps as many, no key stood twice.
 * Null when something asks for the careful look: a number that may not be exact, deep nesting, half a surrogate pair.
 */
const membersOf = (text: string, maxDepth: number): number | null => {
  if (!text.isWellFormed() || (text.includes("\\u") && HALF_PAIR.test(text))) return null
  let members = 0
  let depth = 0
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) {
      at = endOfString(text, at)
      if (at < 0) return null
    } else if (code === COLON) {
      members++
    } else if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
      if (++depth > maxDepth) return null
    } else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) {
      depth--
    } else if (isDigit(code)) {
      const isFraction = text.charCodeAt(at - 1) === POINT
      const start = at
      let next = text.charCodeAt(at + 1)
      while (isDigit(next)) next = text.charCodeAt(++at + 1)
      if ((next | LOWER_CASE) === LETTER_E || (!isFraction && at - start >= EXACT_DIGITS)) return null
    }
  }
  return members
}

/** How many keys the objects in a value have, together. */
const keysIn = (value: JsonValue): number => {
  let keys = 0
  if (Array.isArray(value)) {
    for (const item of value) if (isContainer(item)) keys += keysIn(item)
  } else if (isObject(value)) {
    for (const key in value) {
      keys++
      const item = value[key]
      if (isContainer(item)) keys += keysIn(item)
    }
  }
  return keys
}

const isContainer = (value: unknown): value is JsonObject | ReadonlyArray<JsonValue> =>
  typeof value === "object" && value !== null

interface Level {
  readonly keys: Set<string> | null
  key: string | number
}

/**
 * The careful look: faults that `JSON.parse` does not report, with their place. On malformed text it stops early and
 * leaves it to the parser.
 */
const scan = (text: string, maxDepth: number): JsonFault | null => {
  const levels: Array<Level> = []
  const fault = (reason: JsonFaultReason, message: string): JsonFault => ({
    reason,
    message,
    path: pathOf(levels.map(({ key }) => key))
  })
  let level: Level | undefined
  let expectsKey = false
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (code === QUOTE) {
      const end = endOfString(text, at)
      if (end < 0) return null
      const value = stringAt(text, at, end)
      if (value === null) return null
      const isKey = expectsKey && level?.keys != null
      if (isKey && level !== undefined) level.key = value
      if (!value.isWellFormed())
        return fault("invalid_text", "text that is not valid Unicode (half of a surrogate pair)")
      if (isKey && level?.keys != null) {
        if (level.keys.has(value)) return fault("duplicate_key", "the same key stands twice in one object")
        level.keys.add(value)
        expectsKey = false
      }
      at = end
    } else if (code === COMMA) {
      if (level === undefined) return null
      if (level.keys !== null) expectsKey = true
      else level.key = (level.key as number) + 1
    } else if (code === OPEN_OBJECT || code === OPEN_ARRAY) {
      if (levels.length === maxDepth) return fault("too_deep", `nested deeper than ${maxDepth} levels`)
      expectsKey = code === OPEN_OBJECT
      level = expectsKey ? { keys: new Set(), key: "" } : { keys: null, key: 0 }
      levels.push(level)
    } else if (code === CLOSE_OBJECT || code === CLOSE_ARRAY) {
      levels.pop()
      level = levels[levels.length - 1]
      expectsKey = false
    } else if (code === MINUS || isDigit(code)) {
      const end = endOfNumber(text, at)
      const message = numberFault(text.slice(at, end))
      if (message !== null) return fault("number_out_of_range", message)
      at = end - 1
    } else if (code === COLON) {
      expectsKey = false
    }
  }
  return null
}

const endOfString = (text: string, start: number): number => {
  let end = text.indexOf('"', start + 1)
  while (end > 0) {
    let slashes = 0
    while (text.charCodeAt(end - 1 - slashes) === BACKSLASH) slashes++
    if (slashes % 2 === 0) return end
    end = text.indexOf('"', end + 1)
  }
  return -1
}

const stringAt = (text: string, start: number, end: number): string | null => {
  const raw = text.slice(start + 1, end)
  if (!raw.includes("\\")) return raw
  try {
    return JSON.parse(text.slice(start, end + 1)) as string
  } catch {
    return null
  }
}

const NUMBER_PART = /[-+.\deE]/

const endOfNumber = (text: string, start: number): number => {
  let end = start + 1
  while (NUMBER_PART.test(text.charAt(end))) end++
  return end
}

const WHOLE = /^-?\d+$/

const numberFault = (token: string): string | null => {
  const value = Number(token)
  if (Number.isNaN(value)) return null
  if (!Number.isFinite(value)) return "a number too large for a double"
  return WHOLE.test(token) && !Number.isSafeInteger(value) ? "an integer beyond ±(2^53−1): send it as text" : null
}

const IDENTIFIER = /^[A-Za-z_][A-Za-z0-9_]*$/

/** A place in a document as text. */
export const pathOf = (keys: ReadonlyArray<string | number>): string =>
  keys.reduce<string>((path, key) => path + step(key), "$")

const step = (key: string | number): string =>
  typeof key === "string" && IDENTIFIER.test(key) ? `.${key}` : `[${JSON.stringify(key)}]`

/** Checks a value that did not come from JSON text (a TypeScript caller's): null when it is JSON within the limits. */
export const check = (value: unknown, maxDepth = MAX_DEPTH): JsonFault | null => {
  const keys: Array<string | number> = []
  const found = faultIn(value, 0, maxDepth, keys)
  return found === null ? null : { ...found, path: pathOf(keys.reverse()) }
}

const fault = (reason: JsonFaultReason, message: string) => ({ reason, message })

/** `keys` gets the way to the fault, from its end: nothing is noted of a value that has none. */
const faultIn = (
  value: unknown,
  depth: number,
  maxDepth: number,
  keys: Array<string | number>
): Omit<JsonFault, "path"> | null => {
  switch (typeof value) {
    case "boolean":
      return null
    case "number":
      return Number.isFinite(value) ? null : fault("number_out_of_range", "NaN and infinities are not JSON")
    case "string":
      return value.isWellFormed()
        ? null
        : fault("invalid_text", "text that is not valid Unicode (half of a surrogate pair)")
    case "object":
      break
    default:
      return fault("syntax", `a value of type ${typeof value} is not JSON`)
  }
  if (value === null) return null
  if (depth === maxDepth) return fault("too_deep", `nested deeper than ${maxDepth} levels`)
  if (Array.isArray(value)) {
    for (let index = 0; index < value.length; index++) {
      const found = faultIn(value[index], depth + 1, maxDepth, keys)
      if (found !== null) {
        keys.push(index)
        return found
      }
    }
    return null
  }
  const prototype = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) return fault("syntax", "an object with a class is not JSON")
  for (const key of Object.keys(value)) {
    if (!key.isWellFormed()) return fault("invalid_text", "a key that is not valid Unicode")
    const found = faultIn((value as Record<string, unknown>)[key], depth + 1, maxDepth, keys)
    if (found !== null) {
      keys.push(key)
      return found
    }
  }
  return null
}
