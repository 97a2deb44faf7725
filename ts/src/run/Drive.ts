/**
 * One drive of one run: the claim on it, its record as it was found, and the writes that only its holder can make. Every
 * write asks in its own statement for the owner and the fence of this drive, so that a driver which has lost the run can
 * no longer change it. The twin of run_journal/drive.py: run-journal.md, section 4.
 */
import { TurnBusy } from "../contract/Errors.ts"
import { type Attempt, addAttempt, readAttempts, readLastSeq } from "./Attempts.ts"
import type { Database } from "./Database.ts"
import { conflict, ResumeBudgetExhausted } from "./Errors.ts"
import { type Kind, now, RUNNING } from "./Events.ts"
import type { Ownership } from "./Ownership.ts"
import { decode, same } from "./Payload.ts"
import { closeRun, decodeRow, type NewRun, openRun, type Redact, storedEvents } from "./Runs.ts"

export interface Drive {
  readonly runId: string
  /** Whether the run has ended, and is only replayed. */
  readonly hasEnded: boolean
  /** The stored payloads by number and kind. */
  readonly record: ReadonlyMap<number, ReadonlyMap<Kind, Uint8Array>>
  readonly attempts: ReadonlyMap<number, Attempt>
  /** The highest number in the record; -1 when it is empty. */
  readonly lastSeq: number
  /** Records an event once: the same again is no error, another content is refused. */
  readonly insert: (seq: number, kind: Kind, payload: string) => void
  /** Puts another content at a step whose caller has asked for that in so many words. */
  readonly replace: (seq: number, kind: Kind, payload: string) => void
  readonly attempt: (seq: number, attempt: Attempt) => void
  /** Throws when the run is another driver's. */
  readonly look: () => void
  readonly finish: (outcome: string) => void
  readonly release: (isSuspended: boolean) => void
}

export interface DriveOptions extends Omit<NewRun, "checkpointId"> {
  /** How often the run may be resumed; each resume is counted before it starts. */
  readonly maxResumes?: number
  /** Take the run also from a driver that is alive; what that one records afterwards is refused. */
  readonly takeOver?: boolean
}

const HELD = "FROM run_drives WHERE run_id = ? AND fence = ? AND owner = ?"

/**
 * Takes a run for one driver, or its record alone when it has ended. Throws `TurnBusy` when a living driver has it that
 * is not to be replaced, and `ResumeBudgetExhausted` when it was resumed too often.
 */
export const claim = (
  database: Database,
  ownership: Ownership,
  redact: Redact | null,
  runId: string,
  { maxResumes = 20, takeOver = false, ...run }: DriveOptions
): Drive => {
  const owner = ownership.owner()
  return database.transaction(() => {
    const [found] = database.read("SELECT status FROM runs WHERE run_id = ?", runId)
    if (found !== undefined && found["status"] !== RUNNING) return make(database, ownership, runId, null, 0, true)
    if (!takeOver) ownership.refuseDriven(runId)
    const [before] = database.read("SELECT fence, resumes, suspended FROM run_drives WHERE run_id = ?", runId)
    const isResume = before !== undefined || (found !== undefined && readLastSeq(database, runId) >= 0)
    let resumes = (before?.["resumes"] as number | undefined) ?? 0
    // Going on after an answer is no recovery: a run that asks often does not use up its budget.
    if (isResume && before?.["suspended"] !== 1) {
      if (resumes >= maxResumes) {
        throw new ResumeBudgetExhausted({
          kind: "resume_budget_exhausted",
          message: `Run ${JSON.stringify(runId)} has been resumed ${resumes} times without an end; nothing was run. Look for what kills it, then raise maxResumes, or close the run.`,
          details: { run_id: runId, resumes, max_resumes: maxResumes }
        })
      }
      resumes += 1
    }
    if (found === undefined) openRun(database, redact, runId, run)
    const fence = ((before?.["fence"] as number | undefined) ?? 0) + 1
    database.write(
      "INSERT INTO run_drives (run_id, owner, holder, fence, resumes, suspended) VALUES (?, ?, ?, ?, ?, 0) " +
        "ON CONFLICT (run_id) DO UPDATE SET owner = excluded.owner, holder = excluded.holder, fence = excluded.fence, " +
        "resumes = excluded.resumes, suspended = 0",
      runId,
      owner.token,
      owner.holder,
      fence,
      resumes
    )
    const drive = make(database, ownership, runId, owner.token, fence, isResume)
    ownership.begin(runId, drive)
    return drive
  })
}

