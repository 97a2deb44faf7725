/** The runs and their events in the database: run-journal.md, section 1. Everything throws the run journal's errors. */
import { JournalCorrupt } from "../contract/Errors.ts"
import type { Database } from "./Database.ts"
import { checkRunId, invalid, ReplayDivergence, unknownRun } from "./Errors.ts"
import { isTerminal, type JournalEvent, KINDS, type Kind, type NewEvent, now, RUNNING, type RunMeta } from "./Events.ts"
import type { Ownership } from "./Ownership.ts"
import { decode, encode, type Payload, type Value } from "./Payload.ts"
import { ITERATION_INDEX } from "./Schema.ts"

/** What may not be kept is taken out before anything is stored; it gets a copy. */
export type Redact = (payload: Payload) => Payload

export interface NewRun {
  readonly agent?: string
  readonly task?: string
  readonly checkpointId?: string | null
  readonly metadata?: unknown
}

export interface StoredEvent {
  readonly seq: number
  readonly kind: Kind
  readonly payload: Uint8Array
  readonly createdAt: number
}

export const storedText = (redact: Redact | null, payload: unknown): string => {
  const text = encode(payload)
  return redact === null ? text : encode(redact(decode(text) as Payload))
}

export const openRun = (database: Database, redact: Redact | null, runId: string, run: NewRun): void => {
  checkRunId(runId)
  const given = { agent: run.agent ?? "", task: run.task ?? "", metadata: run.metadata ?? {} }
  encode(given.metadata)
  const { agent, task, metadata } = saidOf(decode(storedText(redact, given)) as Payload)
  const at = now()
  database.write(
    "INSERT INTO runs (run_id, agent, task, status, outcome, checkpoint_id, created_at, updated_at, metadata) " +
      "VALUES (?, ?, ?, 'running', NULL, ?, ?, ?, ?) ON CONFLICT (run_id) DO UPDATE SET status = 'running', " +
      "outcome = NULL, checkpoint_id = COALESCE(excluded.checkpoint_id, checkpoint_id), updated_at = excluded.updated_at",
    runId,
    agent,
    task,
    run.checkpointId ?? null,
    at,
    at,
    encode(metadata)
  )
}

/** The agent, the task and the metadata of a run, as `redact` lets them be kept: what it leaves out is empty. */
export const saidOf = ({ agent, task, metadata }: Payload): { agent: string; task: string; metadata: Value } => ({
  agent: String(agent ?? ""),
  task: String(task ?? ""),
  metadata: metadata ?? {}
})

export const setCheckpoint = (database: Database, runId: string, checkpointId: string): void => {
  const changed = database.write(
    "UPDATE runs SET checkpoint_id = ?, updated_at = ? WHERE run_id = ?",
    checkpointId,
    now(),
    runId
  )
  if (changed === 0) throw unknownRun(runId)
}

export const closeRun = (database: Database, runId: string, outcome: string, only = ""): number =>
  database.write(
    `UPDATE runs SET status = ?, outcome = ?, updated_at = ? WHERE run_id = ?${only}`,
    isTerminal(outcome) ? outcome : "done",
    outcome,
    now(),
    runId
  )

export const runMeta = (database: Database, runId: string): RunMeta | null => {
  const [row] = database.read(
    "SELECT run_id, agent, task, status, outcome, checkpoint_id, created_at, updated_at, " +
      "CAST(metadata AS BLOB) AS metadata FROM runs WHERE run_id = ?",
    runId
  )
  if (row === undefined) return null
  let metadata: Value
  try {
    metadata = row["metadata"] === null ? {} : decode(row["metadata"] as Uint8Array)
  } catch (error) {
    throw new JournalCorrupt({
      kind: "journal_corrupt",
      message: `The metadata of run ${JSON.stringify(runId)} is damaged: ${(error as Error).message}.`,
      details: { run_id: runId, table: "runs" }
    })
  }
  return {
    runId,
    agent: row["agent"] as string,
    task: row["task"] as string,
    status: row["status"] as string,
    outcome: row["outcome"] as string | null,
    checkpointId: row["checkpoint_id"] as string | null,
    createdAt: row["created_at"] as number,
    updatedAt: row["updated_at"] as number,
    metadata: metadata as Payload
  }
}

export const interruptedRuns = (
  database: Database,
  ownership: Ownership,
  includeOwned: boolean
): ReadonlyArray<string> => {
  const read = () =>
    database.read(
      "SELECT runs.run_id AS run_id, owner FROM runs LEFT JOIN run_drives ON run_drives.run_id = runs.run_id " +
        "WHERE status = ? ORDER BY runs.created_at, runs.rowid",
      RUNNING
    )
  const found = includeOwned ? read() : ownership.undriven(read)
  return found.map((row) => row["run_id"] as string)
}

const UPSERT =
  "INSERT INTO journal (run_id, seq, kind, payload, created_at) VALUES (?, ?, ?, ?, ?) " +
  "ON CONFLICT (run_id, seq, kind) DO UPDATE SET payload = excluded.payload, created_at = excluded.created_at"

export const append = (database: Database, redact: Redact | null, event: NewEvent): void => {
  database.write(UPSERT, ...rowOf(redact, event))
}

