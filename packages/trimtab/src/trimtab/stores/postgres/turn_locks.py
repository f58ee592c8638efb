"""The locks of turns: advisory locks of one connection, which end with its process.

They only make requests wait for each other. If the connection breaks, they are gone although their
turns run on. Then another request takes the turn over, and the epoch keeps the first from writing.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

from psycopg import AsyncConnection, Error
from psycopg.types.numeric import Int8

from trimtab.errors import StoreUnavailable
from trimtab.stores.forks import leave_at_fork
from trimtab.stores.postgres.connection_pool import ConnectionPool, detach_after_fork
from trimtab.stores.postgres.escaping import compute_lock_key
from trimtab.stores.postgres.queries import QUERIES
from trimtab.stores.shared_lock import SharedLock


class TurnLocks:
    """The locks of the turns that one store holds.

    They have a connection of their own: one of the pool for each turn would leave none to write.
    """

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections
        self._connection: AsyncConnection | None = None
        self._using = SharedLock()
        leave_at_fork(self)

    async def try_lock(self, session: str) -> bool:
        """Lock a turn. Return False if another process has it."""
        locking = asyncio.ensure_future(self._call("try_lock_turn", session))
        try:
            return await asyncio.shield(locking)
        except asyncio.CancelledError:
            if await locking:
                await self._call("unlock_turn", session)
            raise

    async def unlock(self, session: str) -> None:
        """Unlock a turn. If the connection is gone, so is the lock."""
        if self._connection is not None and not self._connection.closed:
            with suppress(StoreUnavailable):
                await asyncio.shield(self._call("unlock_turn", session))

    async def close(self) -> None:
        """Close the connection, which unlocks all turns."""
        if self._connection is not None:
            await self._connection.close()

    def leave_to_parent(self) -> None:
        """Begin without the turns that the parent process has locked."""
        if self._connection is not None:
            detach_after_fork(self._connection)
            self._connection = None

    async def _call(self, query: str, session: str) -> bool:
        key = Int8(compute_lock_key("turn", session))
        async with self._using:
            while True:
                before = self._connection
                try:
                    return await self._fetch_flag(query, key)
                except Error as error:
                    if before is None or not before.closed or self._connection is not before:
                        raise self._connections.translate_error(error) from error
                    self._connection = None  # it broke since its last use: a new one may do

    async def _fetch_flag(self, query: str, key: Int8) -> bool:
        if self._connection is None or self._connection.closed:
            self._connection = await self._connections.connect_apart("turns")
            await self._connection.execute(QUERIES["notice_lost_clients"], prepare=False)
        row = await (await self._connection.execute(QUERIES[query], [key])).fetchone()
        return row is not None and bool(row[0])
