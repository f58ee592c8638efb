"""Which store a place names: a folder, or a PostgreSQL database."""

from __future__ import annotations

import re
from pathlib import Path

from trimtab.stores.errors import StoreUnavailable
from trimtab.stores.files import FileStore
from trimtab.stores.store import Store

POSTGRES = "PostgreSQL needs two more packages: pip install 'trimtab[postgres]'"
CONNECTIONS = 4
"""To a database, for one agent: its turn writes through one, tools and lookups read beside it."""

_PASSWORD = re.compile(r":[^/@]+@|password\s*=")
_CONNINFO = re.compile(r"postgres(?:ql)?://|\s*\w+\s*=")


def is_database(place: str) -> bool:
    """Whether a place is the address of a database: a URI, or `host=… dbname=…`."""
    return _CONNINFO.match(place) is not None


def holds_password(place: str) -> bool:
    """Whether a place is the address of a database with a password in it."""
    return is_database(place) and _PASSWORD.search(place) is not None


async def open_store(place: str, *, new: bool = True, connections: int = CONNECTIONS) -> Store:
    """The store at that place, to be closed by whoever opened it.

    `new` allows a folder that is not there yet.
    """
    if not is_database(place):
        _check_folder(Path(place), new=new)
        return FileStore(place)
    try:
        from trimtab.stores.postgres import PostgresStore
    except ModuleNotFoundError as error:
        if error.name not in ("psycopg", "psycopg_pool"):
            raise
        raise StoreUnavailable(POSTGRES) from error
    return await PostgresStore.connect(place, max_size=connections)


def _check_folder(path: Path, *, new: bool) -> None:
    if path.is_dir() or (new and not path.exists()):
        return
    what = "is no folder" if path.exists() else "does not exist"
    raise StoreUnavailable(
        f"the store {str(path)!r} {what}; say where the sessions are with --store, in the "
        "environment as TRIMTAB_STORE, or as `store` under `session` in agent.yaml"
    )
