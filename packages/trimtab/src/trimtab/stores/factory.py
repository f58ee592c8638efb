"""Open the store at a location: a folder, or a PostgreSQL database."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trimtab.errors import MissingPackageError, StoreUnavailable
from trimtab.stores.base import Store
from trimtab.stores.files import FileStore
from trimtab.stores.files.disk import resolve_folder
from trimtab.stores.files.spending_ledger import SqliteSpendingLedger
from trimtab.stores.spending import SpendingLedger

if TYPE_CHECKING:
    from trimtab.stores.postgres import PostgresStore

CONNECTIONS_PER_AGENT = 4
"""Database connections for one agent. Its turn writes through one; tools and lookups use the
others."""

_PASSWORD_IN_ADDRESS = re.compile(r":[^/@]+@|password\s*=")
_DATABASE_ADDRESS = re.compile(r"postgres(?:ql)?://|\s*\w+\s*=")
_SCHEME = re.compile(r"\s*[a-z][\w+.:-]+://", re.IGNORECASE)
"""The beginning of a URL. One character before the colon is a drive of Windows."""


def is_database_address(location: str) -> bool:
    """Whether a location is the address of a database: a URI, or `host=… dbname=…`."""
    return _DATABASE_ADDRESS.match(location) is not None


def check_store_location(location: str) -> None:
    """Raise `ValueError` if a location is empty, or a URL of something that is not a store.

    As a folder it would work, and only the next machine would show that the sessions are elsewhere.
    """
    if is_database_address(location):
        return
    resolve_folder(location)
    if (begin := _SCHEME.match(location)) is None:
        return
    scheme = begin[0]
    hint = "; write postgresql:// instead" if "postgres" in scheme.lower() else ""
    # The rest of the address is not quoted: it may contain a password.
    raise ValueError(
        f"the store's address begins with {scheme!r}{hint}; a store is a folder, or a PostgreSQL "
        "database: postgresql://user@host/name or host=… dbname=…"
    )


def contains_database_password(location: str) -> bool:
    """Whether a location is the address of a database with a password in it."""
    return is_database_address(location) and _PASSWORD_IN_ADDRESS.search(location) is not None


async def open_store(
    location: str | os.PathLike[str],
    *,
    allow_new_folder: bool = True,
    max_connections: int = CONNECTIONS_PER_AGENT,
) -> FileStore | PostgresStore:
    """Open the store at a location. Close it with `await store.close()`, or open it for a block.

    Args:
        location: A folder, or the address of a PostgreSQL database. `~` is the user's home.
        allow_new_folder: Whether the folder may be missing.
        max_connections: Maximum number of database connections.

    Raises:
        StoreUnavailable: There is no such folder, or the database cannot be reached.
        ValueError: The location is empty, or a URL but not that of a PostgreSQL database.

    Example:
        Open a folder for a block::

            async with await open_store("sessions") as store:
                session = await Session.open(store, "alice")
    """
    location = os.fspath(location)
    check_store_location(location)
    if not is_database_address(location):
        folder = resolve_folder(location)
        _check_folder(folder, allow_new=allow_new_folder)
        return FileStore(folder)
    try:
        from trimtab.stores.postgres import PostgresStore
    except MissingPackageError as error:
        raise StoreUnavailable(str(error)) from error
    return await PostgresStore.connect(location, max_size=max_connections)


def find_spending_ledger(store: Store) -> SpendingLedger:
    """Return the ledger of a store; one in memory if the store has none."""
    open_ledger: Any = getattr(store, "spending_ledger", None)
    return SqliteSpendingLedger(None) if open_ledger is None else open_ledger()


def _check_folder(path: Path, *, allow_new: bool) -> None:
    if path.is_dir() or (allow_new and not path.exists()):
        return
    what = "is not a folder" if path.exists() else "does not exist"
    raise StoreUnavailable(
        f"the store {str(path)!r} {what}; set the folder of the sessions with --store, in "
        "the environment as TRIMTAB_STORE, or as `store` under `session` in agent.yaml"
    )
