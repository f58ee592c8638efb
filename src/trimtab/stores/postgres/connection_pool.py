"""Connections to PostgreSQL, lent one at a time; what goes wrong comes out by its cause."""

from __future__ import annotations

import select
from collections.abc import Sequence
from time import monotonic
from types import TracebackType
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, AsyncRawCursor, Error
from psycopg.pq import TransactionStatus
from psycopg_pool import AsyncConnectionPool

from trimtab.stores.pool_usage import PoolUsage
from trimtab.stores.postgres.connection_name import add_connection_name
from trimtab.stores.postgres.error_translation import describe_database, translate_psycopg_error
from trimtab.stores.postgres.migrations import check_schema_version

ResultRows = list[tuple[Any, ...]]
PsycopgPool = AsyncConnectionPool[AsyncConnection]

CONNECTION_OPTIONS: dict[str, Any] = {
    "autocommit": True,
    "cursor_factory": AsyncRawCursor,
    # There are few queries, all used again and again.
    "prepare_threshold": 0,
}


FRESH_CONNECTION_S = 0.1
"""Seconds since its last use in which a connection is taken to be alive."""
LOANS_BETWEEN_POOL_CHECKS = 1_000
"""Loans after which a connection goes back through the pool, which looks at its age."""


class ConnectionPool:
    """A pool that lends only connections whose server is still there, as far as it has told.

    As many as the pool keeps open anyway lie ready in front of it: a loan from there takes a
    tenth of the time, and waits for nothing.
    """

    def __init__(self, pool: PsycopgPool, database_label: str) -> None:
        self._pool = pool
        self._place = database_label
        self._ready: list[tuple[AsyncConnection, float]] = []
        self._waiting = 0
        self._loans = 0
        self._open = True
        self._cursors: dict[AsyncConnection, AsyncCursor] = {}

    @classmethod
    async def open(
        cls, conninfo: str, *, min_size: int, max_size: int, wait: float, purpose: str = "sessions"
    ) -> ConnectionPool:
        """Look at the database with one connection, which says best what is wrong; then open.
        `purpose` is what the database calls its connections."""
        place = describe_database(conninfo)
        conninfo = add_connection_name(conninfo, purpose)
        pool: PsycopgPool = AsyncConnectionPool(
            conninfo,
            kwargs=CONNECTION_OPTIONS,
            min_size=min_size,
            max_size=max_size,
            timeout=wait,
            configure=_configure_connection,
            name=f"trimtab: {place}",
            open=False,
        )
        try:
            first = await AsyncConnection.connect(
                conninfo, connect_timeout=max(2, round(wait)), **CONNECTION_OPTIONS
            )
            async with first:
                await check_schema_version(first, place)
            await pool.open(wait=True, timeout=wait)
        except Error as error:
            await pool.close()
            raise translate_psycopg_error(error, place, may_have_written=False) or error from error
        return cls(pool, place)

    def borrow(self) -> BorrowedConnection:
        """A connection for the length of an `async with`; psycopg's errors leave it as ours."""
        return BorrowedConnection(self)

    async def fetch(self, query: bytes, parameters: Sequence[Any]) -> ResultRows:
        """The rows of a query in a transaction of its own."""
        async with self.borrow() as connection:
            return await (await connection.execute(query, parameters)).fetchall()

    def cursor(self, connection: AsyncConnection) -> AsyncCursor:
        """A connection's own, always the same, for what returns no rows."""
        found = self._cursors.get(connection)
        if found is None:
            self._cursors = {c: cursor for c, cursor in self._cursors.items() if not c.closed}
            found = self._cursors[connection] = connection.cursor()
        return found

    async def close(self) -> None:
        """Close all connections."""
        self._open = False
        while self._ready:
            await self._pool.putconn(self._ready.pop()[0])
        await self._pool.close()

    def usage(self) -> PoolUsage:
        """How many connections are lent, may be, and are waited for."""
        told = self._pool.get_stats()
        idle = told.get("pool_available", 0) + len(self._ready)
        return PoolUsage(
            in_use=max(0, told.get("pool_size", 0) - idle),
            max_size=self._pool.max_size,
            waiting=self._waiting,
        )

    async def acquire(self) -> AsyncConnection:
        """A connection that has not said that it is gone."""
        for _ in range(2 * self._pool.max_size):
            if self._ready:
                connection, since = self._ready.pop()
                if monotonic() - since < FRESH_CONNECTION_S:
                    return connection
            else:
                connection = await self._from_pool()
            if not has_unread_message(connection):
                return connection
            await connection.close()
            await self._pool.putconn(connection)
        return await self._from_pool()

    async def give_back(self, connection: AsyncConnection) -> None:
        """The end of a loan."""
        self._loans += 1
        if (
            self._open
            and not self._waiting
            and len(self._ready) < self._pool.min_size
            and self._loans % LOANS_BETWEEN_POOL_CHECKS
            and connection.pgconn.transaction_status == TransactionStatus.IDLE
        ):
            self._ready.append((connection, monotonic()))
        else:
            await self._pool.putconn(connection)

    def translate_error(self, error: Error) -> Exception:
        """What psycopg raised, by its cause."""
        return translate_psycopg_error(error, self._place) or error

    async def _from_pool(self) -> AsyncConnection:
        self._waiting += 1
        try:
            return await self._pool.getconn()
        finally:
            self._waiting -= 1


class BorrowedConnection:
    """One connection, lent."""

    __slots__ = ("_connection", "_owner")

    def __init__(self, owner: ConnectionPool) -> None:
        self._owner = owner
        self._connection: AsyncConnection | None = None

    async def __aenter__(self) -> AsyncConnection:
        try:
            self._connection = await self._owner.acquire()
        except Error as error:
            raise self._owner.translate_error(error) from error
        return self._connection

    async def __aexit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> None:
        if self._connection is not None:
            await self._owner.give_back(self._connection)
        if isinstance(error, Error):
            raise self._owner.translate_error(error) from error


async def _configure_connection(connection: AsyncConnection) -> None:
    # Statements for each partition, and no new plan for each use: none depends on its parameters.
    connection.prepared_max = 500
    await connection.execute("SET plan_cache_mode = force_generic_plan")


def has_unread_message(connection: AsyncConnection) -> bool:
    """True where the server spoke without being asked: as a rule to say that it is gone."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
