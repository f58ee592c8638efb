"""Logs in PostgreSQL, shared by many processes."""

from trimtab.errors import MissingPackageError

try:
    from trimtab.stores.postgres.store import PostgresStore
except ModuleNotFoundError as error:
    if error.name not in ("psycopg", "psycopg_pool"):
        raise
    raise MissingPackageError(
        "PostgreSQL needs two more packages", extra="postgres", name=error.name
    ) from error

__all__ = ["PostgresStore"]
