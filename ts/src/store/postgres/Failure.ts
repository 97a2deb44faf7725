/**
 * What a database refused, as the store's own errors. A server's own words may quote what was stored, and a client's
 * may quote the URL: neither is repeated, only codes are.
 */
import * as Data from "effect/Data"
import type { SqlError } from "effect/sql/SqlError"
import { StoreFailure, StoreUnavailable } from "../../contract/Errors.ts"

/** A statement that was sent, and whose answer did not come: it may be carried out, now or a little later. */
export class Unsure extends Data.TaggedError("Unsure")<{ readonly code: string }> {}

/** What became of a statement that failed. */
export type Fate =
  /** Nothing was done, and the same may succeed in a moment. */
  | { readonly _tag: "Again"; readonly code: string }
  | { readonly _tag: "Unsure"; readonly code: string }
  /** Nothing was done, and nothing will be until somebody changes something. */
  | { readonly _tag: "Refused"; readonly error: StoreFailure }

/** SQLSTATEs that end a transaction that may simply be tried again: conflicts, and a server without room or time. */
const AGAIN: ReadonlySet<string> = new Set(["40001", "40P01", "53200", "53300", "55P03", "57014", "57P03"])
/** A statement whose end the server itself does not know. */
const UNKNOWN_TO_SERVER = "40003"
/** None begins like the system's own codes, some of which have five letters, too: EPIPE. */
const SQLSTATE = /^(?!E[A-Z])[0-9A-Z]{5}$/
const CERTIFICATE = /CERT|TLS|SSL|SIGNATURE|UNABLE_TO/

export const fateOf = (database: string, { reason }: SqlError): Fate => {
  const cause = reason.cause as { readonly code?: unknown; readonly severityUnlocalized?: string } | undefined
  const code = typeof cause?.code === "string" ? cause.code : "connection_lost"
  const isServers = SQLSTATE.test(code)
  const refused = (failure: StoreFailure): Fate => ({ _tag: "Refused", error: failure })
  if (reason.operation === "connect") {
    if (!isServers && CERTIFICATE.test(code)) return refused(denied(database, code, CERTIFICATE_ADVICE))
    if (!isServers && reason._tag === "AuthenticationError") return refused(denied(database, reason._tag, LOGIN))
    return isServers && !isTransient(code) ? refused(failureOf(database, code)) : { _tag: "Again", code }
  }
  if (!isServers || isTransient(code)) {
    return AGAIN.has(code) && cause?.severityUnlocalized === "ERROR"
      ? { _tag: "Again", code }
      : { _tag: "Unsure", code }
  }
  return refused(failureOf(database, code))
}

/** Of the connection or the server, rather than of the statement; 25P: a transaction was silent, or took, too long. */
const isTransient = (code: string): boolean =>
  AGAIN.has(code) || code === UNKNOWN_TO_SERVER || /^(08|25P0[34]|57P|58|XX)/.test(code)

const LOGIN =
  "user, password or access rule do not fit; the password is the one of the URL, of PGPASSWORD or of the file of passwords, which nobody else may read"
const CERTIFICATE_ADVICE = "its certificate is not accepted: see `sslmode` and `sslrootcert` of the URL"

const failureOf = (database: string, code: string): StoreFailure => {
  if (code === "42P01" || code === "3F000") return schemaMissing(database)
  if (code === "42703") return schemaOlder(database, null)
  if (code.startsWith("28")) return denied(database, code, LOGIN)
  if (code === "42501") return denied(database, code, "this user lacks a right to the store's tables, or to make them")
  if (code === "3D000") return denied(database, code, "there is no such database")
  if (code === "25006") return denied(database, code, "it is read-only")
  if (code === "53100") {
    return new StoreFailure({
      kind: "store_full",
      message: `The disk of ${database} is full (${code}). Nothing was changed; free some space.`,
      details: { database, code }
    })
  }
  return new StoreFailure({
    kind: "store_io_failed",
    message: `${database} refused a statement of the store (${code}). Nothing was changed.`,
    details: { database, code }
  })
}

const denied = (database: string, code: string, why: string): StoreFailure =>
  new StoreFailure({
    kind: "store_denied",
    message: `${database} cannot be used (${code}): ${why}.`,
    details: { database, code }
  })

const MIGRATE = "run `turn-journal store migrate` with its URL"

export const schemaMissing = (database: string): StoreFailure =>
  new StoreFailure({
    kind: "store_schema_missing",
    message: `${database} has no tables for turns where this user looks for them: ${MIGRATE}.`,
    details: { database }
  })

export const schemaOlder = (database: string, version: number | null): StoreFailure =>
  new StoreFailure({
    kind: "store_schema_older",
    message: `The tables of ${database} are of an older version: ${MIGRATE}.`,
    details: { database, version }
  })

export const schemaNewer = (database: string, version: number, known: number): StoreFailure =>
  new StoreFailure({
    kind: "store_schema_newer",
    message: `The tables of ${database} are of version ${version}, and this program knows ${known}: update the program.`,
    details: { database, version, known }
  })

export const unavailable = (database: string, code: string): StoreUnavailable =>
  new StoreUnavailable({
    kind: "store_unavailable",
    message: `${database} does not answer (${code}). Nothing was changed; try again.`,
    details: { database, code }
  })

export const outcomeUnknown = (database: string, code: string): StoreUnavailable =>
  new StoreUnavailable({
    kind: "store_outcome_unknown",
    message: `${database} was lost while it committed (${code}): whether the change stands is not known. Try the same again; it is not done twice.`,
    details: { database, code }
  })
