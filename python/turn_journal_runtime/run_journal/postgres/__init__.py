"""The run journal in PostgreSQL: the same runs, for agents on many hosts.

Needs the extra `postgres`. Nothing here is imported before a journal is opened by a `postgresql://` address.
"""

from ...errors import JournalStoreError

try:
    import psycopg_pool  # noqa: F401 - brings psycopg
except ImportError as _missing:
    raise JournalStoreError(
        "A run journal in PostgreSQL needs psycopg: pip install 'turn-journal-runtime[postgres]'.",
        kind="store_unsupported",
        details={"extra": "postgres"},
    ) from _missing

from .journal import PostgresRunJournal
from .migration import migrate, pending_migrations

__all__ = ["PostgresRunJournal", "migrate", "pending_migrations"]
