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
    // Half a surrogate pair has no canonical form; plain JSON escapes it.
    return JSON.stringify(value)
  }
}

/** Canonical JSON (RFC 8785); throws on what it cannot carry. */
export const canonicalText = (value: JsonValue): string => {
  const text = canonicalize(value)
  if (text === undefined) throw new TypeError("a value that is not JSON has no canonical form")
  return text
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
