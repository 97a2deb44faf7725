/**
 * One run as lines of JSON, out of one journal and into another: the format of run_journal/transfer.py. The last line
 * counts and digests the ones before it, so that a cut or altered file is refused whole. run-journal.md, section 5.
 */
import { createHash } from "node:crypto"
import { InvalidJournal, StoreFailure } from "../contract/Errors.ts"
import { STATES } from "./Attempts.ts"
import type { Database } from "./Database.ts"
import { checkRunId, conflict, unknownRun } from "./Errors.ts"
import { isTerminal, KINDS, RUNNING } from "./Events.ts"
import { keptOf } from "./Failure.ts"
import type { Ownership } from "./Ownership.ts"
import { decode, encode, MAX_DEPTH, type Payload, type Value } from "./Payload.ts"
import { deleteRows } from "./Retention.ts"
import { decodeRow, isTaken, type Redact, runMeta, saidOf, storedEvents, storedText } from "./Runs.ts"

const FORMAT = "turn-journal-run"
const VERSION = 1
/** A line nests what it carries. */
const LEVELS = MAX_DEPTH + 2
const RUN = ["run_id", "agent", "task", "status", "outcome", "checkpoint_id", "created_at", "updated_at"] as const
const ATTEMPT = ["seq", "attempt", "kind", "state", "error_type", "message", "next_seq", "created_at"] as const

export const exportRun = (database: Database, runId: string): ReadonlyArray<string> =>
  database.snapshot(() => {
    const run = runMeta(database, runId)
    if (run === null) throw unknownRun(runId)
    const [drive] = database.read("SELECT fence, resumes FROM run_drives WHERE run_id = ?", runId)
    const [line] = database.read("SELECT parent_run_id, upto FROM run_lineage WHERE run_id = ?", runId)
    const attempts = database.read(
      `SELECT ${ATTEMPT.join(", ")} FROM step_attempts WHERE run_id = ? ORDER BY seq, attempt`,
      runId
    )
    const head = {
      format: FORMAT,
      version: VERSION,
      run: {
        run_id: run.runId,
        agent: run.agent,
        task: run.task,
        status: run.status,
        outcome: run.outcome,
        checkpoint_id: run.checkpointId,
        created_at: run.createdAt,
        updated_at: run.updatedAt,
        metadata: run.metadata
      },
      fence: (drive?.["fence"] as number | undefined) ?? 0,
      resumes: (drive?.["resumes"] as number | undefined) ?? 0,
      parent: line === undefined ? null : { run_id: line["parent_run_id"], upto: line["upto"] }
    }
    const lines = [
      encode(head, LEVELS),
      ...storedEvents(database, runId).map((stored) =>
        encode(
          {
            event: {
              seq: stored.seq,
              kind: stored.kind,
              payload: decodeRow(runId, stored),
              created_at: stored.createdAt
            }
          },
          LEVELS
        )
      ),
      ...attempts.map((attempt) => encode({ attempt: { ...attempt } }, LEVELS))
    ]
    return [...lines, encode({ lines: lines.length, sha256: digestOf(lines) })]
  })

const digestOf = (lines: ReadonlyArray<string>): string => {
  const hash = createHash("sha256")
  for (const line of lines) hash.update(`${line}\n`)
  return hash.digest("hex")
}

export const importRun = (
  database: Database,
  ownership: Ownership,
  redact: Redact | null,
  lines: Iterable<string>,
  overwrite: boolean
): string => {
  const { head, rows } = whole(lines)
  const run = objectAt(head, "run")
  const runId = cell(run, "run_id") as string
  checkRunId(runId)
  if (run["status"] !== RUNNING && !isTerminal(String(run["status"]))) throw refused("the status is unknown")
  const said = { agent: cell(run, "agent"), task: cell(run, "task"), metadata: objectAt(run, "metadata") }
  const { agent, task, metadata } = saidOf(redact === null ? said : (decode(storedText(redact, said)) as Payload))
  const shown: Payload = { ...run, agent, task }
  const runRow = RUN.map((name) => cell(shown, name))
  if (rows.some((row) => !isOnly(row, "event") && !isOnly(row, "attempt"))) {
    throw refused("a line is neither an event nor an attempt")
  }
  const events = rows.flatMap((row) => {
    if (row["event"] === undefined) return []
    const event = objectAt(row, "event")
    refuseUnknown("event kind", event["kind"], KINDS)
    const payload = storedText(redact, objectAt(event, "payload"))
    return [[cell(event, "seq"), cell(event, "kind"), payload, cell(event, "created_at")] as const]
  })
  const attempts = rows.flatMap((row) => {
    if (row["attempt"] === undefined) return []
    const attempt = redactedFailure(redact, objectAt(row, "attempt"))
    refuseUnknown("event kind", attempt["kind"], KINDS)
    refuseUnknown("state of an attempt", attempt["state"], STATES)
    return [ATTEMPT.map((name) => cell(attempt, name))]
  })
  const parent = head["parent"] === null ? null : objectAt(head, "parent")
  const drive = [cell(head, "fence"), cell(head, "resumes")]
  const line = parent === null ? [] : [cell(parent, "run_id"), cell(parent, "upto")]
  database.transaction(() => {
    if (isTaken(database, runId)) {
      if (!overwrite) {
        throw conflict(
          `Run ${JSON.stringify(runId)} is here already; nothing was imported. Pass overwrite to replace it.`,
          { run_id: runId }
        )
      }
      ownership.refuseDriven(runId)
      deleteRows(database, runId)
    }
    database.write(
      `INSERT INTO runs (${RUN.join(", ")}, metadata) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
      ...runRow,
      encode(metadata)
    )
    for (const event of events) {
      database.write(
        "INSERT INTO journal (run_id, seq, kind, payload, created_at) VALUES (?, ?, ?, ?, ?)",
        runId,
        ...event
      )
    }
    for (const attempt of attempts) {
      database.write(
        `INSERT INTO step_attempts (run_id, ${ATTEMPT.join(", ")}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
        runId,
        ...attempt
      )
    }
    if (head["fence"] !== 0) {
      database.write(
        "INSERT INTO run_drives (run_id, owner, holder, fence, resumes, suspended) VALUES (?, NULL, NULL, ?, ?, 0)",
        runId,
        ...drive
      )
    }
    if (parent !== null) {
      database.write("INSERT INTO run_lineage (run_id, parent_run_id, upto) VALUES (?, ?, ?)", runId, ...line)
    }
  })
  return runId
}

