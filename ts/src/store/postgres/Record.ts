/** A line of the history as a row keeps it: as a value, whose text follows from it, wherever `jsonb` carries it. */
import { isObject, type JsonObject, type JsonValue } from "../../contract/Json.ts"
import { canonicalText } from "../../journal/Value.ts"
import { snapshotText } from "../Stored.ts"
import type { Row } from "./Server.ts"

export interface Kept {
  readonly record: string | null
  readonly exact: string | null
}

/**
 * What `jsonb` refuses (U+0000), and numbers with an exponent: it writes them out, up to 308 digits each, so that a
 * journal could come back larger than anything that is read. Canonical JSON has no space before a number.
 */
const UNLIKE_JSONB = /\\u0000|[:,[]-?[0-9.]+e[+-]/

export const keep = (text: string): Kept =>
  UNLIKE_JSONB.test(text) ? { record: null, exact: text } : { record: text, exact: null }

/** The text of a row's line; empty where the row was tampered with beyond that. */
export const textOf = (row: Row): string => {
  const { record, exact } = row
  if (typeof exact === "string") return exact
  try {
    return record == null ? "" : canonicalText(record as JsonValue)
  } catch {
    return ""
  }
}

/** The journal of a row's line, as it is stored beside a history; null where the row has none. */
export const snapshotOf = (row: Row): Uint8Array | null => {
  const record = typeof row["exact"] === "string" ? parsed(row["exact"]) : (row["record"] as JsonValue | null)
  if (!isObject(record)) return null
  const journal = (record as JsonObject)["journal"]
  try {
    return journal === undefined ? null : Buffer.from(snapshotText(canonicalText(journal)))
  } catch {
    return null
  }
}

const parsed = (text: string): JsonValue => {
  try {
    return JSON.parse(text) as JsonValue
  } catch {
    return null
  }
}
