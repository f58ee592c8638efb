"""Logs in PostgreSQL: many processes, one truth."""

from trimtab.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
