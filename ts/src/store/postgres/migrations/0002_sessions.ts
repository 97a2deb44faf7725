/** Which session of a host belongs to which line of work: session-recovery.md section 5. */
import type { Migration } from "../Schema.ts"

export const migration: Migration = {
  name: "0002_sessions",
  statements: [
    `CREATE TABLE turn_journal_sessions (
      goal_id TEXT NOT NULL,
      line TEXT NOT NULL,
      binding TEXT NOT NULL,
      updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
      PRIMARY KEY (goal_id, line)
    )`
  ]
}
