"""The cases run on a file and on PostgreSQL, as the other tests of the run journal do."""

from tests.python.run_journal.conftest import address, database, path, pytest_generate_tests, schema, schemas

__all__ = ["address", "database", "path", "pytest_generate_tests", "schema", "schemas"]
