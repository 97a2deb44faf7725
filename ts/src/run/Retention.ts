/**
 * Runs that are over, removed whole: the twin of run_journal/retention.py. run-journal.md, section 1.
 *
 * A run that may still be needed stays: one that goes on, one with an effect whose outcome nobody knows, one inside of a
 * tool call that is still open, which would do its steps again, and one of a turn, of which only the turn's root knows
 * whether it is over.
 */
import type { Database } from "./Database.ts"
import { invalid } from "./Errors.ts"
import { isTerminal, now, RUNNING } from "./Events.ts"
import type { Ownership } from "./Ownership.ts"
import { decode, type Payload } from "./Payload.ts"
import { RUN_TABLES } from "./Schema.ts"
import { openCalls } from "./Settlement.ts"

export interface PruneOptions {
  /** How many of the runs that ended stay, the latest ones. */
  readonly keep?: number | null
  /** Only says what would be removed. */
  readonly dryRun?: boolean
}

/** How long one transaction removes runs, in ms: so long a writer waits, or as long as a single run takes. */
const AT_A_TIME = 20
/** Who waits for a file asks again after at most so many ms, and finds it free in this pause between transactions. */
export const PAUSE = 100
/** How many runs one transaction looks at, at most. */
export const LOOKED_AT = 500

/** A turn's key, and what is named after it: work that was begun anew, and the runs inside of its tools. */
const OF_A_TURN = /^sha256:[0-9a-f]{64}(?:\.[0-9]+)?(?::.*)?$/s

export interface Prunable {
  /** Oldest first. */
  readonly runIds: ReadonlyArray<string>
  /** Only those that had ended by then, in seconds since the epoch. */
  readonly before: number
}

/** The runs that ended so long ago. */
export const prunable = (database: Database, olderThan: number, keep: number | null): Prunable => {
  if (!Number.isFinite(olderThan) || olderThan < 0) throw invalid("An age is a number of seconds.")
  if (keep !== null && !(Number.isSafeInteger(keep) && keep >= 0)) {
    throw invalid("How many runs stay is an integer from 0.")
  }
  const before = now() - olderThan
  const ended = database
    .read("SELECT run_id, status, updated_at FROM runs ORDER BY updated_at, rowid")
    .filter((row) => isTerminal(row["status"] as string) && !OF_A_TURN.test(row["run_id"] as string))
  const going = ended.slice(0, Math.max(ended.length - (keep ?? 0), 0))
  // After the runs: a call that was begun since is of none of them.
  const needed = insideOfOpenCalls(database)
  const runIds = going
    .filter((row) => (row["updated_at"] as number) <= before && !needed.has(row["run_id"] as string))
    .map((row) => row["run_id"] as string)
  return { runIds, before }
}

/**
 * The runs that tools go on with when they are begun again: those of a run that goes on, and of one that has ended and
 * stays, which may be opened again or forked.
 */
const insideOfOpenCalls = (database: Database): ReadonlySet<string> =>
  database.snapshot(() => {
    const calls = database.read(
      "SELECT call.run_id AS run_id, status, CAST(call.payload AS BLOB) AS payload FROM runs " +
        "JOIN journal AS call ON call.run_id = runs.run_id " +
        "WHERE call.kind = 'tool_call' AND NOT EXISTS (SELECT 1 FROM journal AS result " +
        "WHERE result.run_id = call.run_id AND result.seq = call.seq AND result.kind = 'tool_result')"
    )
    const ended = calls.filter((row) => row["status"] !== RUNNING).map((row) => row["run_id"] as string)
    const left = Array.from(new Set(ended)).flatMap((runId) => openCalls(database, runId).map(({ row }) => row))
    const running = calls.filter((row) => row["status"] === RUNNING)
    return new Set(
      [...running, ...left].flatMap((row) => {
        try {
          return [String((decode(row["payload"] as Uint8Array) as Payload)["idempotency_key"])]
        } catch {
          return [] // such a run cannot be driven
        }
      })
    )
  })

/**
 * Removes some of these runs in one transaction, as many as there is time for, the first one in any case; by run,
 * whether it went, or would.
 */
export const remove = (
  database: Database,
  ownership: Ownership,
  { runIds, before }: Prunable,
  dryRun: boolean
): ReadonlyMap<string, boolean> => {
  const within = dryRun ? database.snapshot : database.transaction
  return within(() => {
    const gone = new Map<string, boolean>()
    const until = performance.now() + AT_A_TIME
    for (const runId of runIds) {
      gone.set(runId, mayGo(database, ownership, runId, before))
      if (gone.get(runId) === true && !dryRun) deleteRows(database, runId)
      if (performance.now() >= until) break
    }
    return gone
  })
}

const mayGo = (database: Database, ownership: Ownership, runId: string, before: number): boolean => {
  const [found] = database.read(
    "SELECT status, updated_at, owner FROM runs LEFT JOIN run_drives ON run_drives.run_id = runs.run_id " +
      "WHERE runs.run_id = ?",
    runId
  )
  return (
    found !== undefined &&
    isTerminal(found["status"] as string) &&
    (found["updated_at"] as number) <= before &&
    !ownership.isDriven(runId, found["owner"] as string | null) &&
    openCalls(database, runId).length === 0
  )
}

/** All that is stored of a run; what was forked from it is whole by itself, and still names it. */
export const deleteRows = (database: Database, runId: string): void => {
  for (const table of RUN_TABLES) database.write(`DELETE FROM ${table} WHERE run_id = ?`, runId)
}

export const deleteRun = (database: Database, ownership: Ownership, runId: string): void => {
  database.transaction(() => {
    ownership.refuseDriven(runId)
    deleteRows(database, runId)
  })
  database.emptyLog()
}
