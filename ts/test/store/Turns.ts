/** Journals for the store's tests, and the store under test. */
import { execFileSync } from "node:child_process"
import { existsSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type { Scope } from "effect/Scope"
import type { CoreError } from "../../src/contract/Errors.ts"
import type { JsonObject } from "../../src/contract/Json.ts"
import {
  SETTLEMENT_IDENTITY_SCOPED_SCHEMA,
  SETTLEMENT_PLAN_SCHEMA,
  TURN_JOURNAL_SCHEMA
} from "../../src/contract/Names.ts"
import type { Driver } from "../../src/store/Driver.ts"
import { JournalStore } from "../../src/store/JournalStore.ts"
import * as Place from "../../src/store/Place.ts"

export const GOAL = "goal-1"
export const AGENT = "agent-1"

/** A plain turn of phases a, b, c. */
export const plainTurn = (
  turnKey: string,
  status: string,
  completed: ReadonlyArray<string>,
  more: JsonObject = {}
) => ({
  schema_version: TURN_JOURNAL_SCHEMA,
  goal_id: GOAL,
  agent_id: AGENT,
  turn_key: turnKey,
  effect_id: `effect-of-${turnKey}`,
  status,
  completed_phases: completed,
  plan: { action: "try", phases: ["a", "b", "c"], params: { depth: 1 } },
  ...more
})

export interface Settled {
  readonly turnKey: string
  readonly todoId: string
  readonly instanceId: string
  readonly goalId?: string
}

const PHASES = [
  "host_execute",
  "typed_result",
  "validation",
  "durable_writeback",
  "quota_spend",
  "scheduler_apply",
  "scheduler_ack"
]

/** A turn with the settlement protocol, after a number of phases. */
export const settledTurn = (
  { turnKey, todoId, instanceId, goalId = GOAL }: Settled,
  status: string,
  completed: number,
  more: JsonObject = {}
) => ({
  schema_version: TURN_JOURNAL_SCHEMA,
  goal_id: goalId,
  turn_key: turnKey,
  status,
  completed_phases: PHASES.slice(0, completed),
  plan: {
    turn_envelope: {
      goal_id: goalId,
      agent_id: AGENT,
      action: { selected_todo: { todo_id: todoId, text: "do it" } },
      notes: "x".repeat(200)
    },
    transaction: {
      turn_key: turnKey,
      turn_instance_id: instanceId,
      settlement_plan: {
        schema_version: SETTLEMENT_PLAN_SCHEMA,
        identity: {
          schema_version: SETTLEMENT_IDENTITY_SCOPED_SCHEMA,
          goal_id: goalId,
          agent_id: AGENT,
          turn_instance_id: instanceId,
          todo_id: todoId,
          binding_kind: "todo",
          binding_id: todoId,
          effect_id: `${goalId}:${AGENT}:${todoId}:${instanceId}`
        }
      }
    }
  },
  ...more
})

/** The checkpoints of a whole turn. */
export const wholeTurn = (turn: Settled): ReadonlyArray<JsonObject> => [
  ...[0, 2, 3, 4, 5].map((completed) => settledTurn(turn, "in_progress", completed)),
  settledTurn(turn, "committed", 7, { host_result: { turn_key: turn.turnKey, output: "y".repeat(500) } })
]

/** The path of a turn under a root. */
export const pathOf = (root: string, turnKey: string, goalId = GOAL): string => placeOf(root, turnKey, goalId).path

export const placeOf = (root: string, turnKey: string, goalId = GOAL): Place.Place =>
  Effect.runSync(Effect.fromResult(Place.ofTurn(root, { goalId, turnKey })))

/** An empty folder for the length of a scope. */
const folderIn = (parent: string) =>
  Effect.acquireRelease(
    Effect.sync(() => mkdtempSync(join(parent, "turns-"))),
    (path) => Effect.sync(() => rmSync(path, { recursive: true, force: true }))
  )

export const folder = folderIn(tmpdir())

/** One in memory where there is such a place: for tests that need many commits and no disk. */
export const quickFolder = folderIn(existsSync("/dev/shm") ? "/dev/shm" : tmpdir())

/** Makes an empty root for the length of a scope: a folder, unless the driver under test has other ones. */
export const Root = Context.Reference<Effect.Effect<string, never, Scope>>("test/store/Root", {
  defaultValue: () => folder
})

/** The store under test, and a root of its own. */
export const fresh = Effect.all({ store: JournalStore, root: Effect.flatten(Root) })

/** The path of a journal that is no turn's. */
export const pathIn = (root: string, name: string): string =>
  Place.isDatabase(root) ? `${root}#${name}` : join(root, name)

/** How a test puts a journal there that the store did not write. */
export type Plant = (path: string, text: string) => Effect.Effect<void, unknown, Driver>

/** What comes of a write of another process, which waits for no lock for long; as root, in the name of that user. */
export const writeElsewhere = (path: string, journal: JsonObject, user = process.getuid?.()): string =>
  execFileSync(
    process.execPath,
    [fileURLToPath(new URL("OneWrite.ts", import.meta.url)), path, JSON.stringify(journal), String(user)],
    { encoding: "utf8", env: { ...process.env, TURN_JOURNAL_LOCK_TIMEOUT: "0.2" } }
  )

/** The kind of the error that an effect fails with. */
export const kindOf = <A, R>(effect: Effect.Effect<A, CoreError, R>): Effect.Effect<string, A, R> =>
  Effect.map(Effect.flip(effect), (error) => error.kind)
