"""Stores for session logs: one protocol, implemented with files and with PostgreSQL."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trimtab.lazy_names import export_on_demand

if TYPE_CHECKING:
    from trimtab.stores.base import PoolUsage as PoolUsage
    from trimtab.stores.base import PositionSpan as PositionSpan
    from trimtab.stores.base import SessionListEntry as SessionListEntry
    from trimtab.stores.base import Store as Store
    from trimtab.stores.export import ImportResult as ImportResult
    from trimtab.stores.export import export_session as export_session
    from trimtab.stores.export import import_session as import_session
    from trimtab.stores.factory import open_store as open_store
    from trimtab.stores.files.store import FileStore as FileStore
    from trimtab.stores.postgres.migrations import migrate as migrate
    from trimtab.stores.postgres.store import PostgresStore as PostgresStore
    from trimtab.stores.spending import CallReservation as CallReservation
    from trimtab.stores.spending import CostCeilings as CostCeilings
    from trimtab.stores.spending import SpendingLedger as SpendingLedger

_HOMES = {
    "PositionSpan": "stores.base",
    "ImportResult": "stores.export",
    "PoolUsage": "stores.base",
    "SpendingLedger": "stores.spending",
    "CallReservation": "stores.spending",
    "CostCeilings": "stores.spending",
    "FileStore": "stores.files.store",
    "PostgresStore": "stores.postgres.store",
    "Store": "stores.base",
    "SessionListEntry": "stores.base",
    "export_session": "stores.export",
    "import_session": "stores.export",
    "migrate": "stores.postgres.migrations",
    "open_store": "stores.factory",
}

__all__, __getattr__ = export_on_demand(__name__, _HOMES)
