"""Counters of one machine, in the database of the queue. The size of a session is that of its
files."""

from __future__ import annotations

from collections.abc import Collection
from sqlite3 import Connection

from trimtab.stores.files import FileStore
from trimtab_serve.queue.address import DEFAULT_TENANT, SessionAddress, parse_session_address
from trimtab_serve.queue.sqlite.database import Database
from trimtab_serve.queue.sqlite.queries import SQLITE_QUERIES
from trimtab_serve.usage.protocol import FullStorage, TenantTotals


class SqliteUsageCounters:
    """The `UsageCounters` that share the database of a queue. They do not close it."""

    def __init__(self, database: Database, store: FileStore) -> None:
        self._database = database
        self._store = store

    async def measure(self, sessions: Collection[SessionAddress]) -> None:
        names = [str(session) for session in sessions]
        sizes = await self._store.measure_sessions(names)
        rows = [
            (name, session.tenant, size)
            for session, name, size in zip(sessions, names, sizes, strict=True)
            if size
        ]

        def save(connection: Connection) -> None:
            connection.executemany(SQLITE_QUERIES["save_session_usage"], rows)

        await self._database.write(save)

    async def recount(self, session: SessionAddress) -> None:
        await self.measure([session])

    async def forget(self, session: SessionAddress) -> None:
        await self._forget([str(session)])

    async def find_full(
        self, *, session_bytes: int, tenant_sessions: int, tenant_bytes: int
    ) -> FullStorage:
        def find(reader: Connection) -> FullStorage:
            sessions = reader.execute(SQLITE_QUERIES["full_sessions"], [session_bytes])
            tenants = reader.execute(
                SQLITE_QUERIES["full_tenants"], [tenant_sessions, tenant_bytes]
            )
            return FullStorage(
                session_bytes=dict(sessions.fetchall()),
                tenants={
                    tenant: TenantTotals(sessions=count, stored_bytes=total_bytes)
                    for tenant, count, total_bytes in tenants.fetchall()
                },
            )

        return await self._database.read(find)

    async def synchronise(self) -> None:
        """Count the sessions that are not counted yet, and forget those that are gone.

        While no server runs, sessions may be deleted, restored or copied.
        """
        addresses: dict[str, SessionAddress] = {}
        for name in await self._store.list_session_names():
            address = parse_session_address(name)
            if address is not None and address.tenant != DEFAULT_TENANT:
                addresses[name] = address
        rows = await self._database.scan(
            lambda reader: reader.execute(SQLITE_QUERIES["counted_sessions"]).fetchall()
        )
        counted_names = {name for (name,) in rows}
        await self.measure(
            [address for name, address in addresses.items() if name not in counted_names]
        )
        await self._forget(counted_names - addresses.keys())

    async def _forget(self, names: Collection[str]) -> None:
        def remove(connection: Connection) -> None:
            connection.executemany(SQLITE_QUERIES["forget_session_usage"], [(n,) for n in names])

        await self._database.write(remove)