export const appendMany = (database: Database, redact: Redact | null, events: Iterable<NewEvent>): void => {
  const rows = Array.from(events, (event) => rowOf(redact, event))
  database.transaction(() => {
    for (const row of rows) database.write(UPSERT, ...row)
  })
}

const rowOf = (redact: Redact | null, event: NewEvent): [string, number, Kind, string, number] => {
  if (!KINDS.includes(event.kind)) {
    throw invalid(`The event kind ${JSON.stringify(event.kind)} is unknown; use one of ${KINDS.join(", ")}.`)
  }
  if (!Number.isSafeInteger(event.seq) || event.seq < 0) throw invalid("A step's number is an integer from 0.")
  checkRunId(event.runId)
  return [event.runId, event.seq, event.kind, storedText(redact, event.payload ?? {}), event.createdAt ?? now()]
}

export const storedEvents = (database: Database, runId: string): ReadonlyArray<StoredEvent> =>
  database
    .read(
      "SELECT seq, kind, CAST(payload AS BLOB) AS payload, created_at FROM journal WHERE run_id = ? ORDER BY seq, rowid",
      runId
    )
    .map((row) => ({
      seq: row["seq"] as number,
      kind: row["kind"] as Kind,
      payload: row["payload"] as Uint8Array,
      createdAt: row["created_at"] as number
    }))

/** The payload of one row; one that is damaged is an error that names it. */
export const decodeRow = (runId: string, { seq, kind, payload }: Omit<StoredEvent, "createdAt">): Payload => {
  try {
    return decode(payload) as Payload
  } catch (error) {
    throw new JournalCorrupt({
      kind: "journal_corrupt",
      message: `The payload of run ${JSON.stringify(runId)}, step ${seq}, ${kind} is damaged: ${(error as Error).message}. It was left as it is: restore a backup.`,
      details: { run_id: runId, seq, kind }
    })
  }
}

export const events = (database: Database, runId: string): ReadonlyArray<JournalEvent> =>
  storedEvents(database, runId).map((stored) => ({
    runId,
    seq: stored.seq,
    kind: stored.kind,
    payload: decodeRow(runId, stored),
    createdAt: stored.createdAt
  }))

export const replayKey = (seq: number, kind: Kind): string => `${seq} ${kind}`

export const replayIndex = (database: Database, runId: string): ReadonlyMap<string, Payload> =>
  new Map(storedEvents(database, runId).map((stored) => [replayKey(stored.seq, stored.kind), decodeRow(runId, stored)]))

export const lastIteration = (database: Database, runId: string): number | bigint | null => {
  const [row] = database.readExactly(
    `SELECT ${ITERATION_INDEX} AS found FROM journal WHERE run_id = ? AND kind = 'iteration' ` +
      `ORDER BY ${ITERATION_INDEX} DESC LIMIT 1`,
    runId
  )
  const found = (row?.["found"] ?? null) as number | bigint | null
  if (found === null) return null
  if (typeof found === "bigint") return Number.isSafeInteger(Number(found)) ? Number(found) : found
  // SQLite rounds integers beyond 64 bits; the payloads have them exactly.
  const rows = database.read(
    "SELECT seq, CAST(payload AS BLOB) AS payload FROM journal WHERE run_id = ? AND kind = 'iteration' " +
      `AND ${ITERATION_INDEX} = ?`,
    runId,
    found
  )
  let highest: bigint | null = null
  for (const row of rows) {
    const { index } = decode(row["payload"] as Uint8Array) as { readonly index: bigint }
    if (highest === null || index > highest) highest = index
  }
  return highest
}

export type Step = readonly [number, Kind]

export const assertReplayOrder = (
  database: Database,
  runId: string,
  expected: ReadonlyArray<Step> | ReadonlyArray<Kind>
): void => {
  const rows = storedEvents(database, runId)
  const bare = typeof expected[0] === "string"
  const recorded = rows.map(({ seq, kind }) => JSON.stringify(bare ? kind : [seq, kind]))
  const issued = expected.map((step) => JSON.stringify(step))
  const length = Math.max(recorded.length, issued.length)
  const at = Array.from({ length }, (_, index) => index).find((index) => recorded[index] !== issued[index])
  if (at === undefined) return
  throw new ReplayDivergence({
    kind: "replay_divergence",
    message: `The replay of run ${JSON.stringify(runId)} parts from its record at event ${at}: recorded is ${recorded[at] ?? "nothing more"}, the replay has ${issued[at] ?? "nothing more"}. The loop's code or input has changed; replay with the old ones, or fork the run before it.`,
    details: {
      run_id: runId,
      seq: rows[at]?.seq ?? null,
      at,
      recorded: recorded.slice(at, at + 1).map((text) => JSON.parse(text)),
      issued: issued.slice(at, at + 1).map((text) => JSON.parse(text)),
      fields: ["order"]
    }
  })
}

const isIn = (database: Database, table: "runs" | "journal", runId: string): boolean =>
  database.read(`SELECT 1 FROM ${table} WHERE run_id = ? LIMIT 1`, runId).length > 0

export const mustBeRecorded = (database: Database, runId: string): void => {
  if (!isIn(database, "runs", runId)) throw unknownRun(runId)
}

/** Whether anything is stored under an id; events may be without a run. */
export const isTaken = (database: Database, runId: string): boolean =>
  isIn(database, "runs", runId) || isIn(database, "journal", runId)
