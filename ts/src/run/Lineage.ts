/** Runs that come from runs, and where two of them part: run-journal.md, section 4. */
import { readLastSeq } from "./Attempts.ts"
import type { Database } from "./Database.ts"
import { checkRunId, conflict, invalid } from "./Errors.ts"
import { KIND_TOOL_RESULT, type Kind, now } from "./Events.ts"
import { differingFields, type Payload } from "./Payload.ts"
import { decodeRow, isTaken, mustBeRecorded, storedEvents } from "./Runs.ts"

/** The first step at which two runs part. */
export interface RunDifference {
  readonly seq: number
  readonly kind: Kind
  /** The fields that differ; `["kind"]` when one run has another kind of step there, or none. */
  readonly fields: ReadonlyArray<string>
  readonly a: Payload | null
  readonly b: Payload | null
  /** What kind of event each run has there; null for one that has none. */
  readonly kinds: readonly [Kind | null, Kind | null]
  /** The run whose record ends there, so that it is the beginning of the other one's; null when both go on. */
  readonly ended: "a" | "b" | null
}

/** What differs between runs that did the same: keys, snapshots and times are each run's own, labels a provider's. */
const INCIDENTAL = new Set(["idempotency_key", "tool_call_id", "checkpoint_id", "decided_at"])

export const fork = (database: Database, runId: string, newRunId: string, upto: number): void => {
  checkRunId(newRunId)
  if (!Number.isSafeInteger(upto) || upto < 0) throw invalid("A step's number is an integer from 0.")
  database.transaction(() => {
    mustBeRecorded(database, runId)
    if (isTaken(database, newRunId)) {
      throw conflict(`The run ${JSON.stringify(newRunId)} exists; a fork is a new run.`, { run_id: newRunId })
    }
    const at = now()
    database.write(
      "INSERT INTO runs (run_id, agent, task, status, outcome, checkpoint_id, created_at, updated_at, metadata) " +
        "SELECT ?, agent, task, 'running', NULL, ?, ?, ?, metadata FROM runs WHERE run_id = ?",
      newRunId,
      checkpointAt(database, runId, upto),
      at,
      at,
      runId
    )
    database.write(
      "INSERT INTO journal (run_id, seq, kind, payload, created_at) SELECT ?, seq, kind, payload, created_at " +
        "FROM journal WHERE run_id = ? AND seq <= ? ORDER BY seq, rowid",
      newRunId,
      runId,
      upto
    )
    // A failure that the loop went on after is part of the record, also when the fork ends with it.
    database.write(
      "INSERT INTO step_attempts (run_id, seq, attempt, kind, state, error_type, message, next_seq, created_at) " +
        "SELECT ?, seq, attempt, kind, state, error_type, message, CASE WHEN next_seq <= ? THEN seq ELSE next_seq END, " +
        "created_at FROM step_attempts WHERE run_id = ? AND seq <= ?",
      newRunId,
      readLastSeq(database, runId),
      runId,
      upto
    )
    database.write("INSERT INTO run_lineage (run_id, parent_run_id, upto) VALUES (?, ?, ?)", newRunId, runId, upto)
  })
}

/** The snapshot that the last step up to there left; the run's own when nothing comes after. */
const checkpointAt = (database: Database, runId: string, upto: number): string | null => {
  const all = storedEvents(database, runId)
  const results = all.filter(({ seq, kind }) => seq <= upto && kind === KIND_TOOL_RESULT).reverse()
  for (const result of results) {
    const found = decodeRow(runId, result)["checkpoint_id"]
    if (typeof found === "string") return found
  }
  if (all.some(({ seq }) => seq > upto)) return null
  const [run] = database.read("SELECT checkpoint_id FROM runs WHERE run_id = ?", runId)
  return (run?.["checkpoint_id"] as string | null | undefined) ?? null
}

export const parent = (database: Database, runId: string): { readonly runId: string; readonly upto: number } | null => {
  const [row] = database.read("SELECT parent_run_id, upto FROM run_lineage WHERE run_id = ?", runId)
  return row === undefined ? null : { runId: row["parent_run_id"] as string, upto: row["upto"] as number }
}

export const diff = (database: Database, runA: string, runB: string): RunDifference | null =>
  database.snapshot(() => {
    for (const runId of [runA, runB]) mustBeRecorded(database, runId)
    const eventsA = storedEvents(database, runA)
    const eventsB = storedEvents(database, runB)
    for (let at = 0; ; at++) {
      const a = eventsA[at]
      const b = eventsB[at]
      if (a === undefined && b === undefined) return null
      if (a === undefined || b === undefined || a.seq !== b.seq || a.kind !== b.kind) {
        const first = a === undefined || (b !== undefined && isBefore(b, a)) ? b : a
        if (first === undefined) return null
        const [hereA, hereB] = [a, b].map((event) => (event?.seq === first.seq ? event : undefined))
        return {
          seq: first.seq,
          kind: first.kind,
          fields: ["kind"],
          a: hereA === undefined ? null : decodeRow(runA, hereA),
          b: hereB === undefined ? null : decodeRow(runB, hereB),
          kinds: [hereA?.kind ?? null, hereB?.kind ?? null],
          ended: a === undefined ? "a" : b === undefined ? "b" : null
        }
      }
      const payloads = { a: decodeRow(runA, a), b: decodeRow(runB, b) }
      const fields = differingFields(deed(payloads.a), deed(payloads.b))
      if (fields.length > 0) {
        return { seq: a.seq, kind: a.kind, fields, ...payloads, kinds: [a.kind, b.kind], ended: null }
      }
    }
  })

type Place = { readonly seq: number; readonly kind: Kind }

const isBefore = (one: Place, other: Place): boolean =>
  one.seq < other.seq || (one.seq === other.seq && one.kind < other.kind)

const deed = (payload: Payload): Payload =>
  Object.fromEntries(Object.entries(payload).filter(([name]) => !INCIDENTAL.has(name)))
