"""Counters of one machine, in the database of the queue. The size of a session is that of its
files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from sqlite3 import Connection
from typing import Any

from trimtab.stores.files import FileStore
from trimtab_serve.queue.address import SessionAddress, parse_session_address
from trimtab_serve.queue.sqlite.database import Database
from trimtab_serve.queue.sqlite.queries import SQLITE_QUERIES, encode_name
from trimtab_serve.usage.protocol import FullStorage, TenantTotals


class SqliteUsageCounters:
    """The `UsageCounters` that share the database of a queue. They do not close it."""

    def __init__(self, database: Database, store: FileStore) -> None:
        self._database = database
        self._store = store

    async def measure(self, sessions: Collection[SessionAddress]) -> None:
        names = [str(session) for session in sessions]
        sizes = await self._store.measure_sessions(names)

        def save(connection: Connection) -> None:
            for session, name, size in zip(sessions, names, sizes, strict=True):
                query = SQLITE_QUERIES["measure_waiting"]
                ((_, waiting),) = connection.execute(query, [encode_name(name)])
                if size or waiting:
                    row = [name, session.tenant, size + waiting]
                    connection.execute(SQLITE_QUERIES["save_session_usage"], row)
                else:
                    connection.execute(SQLITE_QUERIES["forget_session_usage"], [name])

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
                tenants=_read_totals(tenants.fetchall()),
            )

        return await self._database.read(find)

    async def reserve(self, session: SessionAddress, size: int, *, limit: int) -> int | None:
        def count(connection: Connection) -> int | None:
            rows = connection.execute(SQLITE_QUERIES["tenant_totals"], [session.tenant]).fetchall()
            used = rows[0][2] if rows else 0
            if used + size > limit:
                return used
            row = [str(session), session.tenant, size]
            connection.execute(SQLITE_QUERIES["add_session_usage"], row)
            return None

        return await self._database.write(count)

    async def find_totals(self, tenants: Collection[str]) -> Mapping[str, TenantTotals]:
        def find(reader: Connection) -> dict[str, TenantTotals]:
            query = SQLITE_QUERIES["tenant_totals"]
            return _read_totals(
                [row for tenant in tenants for row in reader.execute(query, [tenant])]
            )

        return await self._database.read(find)

    async def synchronise(self) -> None:
        """Count the sessions that are not counted yet, and forget those that are gone.

        While no server runs, sessions may be deleted, restored or copied.
        """
        addresses: dict[str, SessionAddress] = {}
        for name in await self._store.list_session_names():
            address = parse_session_address(name)
            if address is not None:
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


def _read_totals(rows: Sequence[tuple[Any, ...]]) -> dict[str, TenantTotals]:
    return {
        tenant: TenantTotals(sessions=count, stored_bytes=total_bytes)
        for tenant, count, total_bytes in rows
    }
