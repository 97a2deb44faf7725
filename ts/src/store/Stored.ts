/** A stored journal: from bytes to a document, and from its history to the transition that it is. */
import { isUtf8 } from "node:buffer"
import * as Result from "effect/Result"
import { type JournalCorrupt, JournalNotFound } from "../contract/Errors.ts"
import { check, isObject, type JsonObject, parse, stringify } from "../contract/Json.ts"
import { type Admission, admit, type Named, type Refusal } from "../journal/Admission.ts"
import { operationIdOf } from "../journal/OperationId.ts"
import { canonicalText } from "../journal/Value.ts"
import type { Encoded, HistoryEnd, Position, Snapshot } from "./Driver.ts"
import { corrupt } from "./Failure.ts"
import type { LineFault } from "./History.ts"
import { isDatabase, type Place } from "./Place.ts"
import { Recent } from "./Recent.ts"

export interface Document {
  readonly journal: JsonObject
  readonly operationId: string
  /** The journal held against the rules and its path, as a write holds it. */
  readonly admission: Result.Result<Admission, Refusal>
}

/**
 * The text that a journal is stored as: it follows from the journal's meaning, so that any other text shows that
 * another hand wrote it. Canonical JSON, but for whole doubles beyond 2^53, which other readers would take for integers.
 */
export const snapshotText = (canonical: string): string =>
  LONG_INTEGER.test(canonical) ? stringify(JSON.parse(canonical) as JsonObject) : canonical

const LONG_INTEGER = /\d{16}/

/** What a journal may be, whoever wrote it. */
export interface JournalLimits {
  /** As compact JSON; a file may hold more, when another writer indented it. */
  readonly journalBytes: number
  readonly depth: number
}

/** Reads a journal's bytes. */
export const decode = (bytes: Uint8Array, limits: JournalLimits): Result.Result<JsonObject, JournalCorrupt> => {
  if (!isUtf8(bytes)) return damaged("invalid_utf8", "it is not UTF-8", "$")
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("utf8")
  const parsed = parse(text, limits.depth)
  if (Result.isFailure(parsed)) {
    const { reason, message, path } = parsed.failure
    return reason === "too_deep" ? beyond("too_deep", path, limits.depth) : damaged(reason, message, path)
  }
  if (!isObject(parsed.success)) return damaged("not_an_object", "it is no object", "$")
  return bytes.length > limits.journalBytes ? within(limits, parsed.success) : Result.succeed(parsed.success)
}

/** Refuses a stored journal that is larger or deeper than one may be that is written now. */
export const within = (limits: JournalLimits, journal: JsonObject): Result.Result<JsonObject, JournalCorrupt> => {
  const fault = check(journal, limits.depth)
  if (fault !== null) return beyond("too_deep", fault.path, limits.depth)
  const bytes = Buffer.byteLength(stringify(journal))
  return bytes > limits.journalBytes ? beyond("too_large", "$", limits.journalBytes, bytes) : Result.succeed(journal)
}

const beyond = (reason: "too_large" | "too_deep", path: string, limit: number, bytes?: number) =>
  Result.fail(
    corrupt(
      "journal_corrupt",
      reason === "too_large"
        ? `The stored journal has ${bytes} bytes as compact JSON, and one may have ${limit}. It was left as it is; TURN_JOURNAL_MAX_JOURNAL_BYTES says how many.`
        : `The stored journal is nested deeper than ${limit} levels at ${path}. It was left as it is; TURN_JOURNAL_MAX_DEPTH says how deep one may be.`,
      { reason, path, limit, ...(bytes === undefined ? {} : { bytes }) }
    )
  )

const damaged = (reason: string, what: string, at: string) =>
  Result.fail(
    corrupt("journal_corrupt", `The stored journal is damaged at ${at}: ${what}. It was left as it is.`, {
      reason,
      path: at
    })
  )

/** Reads snapshots. One that has the same bytes as before is the same document, and is not read again. */
export interface Reader {
  (place: Place, snapshot: Snapshot): Result.Result<Document, JournalCorrupt>
  /** Takes note of what was just written: the text of a snapshot, and its journal as it was admitted. */
  readonly remember: (place: Place, text: string, admission: Admission) => void
}