const make = (
  database: Database,
  ownership: Ownership,
  runId: string,
  token: string | null,
  fence: number,
  isResume: boolean
): Drive => {
  const record = new Map<number, Map<Kind, Uint8Array>>()
  for (const { seq, kind, payload } of isResume ? storedEvents(database, runId) : []) {
    const kinds = record.get(seq) ?? new Map<Kind, Uint8Array>()
    record.set(seq, kinds.set(kind, payload))
  }
  const attempts: ReadonlyMap<number, Attempt> = isResume ? readAttempts(database, runId) : new Map()
  const holder = [runId, fence, token] as const

  const lost = (): TurnBusy =>
    new TurnBusy({
      kind: "turn_busy",
      message: `Run ${JSON.stringify(runId)} is no longer driven from here: another driver has taken it over, or this one has ended. What it was about to record was not recorded.`,
      details: { run_id: runId, fence }
    })
  const isHeld = (): boolean => database.read(`SELECT 1 ${HELD}`, ...holder).length > 0
  const held = (body: () => void): void =>
    database.transaction(() => {
      if (!isHeld()) throw lost()
      body()
    })
  const letGo = (isSuspended: boolean): number =>
    database.write(
      "UPDATE run_drives SET owner = NULL, holder = NULL, suspended = ? WHERE run_id = ? AND fence = ? AND owner = ?",
      isSuspended ? 1 : 0,
      ...holder
    )

  const explain = (seq: number, kind: Kind, payload: string): void =>
    database.snapshot(() => {
      if (!isHeld()) throw lost()
      const [row] = database.read(
        "SELECT CAST(payload AS BLOB) AS payload FROM journal WHERE run_id = ? AND seq = ? AND kind = ?",
        runId,
        seq,
        kind
      )
      if (row !== undefined) {
        const recorded = decodeRow(runId, { seq, kind, payload: row["payload"] as Uint8Array })
        if (same(recorded, decode(payload))) return
      }
      throw conflict(
        `Step ${seq} of run ${JSON.stringify(runId)} has another ${kind} on record, which is never overwritten: it was settled while the tool ran.`,
        { run_id: runId, seq, kind }
      )
    })

  const drive: Drive = {
    runId,
    hasEnded: token === null,
    record,
    attempts,
    lastSeq: Math.max(-1, ...lastOf(record.keys()), ...lastOf(attempts.keys())),
    insert: (seq, kind, payload) => {
      const changed = database.write(
        "INSERT INTO journal (run_id, seq, kind, payload, created_at) " +
          `SELECT run_id, ?, ?, ?, ? ${HELD} ON CONFLICT (run_id, seq, kind) DO NOTHING`,
        seq,
        kind,
        payload,
        now(),
        ...holder
      )
      if (changed === 0) explain(seq, kind, payload)
    },
    replace: (seq, kind, payload) =>
      held(() =>
        database.write(
          "UPDATE journal SET payload = ? WHERE run_id = ? AND seq = ? AND kind = ?",
          payload,
          runId,
          seq,
          kind
        )
      ),
    attempt: (seq, attempt) => held(() => addAttempt(database, runId, seq, attempt)),
    look: () => {
      if (!isHeld()) throw lost()
    },
    finish: (outcome) => {
      held(() => {
        closeRun(database, runId, outcome, " AND status = 'running'")
        // The end of a loop comes after each of its failures: none of them is the run's last word.
        database.write("UPDATE step_attempts SET next_seq = seq WHERE run_id = ? AND state = 'failed'", runId)
        letGo(false)
      })
      ownership.end(runId, drive)
    },
    release: (isSuspended) => {
      ownership.end(runId, drive)
      if (token !== null) letGo(isSuspended)
    }
  }
  return drive
}

const lastOf = (numbers: Iterable<number>): ReadonlyArray<number> => {
  let last = -1
  for (const number of numbers) if (number > last) last = number
  return [last]
}
