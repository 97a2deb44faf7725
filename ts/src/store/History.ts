/**
 * The history of a turn as text: one transition a line, each line naming the one before it. runtime.md section 6.
 *
 * A line is canonical JSON, so its bytes follow from its values: whatever changes a byte shows, and a store that keeps
 * values instead of text gives back the same bytes.
 */
import * as crypto from "node:crypto"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import { check, GREATEST_DEPTH, isObject, type JsonObject, type JsonValue } from "../contract/Json.ts"
import type { TurnAddress } from "../journal/Address.ts"
import type { Admission } from "../journal/Admission.ts"
import { canonicalText } from "../journal/Value.ts"

/** What a line says of a transition. */
export interface Transition {
  readonly seq: number
  /** When it was written: ISO 8601, UTC, milliseconds. */
  readonly at: string
  readonly operationId: string
  readonly status: string
  readonly completedPhases: ReadonlyArray<string>
  readonly journal: JsonObject
  /** The hash of the line before it; of the turn's identity, for the first one. */
  readonly prev: string
  readonly hash: string
  readonly hmac: string | null
  /** Set when the journal was found, written by another program, and not written here. */
  readonly adopted: boolean
  /** Set on a tombstone. */
  readonly pruned: Pruned | null
}

/** What a tombstone stands for; it may be the first line of a history, so it names its turn itself. */
export interface Pruned {
  /** The operation id of the journal that was pruned. */
  readonly operationId: string
  readonly turn: string
}

/** The end of a chain: what the next line follows. */
export type Link = Pick<Transition, "seq" | "hash" | "operationId" | "pruned">

export type SigningKey = Redacted.Redacted<string>

/** Why a line does not stand in its place. */
export type LineFault =
  | "line_damaged"
  | "line_changed"
  | "line_out_of_place"
  | "signature_missing"
  | "signature_invalid"

const sha256 = (text: string): string => `sha256:${crypto.hash("sha256", text, "hex")}`

/** What the first line follows: nobody can move a history to another turn. */
export const genesis = (turn: TurnAddress | null): string =>
  sha256(canonicalText({ goal_id: turn?.goalId ?? null, turn_key: turn?.turnKey ?? null }))

type Signed = Pick<Transition, "hash" | "hmac">
type Content = Omit<Transition, keyof Signed>

/** Writes the canonical JSON of a line, with as many of its signs as it is given; keys in the order of RFC 8785. */
const lineWriter = (content: Content, journal: string, phases: string): ((signs: Partial<Signed>) => string) => {
  const { adopted, at, operationId, prev, pruned, seq, status } = content
  const tombstone =
    pruned === null
      ? ""
      : `"pruned":{"operation_id":${JSON.stringify(pruned.operationId)},"turn":${JSON.stringify(pruned.turn)}},`
  const before = `{${adopted ? '"adopted":true,' : ""}"at":${JSON.stringify(at)},"completed_phases":${phases},`
  const after = `"journal":${journal},"operation_id":${JSON.stringify(operationId)},"prev":${JSON.stringify(prev)},${tombstone}"seq":${seq},"status":${JSON.stringify(status)}}`
  return ({ hash, hmac }) =>
    before +
    (hash === undefined ? "" : `"hash":"${hash}",`) +
    (hmac === undefined || hmac === null ? "" : `"hmac":"${hmac}",`) +
    after
}

const sign = (key: SigningKey, text: string): string =>
  crypto.createHmac("sha256", Redacted.value(key)).update(text, "utf8").digest("hex")

export interface Line {
  readonly text: string
  readonly link: Link
}

/** Writes the line that follows `previous`; the first one when it is null. */
export const writeLine = (
  previous: Link | null,
  turn: TurnAddress | null,
  { journal, canonical, operationId, examination }: Admission,
  { at, adopted = false, prunes = null, key }: LineOptions
): Line => {
  const content: Content = {
    seq: (previous?.seq ?? 0) + 1,
    at,
    operationId,
    status: examination.status,
    completedPhases: examination.completed,
    journal,
    prev: previous?.hash ?? genesis(turn),
    adopted,
    pruned: prunes === null ? null : { operationId: prunes, turn: genesis(turn) }
  }
  const textWith = lineWriter(content, canonical, JSON.stringify(examination.completed))
  const hmac = key === null ? null : sign(key, textWith({}))
  const hash = sha256(textWith({ hmac }))
  return {
    text: textWith({ hash, hmac }),
    link: { seq: content.seq, hash, operationId, pruned: content.pruned }
  }
}