export const makeReader = (capacity: number, limits: JournalLimits): Reader => {
  const known = new Recent<string, { readonly bytes: Uint8Array; readonly document: Document }>(capacity)
  const keep = (place: Place, bytes: Uint8Array, document: Document): void => {
    if (bytes.length <= MAX_REMEMBERED_BYTES) known.set(place.path, { bytes, document })
  }
  const read = (place: Place, { bytes }: Snapshot): Result.Result<Document, JournalCorrupt> => {
    const before = known.get(place.path)
    if (before !== undefined && Buffer.compare(before.bytes, bytes) === 0) return Result.succeed(before.document)
    return Result.map(decode(bytes, limits), (journal) => {
      const document = new LazyDocument(place, journal)
      keep(place, bytes, document)
      return document
    })
  }
  return Object.assign(read, {
    remember: (place: Place, text: string, admission: Admission) =>
      keep(place, Buffer.from(text), {
        journal: admission.journal,
        operationId: admission.operationId,
        admission: Result.succeed(admission)
      })
  })
}

const MAX_REMEMBERED_BYTES = 64 * 1024

class LazyDocument implements Document {
  readonly journal: JsonObject
  readonly #place: Place
  #named: Named | null = null
  #admission: Result.Result<Admission, Refusal> | null = null

  constructor(place: Place, journal: JsonObject) {
    this.#place = place
    this.journal = journal
  }

  get named(): Named {
    if (this.#named === null) {
      const canonical = canonicalText(this.journal)
      this.#named = { canonical, operationId: operationIdOf(canonical) }
    }
    return this.#named
  }

  get admission(): Result.Result<Admission, Refusal> {
    this.#admission ??= admit(this.journal, this.#place.address, this.named)
    return this.#admission
  }

  get operationId(): string {
    return this.named.operationId
  }
}

/** What stands: the journal, and the transition of its history that it is. */
export interface Standing {
  readonly document: Document | null
  /** Null where the history does not begin yet. */
  readonly position: Position | null
}

/**
 * Tells what stands from what a cut-off writer left: the last transition whose snapshot appeared. A snapshot that no
 * crash explains beside its history is refused.
 */
export const standing = (
  read: Reader,
  place: Place,
  { snapshot, history }: Encoded
): Result.Result<Standing, JournalCorrupt> => {
  if (history !== null && history.damage !== null) {
    return Result.fail(historyDamaged(history.damage.fault, history.damage.line))
  }
  const document = snapshot === null ? Result.succeed(null) : read(place, snapshot)
  return Result.flatMap(document, (document) => {
    const position = history === null ? null : positionOf(history, document)
    return position === undefined ? Result.fail(notTheLast(document)) : Result.succeed({ document, position })
  })
}

/** The transition that a journal is; null when there is neither, undefined when the two do not belong together. */
export const positionOf = (
  { sealed, open }: HistoryEnd,
  document: Pick<Document, "operationId"> | null
): Position | null | undefined => {
  if (document === null) return sealed === null ? null : undefined
  const appeared = open.findLast((position) => position.operationId === document.operationId)
  return appeared ?? (sealed?.operationId === document.operationId ? sealed : undefined)
}

export const historyDamaged = (fault: LineFault, line: number): JournalCorrupt =>
  corrupt(
    "history_corrupt",
    `Line ${line} of the turn's history is not as it was written. Nothing was changed; \`turn-journal repair\` says what can be kept.`,
    { fault, line }
  )

const notTheLast = (document: Document | null): JournalCorrupt =>
  document === null
    ? journalIsGone()
    : corrupt(
        "history_corrupt",
        "The stored journal is not the last one of the turn's history: something else wrote it. Nothing was changed; `turn-journal repair` takes it over.",
        { fault: "snapshot_not_last" }
      )

/** A history without its journal never makes room for a new turn. */
const journalIsGone = (): JournalCorrupt =>
  corrupt(
    "history_corrupt",
    "The turn's journal is gone, and its history is there. Nothing was changed; `turn-journal repair` brings it back.",
    { fault: "snapshot_missing" }
  )

/** The journal, or why there is none. */
export const present = (
  place: Place,
  { snapshot, history }: Encoded
): Result.Result<Snapshot, JournalNotFound | JournalCorrupt> => {
  if (snapshot !== null) return Result.succeed(snapshot)
  if (history !== null && history.sealed !== null) return Result.fail(journalIsGone())
  const { where, details } = shown(place)
  return Result.fail(
    new JournalNotFound({
      kind: "journal_not_found",
      message: `No journal is stored ${where}: write its first one, or check the root, the goal and the key.`,
      details
    })
  )
}

/** What a turn that is not there is called. A path in a database may carry a password. */
const shown = ({ path, address }: Place): { readonly where: string; readonly details: Record<string, string> } => {
  if (!isDatabase(path)) return { where: `at ${path}`, details: { path } }
  if (address === null) return { where: "there", details: {} }
  const { goalId, turnKey } = address
  return { where: `in that database for ${goalId}/${turnKey}`, details: { goal_id: goalId, turn_key: turnKey } }
}
