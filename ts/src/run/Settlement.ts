/** Tool calls whose outcome is not known, and questions, and how both are settled: run-journal.md, sections 3 and 4. */
import { type Attempt, addAttempt, readAttempts, readLastSeq, wentOn } from "./Attempts.ts"
import type { Database, Row } from "./Database.ts"
import { conflict, invalid, RunNotFound } from "./Errors.ts"
import { KIND_APPROVAL, KIND_TOOL_CALL, KIND_TOOL_RESULT, now } from "./Events.ts"
import { decode, encode, type Payload, same, type Value } from "./Payload.ts"
import { decodeRow, mustBeRecorded, type Redact, storedText } from "./Runs.ts"

/** A tool call that may have happened. */
export interface UncertainStep {
  readonly runId: string
  readonly seq: number
  readonly tool: string
  readonly args: Value
  readonly idempotencyKey: string
  readonly createdAt: number
  /** The type and message of the error that the last attempt ended with; null when nothing is known. */
  readonly errorType: string | null
  readonly message: string | null
}

/** A question that waits for a decision. */
export interface PendingApproval {
  readonly runId: string
  readonly seq: number
  readonly question: string
  readonly binds: Value
  readonly askedAt: number
}

/** What became of a step: its result, or that it did not happen and may run. */
export type Settlement = { readonly result: unknown } | { readonly absent: true }

/** A call without an outcome, and the last attempt at it. */
interface OpenCall {
  readonly row: Row
  readonly attempt: Attempt | undefined
}

/** The calls of a run that have no outcome and that nobody has settled. */
export const openCalls = (database: Database, runId: string): ReadonlyArray<OpenCall> => {
  const calls = database.read(
    "SELECT call.seq AS seq, CAST(call.payload AS BLOB) AS payload, call.created_at AS created_at FROM journal AS call " +
      "WHERE call.run_id = ? AND call.kind = 'tool_call' AND NOT EXISTS (SELECT 1 FROM journal WHERE run_id = call.run_id " +
      "AND seq = call.seq AND kind = 'tool_result') ORDER BY call.seq",
    runId
  )
  if (calls.length === 0) return []
  const attempts = readAttempts(database, runId)
  const lastSeq = readLastSeq(database, runId)
  return calls
    .map((row) => ({ row, attempt: attempts.get(row["seq"] as number) }))
    .filter(({ attempt }) => attempt?.state !== "absent" && !wentOn(attempt, lastSeq))
}

export const uncertain = (database: Database, runId: string): ReadonlyArray<UncertainStep> =>
  database.snapshot(() =>
    openCalls(database, runId).map(({ row, attempt }) => {
      const seq = row["seq"] as number
      const call = decodeRow(runId, { seq, kind: KIND_TOOL_CALL, payload: row["payload"] as Uint8Array })
      return {
        runId,
        seq,
        tool: String(call["name"] ?? ""),
        args: call["args"] ?? null,
        idempotencyKey: String(call["idempotency_key"] ?? ""),
        createdAt: row["created_at"] as number,
        errorType: attempt?.errorType ?? null,
        message: attempt?.message ?? null
      }
    })
  )

