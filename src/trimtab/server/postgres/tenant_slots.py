"""How many turns of one tenant run at the same time, over all processes.

Each place is a lock of the database, held by this process's one connection for them: whoever dies
gives its places back. Should that connection be lost while turns run, their places are free for
others until they end, and for so long more may run than may.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from hashlib import sha256

from psycopg import AsyncConnection, AsyncRawCursor, Error
from psycopg.types.numeric import Int4

from trimtab.server.postgres.message_queue_and_job_queries import SERVER_QUERIES
from trimtab.stores.postgres.connection_name import add_connection_name
from trimtab.stores.postgres.error_translation import describe_database, translate_psycopg_error

log = logging.getLogger("trimtab.server")


class TenantSlots:
    """Places for the turns of each tenant; without a limit there is always one."""

    def __init__(self, conninfo: str, limit: int | None) -> None:
        self._conninfo = conninfo
        self._limit = limit
        self._lock = asyncio.Lock()
        self._connection: AsyncConnection | None = None
        self._held: dict[str, dict[int, AsyncConnection]] = {}

    @asynccontextmanager
    async def hold_slot(self, tenant: str) -> AsyncGenerator[bool]:
        """A place for the length of the block; False where none is free."""
        if self._limit is None:
            yield True
            return
        place = await self._take_slot(tenant, self._limit)
        try:
            yield place is not None
        finally:
            if place is not None:
                await self._release_slot(tenant, place)

    async def close(self) -> None:
        """Give all places back."""
        if self._connection is not None:
            await self._connection.close()

    async def _take_slot(self, tenant: str, limit: int) -> int | None:
        async with self._lock:
            held = self._held.setdefault(tenant, {})
            # A lock that this connection has is given to it again: those are left out.
            free = [Int4(place) for place in range(limit) if place not in held]
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
            held[row[0]] = connection
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
                # With the connection all that it held is free.
                log.info("the running turns of each tenant are counted again: %s", error)
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
    """The number of a tenant's places, as locks of the database."""
    digest = sha256(b"trimtab tenant\0" + tenant.encode("utf-8", "surrogatepass")).digest()
    return int.from_bytes(digest[:4], "big", signed=True)
