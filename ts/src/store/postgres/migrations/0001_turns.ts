/**
 * Turns and their transitions. A turn's row says what stands; `state` is another one after every change, and a change
 * is made only to the state that it was decided on. `base` is another one after every change that is more than an
 * addition. A transition is kept as a value, `record`, or as its text, `exact`, where a value would lose something.
 */
import type { Migration } from "../Schema.ts"

export const migration: Migration = {
  name: "0001_turns",
  statements: [
    `CREATE TABLE turn_journal_turns (
      turn INT8 GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
      path TEXT NOT NULL UNIQUE,
      goal_id TEXT,
      turn_key TEXT,
      state UUID NOT NULL,
      base UUID NOT NULL,
      line INT4 NOT NULL DEFAULT 0,
      found BYTEA,
      updated_at TIMESTAMPTZ NOT NULL DEFAULT now(),
      lease_number INT8,
      lease_holder TEXT,
      lease_token UUID,
      lease_since TIMESTAMPTZ,
      lease_expires_at TIMESTAMPTZ
    )`,
    "CREATE INDEX turn_journal_turns_of_goal ON turn_journal_turns (goal_id, turn_key)",
    `CREATE TABLE turn_journal_transitions (
      turn INT8 NOT NULL,
      line INT4 NOT NULL,
      ends_at INT8 NOT NULL,
      attempt UUID NOT NULL,
      record JSONB,
      exact TEXT,
      PRIMARY KEY (turn, line)
    )`,
    `CREATE TABLE turn_journal_set_aside (
      turn INT8 NOT NULL,
      name TEXT NOT NULL,
      line INT4 NOT NULL,
      record JSONB,
      exact TEXT,
      PRIMARY KEY (turn, name, line)
    )`
  ]
}