export const settle = (
  database: Database,
  redact: Redact | null,
  runId: string,
  seq: number,
  settlement: Settlement
): void => {
  const isAbsent = "absent" in settlement
  if (isAbsent === "result" in settlement) {
    throw invalid("Settle a step with its result or with absent: one of the two.")
  }
  const settled = "result" in settlement ? storedText(redact, { result: settlement.result ?? null }) : ""
  database.transaction(() => {
    const rows = new Map(
      database
        .read(
          "SELECT kind, CAST(payload AS BLOB) AS payload FROM journal WHERE run_id = ? AND seq = ? " +
            "AND kind IN ('tool_call', 'tool_result')",
          runId,
          seq
        )
        .map((row) => [row["kind"], row["payload"] as Uint8Array])
    )
    if (!rows.has(KIND_TOOL_CALL)) {
      mustBeRecorded(database, runId)
      throw new RunNotFound({
        kind: "run_not_found",
        message: `Run ${JSON.stringify(runId)} has no tool call at step ${seq}; \`uncertain\` lists those that can be settled.`,
        details: { run_id: runId, seq }
      })
    }
    const recorded = rows.get(KIND_TOOL_RESULT)
    if (recorded !== undefined) {
      const outcome = decodeRow(runId, { seq, kind: KIND_TOOL_RESULT, payload: recorded })["result"] ?? null
      if (!isAbsent && same(outcome, (decode(settled) as Payload)["result"] ?? null)) return
      throw conflict(
        `Step ${seq} of run ${JSON.stringify(runId)} has another outcome on record, which is never overwritten.`,
        { run_id: runId, seq }
      )
    }
    const attempt = readAttempts(database, runId).get(seq)
    if (wentOn(attempt, readLastSeq(database, runId))) {
      throw conflict(
        `Step ${seq} of run ${JSON.stringify(runId)} failed and the run went on from there; that is its recorded outcome.`,
        { run_id: runId, seq }
      )
    }
    if (!isAbsent) {
      database.write(
        "INSERT INTO journal (run_id, seq, kind, payload, created_at) VALUES (?, ?, 'tool_result', ?, ?)",
        runId,
        seq,
        settled,
        now()
      )
    } else if (attempt?.state !== "absent") {
      addAttempt(database, runId, seq, {
        kind: KIND_TOOL_CALL,
        state: "absent",
        errorType: null,
        message: null,
        nextSeq: null
      })
    }
  })
}

export const approve = (
  database: Database,
  redact: Redact | null,
  runId: string,
  seq: number,
  decision: unknown,
  by: string
): void => {
  if (decision === null || decision === undefined || by === "") {
    throw invalid("A decision is a JSON value other than null, and `by` names who made it.")
  }
  database.transaction(() => {
    const [row] = database.read(
      "SELECT CAST(payload AS BLOB) AS payload FROM journal WHERE run_id = ? AND seq = ? AND kind = 'approval'",
      runId,
      seq
    )
    if (row === undefined) {
      mustBeRecorded(database, runId)
      throw new RunNotFound({
        kind: "run_not_found",
        message: `Run ${JSON.stringify(runId)} has asked nothing at step ${seq}; \`pendingApprovals\` lists what waits.`,
        details: { run_id: runId, seq }
      })
    }
    const asked = decodeRow(runId, { seq, kind: KIND_APPROVAL, payload: row["payload"] as Uint8Array })
    const kept = decode(storedText(redact, { decision, by })) as Payload
    if (asked["decision"] !== undefined) {
      if (same(asked["decision"], kept["decision"] ?? null)) return
      throw conflict(
        `Step ${seq} of run ${JSON.stringify(runId)} was decided otherwise by ${JSON.stringify(asked["by"])}; a decision is never overwritten.`,
        { run_id: runId, seq }
      )
    }
    database.write(
      "UPDATE journal SET payload = ? WHERE run_id = ? AND seq = ? AND kind = 'approval'",
      encode({ ...asked, ...kept, decided_at: now() }),
      runId,
      seq
    )
  })
}

export const pendingApprovals = (database: Database, runId: string | null): ReadonlyArray<PendingApproval> =>
  database
    .read(
      "SELECT journal.run_id AS run_id, seq, CAST(payload AS BLOB) AS payload, journal.created_at AS created_at FROM runs " +
        "JOIN journal ON journal.run_id = runs.run_id " +
        "WHERE status = 'running' AND kind = 'approval' AND runs.run_id = COALESCE(?, runs.run_id) " +
        "ORDER BY runs.created_at, seq",
      runId
    )
    .flatMap((row) => {
      const run = row["run_id"] as string
      const seq = row["seq"] as number
      const asked = decodeRow(run, { seq, kind: KIND_APPROVAL, payload: row["payload"] as Uint8Array })
      if (asked["decision"] !== undefined) return []
      return [
        {
          runId: run,
          seq,
          question: String(asked["question"] ?? ""),
          binds: asked["binds"] ?? null,
          askedAt: row["created_at"] as number
        }
      ]
    })
