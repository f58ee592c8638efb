"""Which store a place names: a folder, or a PostgreSQL database."""

from __future__ import annotations

import re
from pathlib import Path

from trimtab.errors import StoreUnavailable
from trimtab.stores.base import Store
from trimtab.stores.files import FileStore

POSTGRES_INSTALL_HINT = "PostgreSQL needs two more packages: pip install 'trimtab[postgres]'"
CONNECTIONS_PER_AGENT = 4
"""To a database, for one agent: its turn writes through one, tools and lookups read beside it."""

_PASSWORD_IN_ADDRESS = re.compile(r":[^/@]+@|password\s*=")
_DATABASE_ADDRESS = re.compile(r"postgres(?:ql)?://|\s*\w+\s*=")


def is_database_address(location: str) -> bool:
    """Whether a place is the address of a database: a URI, or `host=… dbname=…`."""
    return _DATABASE_ADDRESS.match(location) is not None


def contains_database_password(location: str) -> bool:
    """Whether a place is the address of a database with a password in it."""
    return is_database_address(location) and _PASSWORD_IN_ADDRESS.search(location) is not None


async def open_store(
    location: str, *, allow_new_folder: bool = True, max_connections: int = CONNECTIONS_PER_AGENT
) -> Store:
    """The store at that place, to be closed by whoever opened it.

    `new` allows a folder that is not there yet.
    """
    if not is_database_address(location):
        _check_folder(Path(location), allow_new=allow_new_folder)
        return FileStore(location)
    try:
        from trimtab.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        if error.name not in ("psycopg", "psycopg_pool"):
            raise
        raise StoreUnavailable(POSTGRES_INSTALL_HINT) from error
    return await PostgresStore.connect(location, max_size=max_connections)


def _check_folder(path: Path, *, allow_new: bool) -> None:
    if path.is_dir() or (allow_new and not path.exists()):
        return
    what = "is no folder" if path.exists() else "does not exist"
    raise StoreUnavailable(
        f"the store {str(path)!r} {what}; say where the sessions are with --store, in the "
        "environment as TRIMTAB_STORE, or as `store` under `session` in agent.yaml"
    )
