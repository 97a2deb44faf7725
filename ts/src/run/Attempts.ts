/**
 * What the attempts at steps came to, apart from their outcomes: a failed attempt is no outcome. run-journal.md, sections
 * 3 and 4.
 */
import type { Database } from "./Database.ts"

/** What may have become of an attempt. */
export const STATES = ["failed", "absent", "again"] as const

export interface Attempt {
  /** The kind of event that the step was to record first. */
  readonly kind: string
  readonly state: (typeof STATES)[number]
  readonly errorType: string | null
  readonly message: string | null
  /** The number that the next step would have got when the loop could know; null before that. */
  readonly nextSeq: number | null
}

/** The last attempt at each step of a run. */
export const readAttempts = (database: Database, runId: string): ReadonlyMap<number, Attempt> =>
  // Of one step's rows the last one stays.
  new Map(
    database
      .read(
        "SELECT seq, kind, state, error_type, message, next_seq FROM step_attempts WHERE run_id = ? ORDER BY seq, attempt",
        runId
      )
      .map((row) => [
        row["seq"] as number,
        {
          kind: row["kind"] as string,
          state: row["state"] as Attempt["state"],
          errorType: row["error_type"] as string | null,
          message: row["message"] as string | null,
          nextSeq: row["next_seq"] as number | null
        }
      ])
  )

export const addAttempt = (database: Database, runId: string, seq: number, attempt: Attempt): void => {
  database.write(
    "INSERT INTO step_attempts (run_id, seq, attempt, kind, state, error_type, message, next_seq, created_at) " +
      "SELECT ?, ?, (SELECT COALESCE(MAX(attempt), 0) + 1 FROM step_attempts WHERE run_id = ? AND seq = ?), " +
      "?, ?, ?, ?, ?, ?",
    runId,
    seq,
    runId,
    seq,
    attempt.kind,
    attempt.state,
    attempt.errorType,
    attempt.message,
    attempt.nextSeq,
    Date.now() / 1000
  )
}

/** The highest number that a run has issued, as far as the record shows; -1 when it has none. */
export const readLastSeq = (database: Database, runId: string): number => {
  const [row] = database.read(
    "SELECT MAX(seq) AS last FROM (SELECT MAX(seq) AS seq FROM journal WHERE run_id = ? " +
      "UNION ALL SELECT MAX(seq) FROM step_attempts WHERE run_id = ?)",
    runId,
    runId
  )
  return (row?.["last"] as number | null | undefined) ?? -1
}

/** Whether a step failed and its loop issued another one after that: then the failure is part of the record. */
export const wentOn = (attempt: Attempt | undefined, lastSeq: number): boolean =>
  attempt !== undefined && attempt.nextSeq !== null && attempt.nextSeq <= lastSeq
