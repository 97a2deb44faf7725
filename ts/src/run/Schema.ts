/**
 * The tables, word for word those of run_journal/schema.py: `runs` and `journal` are PraisonAI's, what durability needs
 * beyond them stands in tables of its own. `PRAGMA user_version` holds the version; 0 is a file of the peer's.
 */
export const SCHEMA_VERSION = 1

/** The columns a file must have, or get, to be a run journal. */
export const TABLES = {
  runs: ["run_id", "agent", "task", "status", "outcome", "checkpoint_id", "created_at", "updated_at", "metadata"],
  journal: ["run_id", "seq", "kind", "payload", "created_at"]
} as const

/** Every table with rows of a run. */
export const RUN_TABLES = ["journal", "runs", "run_drives", "step_attempts", "run_lineage"] as const

/** The index of an iteration's event, or NULL; the queries that use the index on it must say it in the same words. */
export const ITERATION_INDEX =
  "CASE WHEN json_valid(payload) THEN " +
  "CASE json_type(payload, '$.index') WHEN 'integer' THEN json_extract(payload, '$.index') END END"

export const STATEMENTS = [
  `
    CREATE TABLE IF NOT EXISTS runs (
        run_id TEXT PRIMARY KEY,
        agent TEXT NOT NULL DEFAULT '',
        task TEXT NOT NULL DEFAULT '',
        status TEXT NOT NULL DEFAULT 'running',
        outcome TEXT,
        checkpoint_id TEXT,
        created_at REAL NOT NULL,
        updated_at REAL NOT NULL,
        metadata TEXT
    )
  `,
  `
    CREATE TABLE IF NOT EXISTS journal (
        run_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        created_at REAL NOT NULL,
        PRIMARY KEY (run_id, seq, kind)
    )
  `,
  "CREATE INDEX IF NOT EXISTS idx_runs_status ON runs(status)",
  `CREATE INDEX IF NOT EXISTS idx_journal_iteration ON journal (run_id, ${ITERATION_INDEX}) WHERE kind = 'iteration'`,
  `
    CREATE TABLE IF NOT EXISTS run_drives (
        run_id TEXT PRIMARY KEY,
        owner TEXT,
        holder TEXT,
        fence INTEGER NOT NULL,
        resumes INTEGER NOT NULL,
        suspended INTEGER NOT NULL
    ) WITHOUT ROWID
  `,
  `
    CREATE TABLE IF NOT EXISTS step_attempts (
        run_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        attempt INTEGER NOT NULL,
        kind TEXT NOT NULL,
        state TEXT NOT NULL,
        error_type TEXT,
        message TEXT,
        next_seq INTEGER,
        created_at REAL NOT NULL,
        PRIMARY KEY (run_id, seq, attempt)
    ) WITHOUT ROWID
  `,
  `
    CREATE TABLE IF NOT EXISTS run_lineage (
        run_id TEXT PRIMARY KEY,
        parent_run_id TEXT NOT NULL,
        upto INTEGER NOT NULL
    ) WITHOUT ROWID
  `
] as const
