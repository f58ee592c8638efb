"""The name of a connection in `pg_stat_activity`."""

from __future__ import annotations

from psycopg import ProgrammingError
from psycopg.conninfo import make_conninfo


def add_connection_name(conninfo: str, purpose: str) -> str:
    """Name the connection `trimtab PURPOSE`, unless the address or PGAPPNAME names it."""
    try:
        return make_conninfo(conninfo, fallback_application_name=f"trimtab {purpose}")
    except ProgrammingError:
        return conninfo  # the error of connecting says what is wrong with it
