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

/** A value as text, the way it is reported. */
export const textOf = (value: JsonValue): string => {
  if (value === null) return "None"
  if (value === true) return "True"
  if (value === false) return "False"
  return isText(value) ? value : canonicalText(value)
}

/** Canonical JSON (RFC 8785). */
export const canonicalText = (value: JsonValue): string => {
  const text = canonicalize(value)
  if (text === undefined) throw new TypeError("a value that is not JSON has no canonical form")
  return text
}

export const sameJson = (left: JsonValue | undefined, right: JsonValue | undefined): boolean =>
  left === undefined || right === undefined ? left === right : canonicalText(left) === canonicalText(right)
