/** Which session of a host belongs to which line of work, as folders have it in `goals/<goal>/turn-sessions/`. */
import * as Effect from "effect/Effect"
import type {
  ListSessionsParams,
  ListSessionsResult,
  SessionBinding,
  SessionLine,
  WriteSessionParams
} from "../../contract/Database.ts"
import { DEFAULT_PAGE, MAX_PAGE } from "../../contract/Fields.ts"
import type { StoreError } from "../Failure.ts"
import type { Server } from "./Server.ts"

const READ = "SELECT binding FROM turn_journal_sessions WHERE goal_id = $1 AND line = $2"
const LIST = `SELECT goal_id, line, binding FROM turn_journal_sessions
WHERE ($1::text IS NULL OR goal_id = $1::text) AND (goal_id > $2::text OR (goal_id = $2::text AND line > $3::text))
ORDER BY goal_id, line LIMIT $4::int8`
const WRITE = `INSERT INTO turn_journal_sessions (goal_id, line, binding) VALUES ($1, $2, $3)
ON CONFLICT (goal_id, line) DO UPDATE SET binding = excluded.binding, updated_at = now()`
const REMOVE = "DELETE FROM turn_journal_sessions WHERE goal_id = $1 AND line = $2"

export const read = (server: Server, { goal_id, line }: SessionLine): Effect.Effect<SessionBinding, StoreError> =>
  Effect.map(server.ask(READ, [goal_id, line]), ([row]) => ({
    binding: row === undefined ? null : (JSON.parse(String(row["binding"])) as SessionBinding["binding"])
  }))

/** A page of bindings; a goal's id has no slash, which parts it from its line. */
export const list = (
  server: Server,
  { goal_id, after, limit }: ListSessionsParams
): Effect.Effect<ListSessionsResult, StoreError> => {
  const [goal = "", ...line] = (after ?? "").split("/")
  const most = Math.min(limit ?? DEFAULT_PAGE, MAX_PAGE)
  return Effect.map(server.ask(LIST, [goal_id ?? null, goal, line.join("/"), most]), (rows) => {
    const sessions = rows.map((row) => ({
      goal_id: String(row["goal_id"]),
      line: String(row["line"]),
      binding: JSON.parse(String(row["binding"])) as NonNullable<SessionBinding["binding"]>
    }))
    const last = sessions.at(-1)
    return { sessions, next: last === undefined || sessions.length < most ? null : `${last.goal_id}/${last.line}` }
  })
}

export const write = (
  server: Server,
  { goal_id, line, binding }: WriteSessionParams
): Effect.Effect<SessionBinding, StoreError> =>
  Effect.as(
    binding === null
      ? server.change(REMOVE, [goal_id, line])
      : server.change(WRITE, [goal_id, line, JSON.stringify(binding)]),
    { binding }
  )
