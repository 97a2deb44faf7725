"""A database with all tables, which the tests of this process take one after the other."""

from tests.python.turns.conftest import database, turns_database

__all__ = ["database", "turns_database"]
