/** Who drives a run: the owner behind one journal handle, and its view of the others. run-journal.md, section 4. */
import { TurnBusy } from "../contract/Errors.ts"
import type { Database, Row } from "./Database.ts"
import { isAlive, makeOwner, type Owner } from "./Liveness.ts"

export interface Ownership {
  /** The owner of this handle, made when it is first needed. */
  readonly owner: () => Owner
  readonly begin: (runId: string, driver: object) => void
  /** A driver drives its run no more; one that has taken the run over from it still does. */
  readonly end: (runId: string, driver: object) => void
  /** Whether the owner that is noted on a run lives and drives it. */
  readonly isDriven: (runId: string, token: string | null) => boolean
  /**
   * The rows whose `owner` does not drive their `run_id`. What a dead owner has last said of its run is known after its
   * death: it may have ended the run before.
   */
  readonly undriven: (read: () => ReadonlyArray<Row>) => ReadonlyArray<Row>
  /** Asked inside of the transaction that wants to change a run. Throws `TurnBusy`. */
  readonly refuseDriven: (runId: string) => void
  /** As `refuseDriven`, but what this handle drives may be ended by it. */
  readonly refuseDrivenElsewhere: (runId: string) => void
  readonly release: () => void
}

export const make = (database: Database): Ownership => {
  let own: Owner | null = null
  const drivers = new Map<string, object>()
  /** Tokens are never used twice, so that the dead stay dead. */
  const dead = new Set<string>()

  const isDriven = (runId: string, token: string | null): boolean => {
    if (token === null || dead.has(token)) return false
    if (token === own?.token) return drivers.has(runId)
    if (isAlive(database.path, token)) return true
    dead.add(token)
    return false
  }

  const undriven = (read: () => ReadonlyArray<Row>): ReadonlyArray<Row> => {
    for (;;) {
      const before = dead.size
      const found = read().filter((row) => !isDriven(row["run_id"] as string, row["owner"] as string | null))
      if (dead.size === before) return found
    }
  }

  const refuseDriven = (runId: string): void => {
    const [row] = database.read("SELECT owner, holder FROM run_drives WHERE run_id = ?", runId)
    if (row === undefined || !isDriven(runId, row["owner"] as string | null)) return
    const owner = describe(row["holder"] as string | null)
    throw new TurnBusy({
      kind: "turn_busy",
      message: `Run ${JSON.stringify(runId)} is driven by process ${owner["pid"] ?? "?"} on ${owner["host"] ?? "?"}. Wait for it to end; when it dies, the run is free at once.`,
      details: { run_id: runId, owner }
    })
  }

  return {
    owner: () => {
      own ??= makeOwner(database.path)
      return own
    },
    begin: (runId, driver) => {
      drivers.set(runId, driver)
    },
    end: (runId, driver) => {
      if (drivers.get(runId) === driver) drivers.delete(runId)
    },
    isDriven,
    undriven,
    refuseDriven,
    refuseDrivenElsewhere: (runId) => {
      const [row] = database.read("SELECT owner FROM run_drives WHERE run_id = ?", runId)
      if (own === null || row?.["owner"] !== own.token || !drivers.has(runId)) refuseDriven(runId)
    },
    release: () => {
      own?.release()
      own = null
      drivers.clear()
    }
  }
}

const describe = (holder: string | null): Readonly<Record<string, string | number>> => {
  try {
    return JSON.parse(holder ?? "{}")
  } catch {
    return {}
  }
}
