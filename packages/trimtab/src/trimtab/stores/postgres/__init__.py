"""Logs in PostgreSQL, shared by many processes."""

from trimtab.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
