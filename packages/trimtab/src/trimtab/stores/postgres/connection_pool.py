"""A pool of PostgreSQL connections, whose errors name their cause."""

from __future__ import annotations

import select
from collections.abc import Sequence
from inspect import isawaitable
from time import monotonic
from types import TracebackType
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, AsyncRawCursor, Error
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

from trimtab.stores.base import PoolUsage
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
"""Seconds since its last use for which a connection is assumed to be alive."""
LOANS_BETWEEN_POOL_CHECKS = 1_000
"""Number of uses after which all idle connections return to the pool, which checks their age."""


class ConnectionPool:
    """A pool that skips connections whose server has reported that it is gone.

    It keeps connections that were given back ready itself. Borrowing one of them takes a tenth of
    the time and never waits. Now and then all of them return to the pool, which closes those that
    are old or have long been idle.
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
        """Test the database with one connection, which gives the best error message, then open the
        pool.

        `purpose` names its connections in the database.
        """
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

    async def connect_apart(self, purpose: str) -> AsyncConnection:
        """Open a connection to the same database that is not one of the pool."""
        conninfo = add_connection_name(await _resolve(self._pool.conninfo) or "", purpose)
        options: dict[str, Any] = dict(await _resolve(self._pool.kwargs) or {})
        options |= {**CONNECTION_OPTIONS, "row_factory": tuple_row}
        return await self._pool.connection_class.connect(conninfo, **options)

    def borrow(self) -> BorrowedConnection:
        """Return a connection for an `async with` block. Errors of psycopg are translated."""
        return BorrowedConnection(self)

    async def fetch(self, query: bytes, parameters: Sequence[Any]) -> ResultRows:
        """Return the rows of a query in its own transaction."""
        async with self.borrow() as connection:
            return await (await connection.execute(query, parameters)).fetchall()

    def cursor(self, connection: AsyncConnection) -> AsyncCursor:
        """Return the connection's own cursor, for statements that return no rows."""
        own_cursor = self._cursors.get(connection)
        if own_cursor is None:
            self._cursors = {c: cursor for c, cursor in self._cursors.items() if not c.closed}
            own_cursor = self._cursors[connection] = connection.cursor()
        return own_cursor

    async def close(self) -> None:
        """Close all connections."""
        self._open = False
        while self._ready:
            await self._pool.putconn(self._ready.pop()[0])
        await self._pool.close()

    def usage(self) -> PoolUsage:
        """Return how many connections are in use, allowed and awaited."""
        stats = self._pool.get_stats()
        idle = stats.get("pool_available", 0) + len(self._ready)
        return PoolUsage(
            in_use=max(0, stats.get("pool_size", 0) - idle),
            max_size=self._pool.max_size,
            waiting=self._waiting,
        )

    async def acquire(self) -> AsyncConnection:
        """Return a connection that has not reported that it is closed."""
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
        """Return a connection to the pool."""
        self._loans += 1
        if not self._loans % LOANS_BETWEEN_POOL_CHECKS:
            idle = self._ready
            self._ready = []
            for idle_connection, _ in idle:
                await self._pool.putconn(idle_connection)
        elif (
            self._open
            and not self._waiting
            and connection.pgconn.transaction_status == TransactionStatus.IDLE
        ):
            self._ready.append((connection, monotonic()))
            return
        await self._pool.putconn(connection)

    def translate_error(self, error: Error) -> Exception:
        """Translate an error of psycopg by its cause."""
        return translate_psycopg_error(error, self._place) or error

    async def _from_pool(self) -> AsyncConnection:
        self._waiting += 1
        try:
            return await self._pool.getconn()
        finally:
            self._waiting -= 1


class SharedConnectionPool(ConnectionPool):
    """The open pool of an application, which uses its connections as well.

    So each one goes back at once, as it was, and the pool stays open.
    """

    def __init__(self, pool: PsycopgPool, database_label: str) -> None:
        super().__init__(pool, database_label)
        self._settings: dict[AsyncConnection, tuple[Any, ...]] = {}

    @classmethod
    async def share(cls, pool: PsycopgPool) -> SharedConnectionPool:
        """Test the database with a connection of the pool."""
        conninfo = await _resolve(pool.conninfo) or ""
        shared_pool = cls(pool, describe_database(conninfo))
        async with shared_pool.borrow() as connection:
            await check_schema_version(connection, shared_pool._place)
        return shared_pool

    def cursor(self, connection: AsyncConnection) -> AsyncCursor:
        """Return a new cursor."""
        return connection.cursor()

    async def close(self) -> None:
        """Do nothing: the application closes its pool."""

    async def acquire(self) -> AsyncConnection:
        """Return a connection of the application, with our settings."""
        connection = await self._from_pool()
        self._settings[connection] = (
            connection.autocommit,
            connection.cursor_factory,
            connection.row_factory,
            connection.prepare_threshold,
        )
        await connection.set_autocommit(True)
        connection.cursor_factory = AsyncRawCursor
        connection.row_factory = tuple_row
        if connection.prepare_threshold is not None:
            connection.prepare_threshold = CONNECTION_OPTIONS["prepare_threshold"]
        return connection

    async def give_back(self, connection: AsyncConnection) -> None:
        """Return a connection to the pool with the application's settings."""
        autocommit, cursors, rows, threshold = self._settings.pop(connection)
        if connection.pgconn.transaction_status == TransactionStatus.IDLE:
            await connection.set_autocommit(autocommit)
            connection.cursor_factory = cursors
            connection.row_factory = rows
            connection.prepare_threshold = threshold
        else:
            await connection.close()  # the pool replaces it
        await self._pool.putconn(connection)


class BorrowedConnection:
    """A borrowed connection."""

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


async def _resolve(parameter: Any) -> Any:
    """Return a parameter of a pool, which may be a function that returns it."""
    value = parameter() if callable(parameter) else parameter
    return await value if isawaitable(value) else value


async def _configure_connection(connection: AsyncConnection) -> None:
    # Statements for each partition, and no new plan for each use: none depends on its parameters.
    connection.prepared_max = 500
    # Compiling a plan takes longer than every statement, and a plan for any limit looks expensive.
    settings = "SET plan_cache_mode = force_generic_plan; SET jit = off"
    await connection.execute(settings, prepare=False)


def has_unread_message(connection: AsyncConnection) -> bool:
    """Whether the server has sent an unsolicited message, usually because it is shutting down."""
    if connection.closed:
        return True
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
