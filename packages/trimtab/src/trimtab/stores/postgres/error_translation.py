"""Translate errors of psycopg: name the cause and what to do."""

from __future__ import annotations

from psycopg import Error, ProgrammingError, errors
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import PoolClosed, PoolTimeout

from trimtab.errors import (
    DatabaseNotMigrated,
    StoreClosed,
    StoreError,
    StoreFull,
    StoreNotWritable,
    StoreUnavailable,
)

MIGRATE_HINT = "run `trimtab migrate` with this address as --database"


def describe_database(conninfo: str) -> str:
    """Describe the database without its password."""
    try:
        parameters = conninfo_to_dict(conninfo)
    except ProgrammingError:
        # Its own words would quote the address, password and all.
        raise ValueError(
            "the database's address cannot be read; it must look like "
            "postgresql://user@host/name or host=… dbname=…"
        ) from None
    host = parameters.get("host") or parameters.get("hostaddr") or "the local socket"
    name = parameters.get("dbname") or "by default"
    return f"database {name} at {host}:{parameters.get('port') or 5432}"


def translate_psycopg_error(
    error: Error, database_label: str, *, may_have_written: bool = True
) -> StoreError | None:
    """Return the error by its cause; None if it is a bug in trimtab.

    `may_have_written` says whether a write may have been in progress.
    """
    why = " ".join(str(error).split()) or type(error).__name__
    match error:
        case errors.DiskFull():
            return StoreFull(
                f"no space is left for {database_label} ({why}); nothing is lost: free some "
                "space and try again"
            )
        case errors.ReadOnlySqlTransaction():
            return StoreNotWritable(
                f"{database_label} takes no writes ({why}); it is a standby or read-only: "
                "connect to the primary, for example with target_session_attrs=read-write"
            )
        case errors.UndefinedTable() | errors.InvalidSchemaName() | errors.UndefinedColumn():
            return DatabaseNotMigrated(
                f"{database_label} lacks tables of trimtab ({why}); {MIGRATE_HINT}"
            )
        case errors.InsufficientPrivilege():
            return StoreNotWritable(
                f"{database_label} refuses this user ({why}); grant the user the missing privileges"
            )
        case PoolClosed():  # the pool of the application
            return StoreClosed()
        case PoolTimeout():
            return StoreUnavailable(
                f"{database_label} gave no connection ({why}); check that the server runs "
                "and that the pool has enough connections"
            )
        case errors.OperationalError() | errors.InterfaceError():
            cause = f"{database_label} cannot be reached ({why}); check that the server runs"
            if not may_have_written:
                return StoreUnavailable(f"{cause} and that the address is right")
            return StoreUnavailable(
                f"{cause}. It is unknown whether an open write was committed: read the "
                "position before you write again"
            )
        case _:
            return None
