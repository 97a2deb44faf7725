"""The tables. `runs` and `journal` are PraisonAI's, column for column, so that each reads the other's files.

What durability needs beyond them lives in tables of its own that the peer never looks at. `PRAGMA user_version` holds
the version: 0 is a file of the peer's, or an empty one, and gets the further tables on its first opening.
"""

from __future__ import annotations

from typing import Final

__all__ = ["ITERATION_INDEX", "RUN_TABLES", "SCHEMA_VERSION", "STATEMENTS", "TABLES"]

SCHEMA_VERSION: Final = 1

#: The columns a file must have, or get, to be a run journal.
TABLES: Final[dict[str, frozenset[str]]] = {
    "runs": frozenset(
        ("run_id", "agent", "task", "status", "outcome", "checkpoint_id", "created_at", "updated_at", "metadata")
    ),
    "journal": frozenset(("run_id", "seq", "kind", "payload", "created_at")),
}

#: Every table with rows of a run.
RUN_TABLES: Final = ("journal", "runs", "run_drives", "step_attempts", "run_lineage")

#: The index of an iteration's event, or NULL; the queries that use the index on it must say it in the same words.
ITERATION_INDEX: Final = (
    "CASE WHEN json_valid(payload) THEN "
    "CASE json_type(payload, '$.index') WHEN 'integer' THEN json_extract(payload, '$.index') END END"
)

STATEMENTS: Final = (
    """
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
    """,
    """
    CREATE TABLE IF NOT EXISTS journal (
        run_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        kind TEXT NOT NULL,
        payload TEXT NOT NULL,
        created_at REAL NOT NULL,
        PRIMARY KEY (run_id, seq, kind)
    )
    """,
    "CREATE INDEX IF NOT EXISTS idx_runs_status ON runs(status)",
    # The highest iteration of a run, whoever wrote it, without reading the run.
    f"CREATE INDEX IF NOT EXISTS idx_journal_iteration ON journal (run_id, {ITERATION_INDEX}) WHERE kind = 'iteration'",
    # Who drives a run. `fence` grows with every drive, so that a driver that lost the run cannot write to it any more.
    """
    CREATE TABLE IF NOT EXISTS run_drives (
        run_id TEXT PRIMARY KEY,
        owner TEXT,
        holder TEXT,
        fence INTEGER NOT NULL,
        resumes INTEGER NOT NULL,
        suspended INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
    # What became of a step's attempts: `failed` (with the error), `absent` (settled: it did not happen), `again`.
    # `next_seq` is the number the next step would have got, which tells whether the loop went on after a failure.
    """
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
    """,
    """
    CREATE TABLE IF NOT EXISTS run_lineage (
        run_id TEXT PRIMARY KEY,
        parent_run_id TEXT NOT NULL,
        upto INTEGER NOT NULL
    ) WITHOUT ROWID
    """,
)
