/** Which session of a host belongs to which line of work, as folders have it in `goals/<goal>/turn-sessions/`. */
import * as Effect from "effect/Effect"
import type { SessionBinding, SessionLine, WriteSessionParams } from "../../contract/Database.ts"
import type { StoreError } from "../Failure.ts"
import type { Server } from "./Server.ts"

const READ = "SELECT binding FROM turn_journal_sessions WHERE goal_id = $1 AND line = $2"
const WRITE = `INSERT INTO turn_journal_sessions (goal_id, line, binding) VALUES ($1, $2, $3)
ON CONFLICT (goal_id, line) DO UPDATE SET binding = excluded.binding, updated_at = now()`
const REMOVE = "DELETE FROM turn_journal_sessions WHERE goal_id = $1 AND line = $2"

export const read = (server: Server, { goal_id, line }: SessionLine): Effect.Effect<SessionBinding, StoreError> =>
  Effect.map(server.ask(READ, [goal_id, line]), ([row]) => ({
    binding: row === undefined ? null : (JSON.parse(String(row["binding"])) as SessionBinding["binding"])
  }))

export const write = (
  server: Server,
  { goal_id, line, binding }: WriteSessionParams
): Effect.Effect<SessionBinding, StoreError> =>
  Effect.as(
    binding === null
      ? server.ask(REMOVE, [goal_id, line])
      : server.ask(WRITE, [goal_id, line, JSON.stringify(binding)]),
    { binding }
  )
