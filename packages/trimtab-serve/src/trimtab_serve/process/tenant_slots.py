"""Limit the concurrent turns of each tenant over all processes.

Each slot is a lock of the database. One connection of this process holds all of them, so a process
that dies releases its slots. If the connection is lost while turns run, their slots are free until
these turns end. During that time, more turns may run than the limit.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256
from time import monotonic

from psycopg import AsyncConnection, AsyncRawCursor, Error
from psycopg.types.numeric import Int4

from trimtab.stores.postgres.connection_name import add_connection_name
from trimtab.stores.postgres.error_translation import describe_database, translate_psycopg_error
from trimtab_serve.queue.postgres.queries import SERVER_QUERIES

REFUSED_TENANT_S = 1.0
"""Seconds for which this process begins no turn of a tenant after a slot was refused."""

log = logging.getLogger("trimtab.server")


class TenantSlots:
    """Slots for the turns of each tenant. Without a limit, a slot is always free."""

    def __init__(self, conninfo: str, limit: int | None) -> None:
        self._conninfo = conninfo
        self._limit = limit
        self._lock = asyncio.Lock()
        self._connection: AsyncConnection | None = None
        self._held: dict[str, dict[int, AsyncConnection]] = {}
        self._refused_until: dict[str, float] = {}

    def refused_tenants(self) -> list[str]:
        """Return the tenants that had no free slot a moment ago."""
        now = monotonic()
        self._refused_until = {
            tenant: until for tenant, until in self._refused_until.items() if until > now
        }
        return [*self._refused_until]

    @asynccontextmanager
    async def hold_slot(self, tenant: str) -> AsyncGenerator[bool]:
        """Hold a slot during the block. Yield False if none is free."""
        if self._limit is None:
            yield True
            return
        place = await self._take_slot(tenant, self._limit)
        if place is None:
            self._refused_until[tenant] = monotonic() + REFUSED_TENANT_S
        try:
            yield place is not None
        finally:
            if place is not None:
                await self._release_slot(tenant, place)
                self._refused_until.pop(tenant, None)

    async def close(self) -> None:
        """Release all slots."""
        if self._connection is not None:
            await self._connection.close()

    async def _take_slot(self, tenant: str, limit: int) -> int | None:
        async with self._lock:
            connections = self._held.setdefault(tenant, {})
            # PostgreSQL grants a lock again to the connection that holds it, so skip those.
            free = [Int4(place) for place in range(limit) if place not in connections]
            if not free:
                return None
            try:
                connection = await self._get_connection()
                values = [Int4(compute_tenant_lock_key(tenant)), free]
                cursor = await connection.execute(SERVER_QUERIES["take_slot"], values)
                row = await cursor.fetchone()
            except Error as error:
                raise (
                    translate_psycopg_error(error, describe_database(self._conninfo)) or error
                ) from error
            if row is None:
                return None
            connections[row[0]] = connection
            return row[0]

    async def _release_slot(self, tenant: str, slot: int) -> None:
        async with self._lock:
            connection = self._held[tenant].pop(slot)
            if not self._held[tenant]:
                del self._held[tenant]
            try:
                values = [Int4(compute_tenant_lock_key(tenant)), Int4(slot)]
                await connection.execute(SERVER_QUERIES["leave_slot"], values)
            except Error as error:
                # Closing the connection releases all its locks.
                log.info("counting the running turns of each tenant again: %s", error)
                await connection.close()

    async def _get_connection(self) -> AsyncConnection:
        if self._connection is None or self._connection.closed:
            self._connection = await AsyncConnection.connect(
                add_connection_name(self._conninfo, "slots"),
                autocommit=True,
                cursor_factory=AsyncRawCursor,
            )
        return self._connection


def compute_tenant_lock_key(tenant: str) -> int:
    """Return the number that identifies a tenant's slots in database locks."""
    digest = sha256(b"trimtab tenant\0" + tenant.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big", signed=True)