export interface LineOptions {
  readonly at: string
  readonly adopted?: boolean
  /** The operation id of the journal that this one is the tombstone of. */
  readonly prunes?: string | null
  readonly key: SigningKey | null
}

/** Reads the line that ought to follow `previous`, and says what is wrong with it otherwise. */
export const readLine = (
  text: string,
  previous: Link | null,
  turn: TurnAddress | null,
  key: SigningKey | null
): Result.Result<Transition, LineFault> => {
  const record = parseRecord(text)
  if (record === null) return Result.fail("line_damaged")
  let body: string
  try {
    body = canonicalText(record.journal)
  } catch {
    return Result.fail("line_damaged")
  }
  const textWith = lineWriter(record, body, JSON.stringify(record.completedPhases))
  if (textWith(record) !== text) return Result.fail("line_damaged")
  if (sha256(textWith({ hmac: record.hmac })) !== record.hash) return Result.fail("line_changed")
  if (sha256(body) !== record.operationId) return Result.fail("line_changed")
  if (!follows(record, previous, turn)) return Result.fail("line_out_of_place")
  if (key !== null) {
    if (record.hmac === null) return Result.fail("signature_missing")
    if (!sameSecret(sign(key, textWith({})), record.hmac)) {
      return Result.fail("signature_invalid")
    }
  }
  return Result.succeed(record)
}

/** A tombstone may stand first in a history whose beginning was pruned. */
const follows = (record: Transition, previous: Link | null, turn: TurnAddress | null): boolean =>
  (record.pruned === null || record.pruned.turn === genesis(turn)) &&
  (previous === null
    ? record.pruned !== null
      ? record.seq > 1
      : record.seq === 1 && record.prev === genesis(turn)
    : record.seq === previous.seq + 1 && record.prev === previous.hash)

const sameSecret = (left: string, right: string): boolean =>
  left.length === right.length && crypto.timingSafeEqual(Buffer.from(left), Buffer.from(right))

const REQUIRED = ["at", "completed_phases", "hash", "journal", "operation_id", "prev", "seq", "status"]
const OPTIONAL = ["adopted", "hmac", "pruned"]

const parseRecord = (text: string): Transition | null => {
  let value: JsonValue
  try {
    value = JSON.parse(text) as JsonValue
  } catch {
    return null
  }
  if (!isObject(value) || !isObject(value["journal"]) || check(value["journal"], GREATEST_DEPTH) !== null) return null
  const record = value as Record<string, JsonValue | undefined>
  if (!REQUIRED.every((name) => Object.hasOwn(record, name))) return null
  if (!Object.keys(record).every((name) => REQUIRED.includes(name) || OPTIONAL.includes(name))) return null
  const { at, completed_phases: phases, hash, journal, operation_id: operationId, prev, seq, status } = record
  const { adopted, hmac, pruned } = record
  if (!isText(at) || !isText(hash) || !isText(operationId) || !isText(prev) || !isText(status)) return null
  if (!Number.isSafeInteger(seq) || !Array.isArray(phases) || !phases.every(isText)) return null
  if ((hmac !== undefined && !isText(hmac)) || (adopted !== undefined && adopted !== true)) return null
  const tombstone = pruned === undefined ? null : parsePruned(pruned)
  if (tombstone === undefined) return null
  return {
    seq: seq as number,
    at,
    operationId,
    status,
    completedPhases: phases,
    journal: journal as JsonObject,
    prev,
    hash,
    hmac: hmac ?? null,
    adopted: adopted === true,
    pruned: tombstone
  }
}

const parsePruned = (value: JsonValue): Pruned | undefined => {
  if (!isObject(value)) return undefined
  const { operation_id: operationId, turn } = value
  return isText(operationId) && isText(turn) ? { operationId, turn } : undefined
}

const isText = (value: unknown): value is string => typeof value === "string"

export const linkOf = ({ seq, hash, operationId, pruned }: Transition): Link => ({ seq, hash, operationId, pruned })
