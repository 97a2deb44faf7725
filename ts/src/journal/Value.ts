/** How the rules read values of a journal: turn-journal.md sections 2 and 9, "Values". */
import canonicalize from "canonicalize"
import { isObject, type JsonObject, type JsonValue } from "../contract/Json.ts"

const NOTHING: JsonObject = Object.freeze({})

/** A value of the wrong type where an object is expected counts as an empty object. */
export const asObject = (value: JsonValue | undefined): JsonObject => (isObject(value) ? value : NOTHING)

/** A key is present whatever its value, also null. */
export const has = (object: JsonObject, key: string): boolean => Object.hasOwn(object, key)

/** The value under a key of the document itself, never one that JavaScript objects inherit. */
export const get = (object: JsonObject, key: string): JsonValue | undefined =>
  has(object, key) ? object[key] : undefined

export const isText = (value: JsonValue | undefined): value is string => typeof value === "string"

/** An identity is a string that is not blank after trimming; identities are compared untrimmed. */
export const isIdentity = (value: JsonValue | undefined): value is string => isText(value) && value.trim() !== ""

/** A value as text, the way it is reported; total, so that no journal makes an inspection fail. */
export const textOf = (value: JsonValue): string => {
  if (value === null) return "None"
  if (value === true) return "True"
  if (value === false) return "False"
  if (isText(value)) return value
  try {
    return canonicalText(value)
  } catch {
    return escapedText(value)
  }
}

/** Half a surrogate pair has no canonical form; here it is escaped, and keys stand in one order all the same. */
const escapedText = (value: JsonValue): string => {
  if (Array.isArray(value)) return `[${value.map(escapedText).join(",")}]`
  if (!isObject(value)) return JSON.stringify(value)
  const members = Object.entries(value).map(([key, inner]) => `${JSON.stringify(key)}:${escapedText(inner)}`)
  return `{${members.sort().join(",")}}`
}

/** Canonical JSON (RFC 8785), and what it says: a copy of the value, which nobody else can change. */
export interface Canonical {
  readonly text: string
  readonly value: JsonValue
}

/**
 * Throws on what canonical JSON cannot carry. Every write and every line that is read needs it, so plain values are
 * written by the engine itself, their keys in order; what that may write otherwise is the library's.
 */
export const canonical = (value: JsonValue): Canonical => {
  const copy = inOrder(value)
  const written = copy === undefined ? undefined : JSON.stringify(copy)
  // Half a surrogate pair, which the library refuses, or a text that looks like its escape.
  if (copy !== undefined && written !== undefined && !written.includes("\\ud")) return { text: written, value: copy }
  const text = canonicalize(value)
  if (text === undefined) throw new TypeError("a value that is not JSON has no canonical form")
  return { text, value: JSON.parse(text) as JsonValue }
}

export const canonicalText = (value: JsonValue): string => canonical(value).text

/** The value with the keys of its objects in order; undefined where something in it is not plain. */
const inOrder = (value: JsonValue): JsonValue | undefined => {
  switch (typeof value) {
    case "string":
    case "boolean":
      return value
    case "number":
      // Minus zero is written as zero.
      return Number.isFinite(value) ? value + 0 : undefined
    case "object":
      break
    default:
      return undefined
  }
  if (value === null) return null
  if (Array.isArray(value)) {
    const copy: Array<JsonValue> = []
    for (const item of value) {
      const found = inOrder(item)
      if (found === undefined) return undefined
      copy.push(found)
    }
    return copy
  }
  if (Object.getPrototypeOf(value) !== Object.prototype) return undefined
  const copy: Record<string, JsonValue> = {}
  for (const key of sorted(Object.keys(value))) {
    const found = isPlain(key) ? inOrder((value as JsonObject)[key] as JsonValue) : undefined
    if (found === undefined) return undefined
    copy[key] = found
  }
  return copy
}

/** Whether an object keeps the key where it is put: numbers go before all others, and one name is no key. */
const isPlain = (key: string): boolean => !(key.charAt(0) >= "0" && key.charAt(0) <= "9") && key !== "__proto__"

const FEW = 16

/** By UTF-16 code units. Few keys are put in order where they are, without the copies that `sort` makes. */
const sorted = (keys: Array<string>): ReadonlyArray<string> => {
  if (keys.length > FEW) return keys.sort()
  for (let end = 1; end < keys.length; end++) {
    const key = keys[end] as string
    let at = end
    for (; at > 0 && (keys[at - 1] as string) > key; at--) keys[at] = keys[at - 1] as string
    keys[at] = key
  }
  return keys
}

/** Whether two values are one JSON value: have the same canonical form, or are both absent. */
export const sameJson = (left: JsonValue | undefined, right: JsonValue | undefined): boolean => {
  if (left === right) return true
  if (Array.isArray(left) && Array.isArray(right)) {
    return left.length === right.length && left.every((value, index) => sameJson(value, right[index]))
  }
  if (!isObject(left) || !isObject(right)) return false
  const keys = Object.keys(left)
  return (
    keys.length === Object.keys(right).length && keys.every((key) => has(right, key) && sameJson(left[key], right[key]))
  )
}