/** The first line and those between it and the last one, which vouches for them. */
const whole = (lines: Iterable<string>): { readonly head: Payload; readonly rows: ReadonlyArray<Payload> } => {
  const texts = Array.from(lines, (line) => line.replace(/^[\r\n]+|[\r\n]+$/g, "")).filter((line) => line !== "")
  let found: ReadonlyArray<Value>
  try {
    found = texts.map(decode)
  } catch (error) {
    throw refused(`a line is not JSON (${(error as Error).message})`)
  }
  const objects = found.filter(isObject)
  const [head, ...rows] = objects
  const last = rows.pop()
  if (head === undefined || last === undefined || objects.length !== found.length) throw refused("it is cut short")
  if (last["lines"] !== texts.length - 1 || last["sha256"] !== digestOf(texts.slice(0, -1))) {
    throw refused("it is cut short or was altered: its last line does not vouch for the others")
  }
  if (head["format"] === FORMAT && typeof head["version"] === "number" && head["version"] > VERSION) {
    throw new StoreFailure({
      kind: "store_unsupported",
      message: `This export is of version ${head["version"]}; this package reads up to ${VERSION}. Nothing was imported: upgrade turn-journal-core.`,
      details: { version: head["version"], supported: VERSION }
    })
  }
  if (head["format"] !== FORMAT || head["version"] !== VERSION) throw refused(`it is not of version ${VERSION}`)
  return { head, rows }
}

const isObject = (value: Value): value is Payload =>
  typeof value === "object" && value !== null && !Array.isArray(value)

const objectAt = (value: Payload, name: string): Payload => {
  const found = value[name]
  if (found === undefined || !isObject(found)) throw refused(`the field ${name} is missing`)
  return found
}

/** What a failure says is what a payload may say. */
const redactedFailure = (redact: Redact | null, attempt: Payload): Payload => {
  const { error_type, message } = attempt
  if (typeof error_type !== "string") return attempt
  const shown = decode(storedText(redact, { error_type, message })) as Payload
  const kept = keptOf(shown)
  return { ...attempt, error_type: kept.errorType, message: kept.message }
}

const isOnly = (row: Payload, name: string): boolean => Object.keys(row).length === 1 && row[name] !== undefined

const refuseUnknown = (what: string, value: Value | undefined, known: ReadonlyArray<string>): void => {
  if (typeof value !== "string") throw refused(`the ${what} is missing or of another type`)
  if (!known.includes(value)) throw refused(`the ${what} ${JSON.stringify(value.slice(0, 80))} is unknown`)
}

const MAX_SEQ = 2n ** 63n - 1n

const WHOLE = new Set(["seq", "attempt", "next_seq", "fence", "resumes", "upto"])
const TIMES = new Set(["created_at", "updated_at"])
const MAY_BE_NULL = new Set(["outcome", "checkpoint_id", "error_type", "message", "next_seq"])

/** A field of a row, of the type that its name has everywhere. */
const cell = (value: Payload, name: string): string | number | bigint | null => {
  const found = value[name]
  if (found === null && MAY_BE_NULL.has(name)) return found
  if (WHOLE.has(name)) {
    const isWhole = typeof found === "bigint" || (typeof found === "number" && Number.isSafeInteger(found))
    if (isWhole && found >= 0 && found <= MAX_SEQ) return found
  } else if (TIMES.has(name)) {
    if (typeof found === "number") return found
  } else if (typeof found === "string") return found
  throw refused(`the field ${name} is missing or of another type`)
}

const refused = (fault: string): InvalidJournal =>
  new InvalidJournal({
    kind: "invalid_request",
    message: `These lines are no whole export of a run: ${fault}. Nothing was imported; export the run again.`,
    details: {}
  })
