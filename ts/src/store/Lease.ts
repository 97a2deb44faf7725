/** Whether a writer may still write for the driver it belongs to: session-recovery.md section 4. */
import { closeSync, readFileSync } from "node:fs"
import { JournalConflict } from "../contract/Errors.ts"
import { isObject, type JsonValue } from "../contract/Json.ts"
import { corrupt } from "./Failure.ts"
import { openPlain } from "./SafeFile.ts"

/** The number of the driver that took the lease last; null when nobody ever did. Read under the turn's lock. */
export const latestLease = (leaseFile: string): number | null => {
  const fd = openPlain(leaseFile)
  if (fd === null) return null
  try {
    const number = numberIn(readFileSync(fd, "utf8"))
    if (number !== null) return number
    throw corrupt("journal_corrupt", "The turn's lease file is damaged: remove it once nothing drives the turn.", {})
  } finally {
    closeSync(fd)
  }
}

const numberIn = (text: string): number | null => {
  let record: JsonValue
  try {
    record = JSON.parse(text) as JsonValue
  } catch {
    return null
  }
  const number = isObject(record) ? record["number"] : null
  return typeof number === "number" && Number.isSafeInteger(number) && number > 0 ? number : null
}

export const leaseLost = (held: number, latest: number | null): JournalConflict =>
  new JournalConflict({
    kind: "turn_lease_lost",
    message: "Another driver took this turn over: stop, and leave the turn to it.",
    details: { lease: held, latest }
  })
