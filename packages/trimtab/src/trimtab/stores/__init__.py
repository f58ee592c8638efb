"""Stores for session logs: one protocol, implemented with files and with PostgreSQL."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trimtab.errors import DatabaseNotMigrated as DatabaseNotMigrated
    from trimtab.errors import DatabaseSchemaTooNew as DatabaseSchemaTooNew
    from trimtab.errors import DuplicateIdempotencyKey as DuplicateIdempotencyKey
    from trimtab.errors import LogDamaged as LogDamaged
    from trimtab.errors import PositionTaken as PositionTaken
    from trimtab.errors import SessionExists as SessionExists
    from trimtab.errors import SessionImportError as SessionImportError
    from trimtab.errors import SessionLockedByOtherProcess as SessionLockedByOtherProcess
    from trimtab.errors import SessionNotFound as SessionNotFound
    from trimtab.errors import StaleOwner as StaleOwner
    from trimtab.errors import StoreError as StoreError
    from trimtab.errors import StoreFull as StoreFull
    from trimtab.errors import StoreNotWritable as StoreNotWritable
    from trimtab.errors import StoreUnavailable as StoreUnavailable
    from trimtab.stores.base import SessionListEntry as SessionListEntry
    from trimtab.stores.base import Store as Store
    from trimtab.stores.export import export_session as export_session
    from trimtab.stores.export import import_session as import_session
    from trimtab.stores.factory import open_store as open_store
    from trimtab.stores.files.store import FileStore as FileStore
    from trimtab.stores.postgres.store import PostgresStore as PostgresStore

__all__ = [
    "DatabaseNotMigrated",
    "DatabaseSchemaTooNew",
    "DuplicateIdempotencyKey",
    "FileStore",
    "LogDamaged",
    "PositionTaken",
    "PostgresStore",
    "SessionExists",
    "SessionImportError",
    "SessionListEntry",
    "SessionLockedByOtherProcess",
    "SessionNotFound",
    "StaleOwner",
    "Store",
    "StoreError",
    "StoreFull",
    "StoreNotWritable",
    "StoreUnavailable",
    "export_session",
    "import_session",
    "open_store",
]

_HOMES = {
    "DatabaseNotMigrated": "errors",
    "DatabaseSchemaTooNew": "errors",
    "FileStore": "stores.files.store",
    "DuplicateIdempotencyKey": "errors",
    "LogDamaged": "errors",
    "PositionTaken": "errors",
    "PostgresStore": "stores.postgres.store",
    "SessionLockedByOtherProcess": "errors",
    "SessionExists": "errors",
    "SessionImportError": "errors",
    "SessionNotFound": "errors",
    "StaleOwner": "errors",
    "Store": "stores.base",
    "StoreError": "errors",
    "StoreFull": "errors",
    "StoreNotWritable": "errors",
    "StoreUnavailable": "errors",
    "SessionListEntry": "stores.base",
    "export_session": "stores.export",
    "import_session": "stores.export",
    "open_store": "stores.factory",
}


def __getattr__(name: str) -> Any:
    """Import a name at its first use, because each may need its own extra."""
    if name not in _HOMES:
        raise AttributeError(f"module 'trimtab.stores' has no attribute {name!r}")
    return getattr(import_module(f"trimtab.{_HOMES[name]}"), name)
