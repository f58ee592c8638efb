"""Connections to PostgreSQL, whose errors name their cause."""

from __future__ import annotations

import asyncio
import os
import select
from collections import deque
from collections.abc import Sequence
from inspect import isawaitable
from time import monotonic
from types import TracebackType
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, AsyncRawCursor, Error, OperationalError
from psycopg.pq import TransactionStatus
from psycopg.rows import tuple_row
from psycopg_pool import AsyncConnectionPool

from trimtab.errors import StoreClosed, StoreUnavailable
from trimtab.stores.base import PoolUsage
from trimtab.stores.forks import leave_at_fork
from trimtab.stores.postgres.connection_name import add_connection_name
from trimtab.stores.postgres.error_translation import describe_database, translate_psycopg_error
from trimtab.stores.postgres.migrations import check_schema_version
from trimtab.stores.shared_lock import SharedLock

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
MAX_IDLE_S = 600.0
"""Seconds after which a connection that nobody needs is closed."""
MAX_AGE_S = 3600.0
"""Seconds after which a connection is replaced, because its process in the server grows."""
RECONNECT_INTERVAL_S = 0.2
"""Seconds between two attempts to connect to a server that may be restarting."""


class _Connection(AsyncConnection):
    """A connection that ends with its program, like one of psycopg's pools: without a warning."""

    _pool = None
    """What psycopg looks for."""


class ConnectionPool:
    """Connections to a database, opened when they are needed.

    They belong to no event loop: each one is used in one loop at a time, but in any. (A pool of
    psycopg belongs to the loop that opened it.) A forked process opens its own.
    """

    def __init__(self, conninfo: str, database_label: str, *, max_size: int, wait: float) -> None:
        self._conninfo = conninfo
        self._place = database_label
        self._max_size = max_size
        self._wait = wait
        self._slots = SharedLock(max_size)
        self._idle: deque[tuple[AsyncConnection, float]] = deque()
        """Connections that nobody uses, and since when; the last used one at the end."""
        self._open = True
        self._cursors: dict[AsyncConnection, tuple[AsyncCursor, float]] = {}
        """The cursor of each connection, and when it was opened."""
        leave_at_fork(self)

    @classmethod
    async def open(
        cls, conninfo: str, *, max_size: int, wait: float, purpose: str = "sessions"
    ) -> ConnectionPool:
        """Test the database with a first connection.

        `purpose` names the connections in the database.
        """
        place = describe_database(conninfo)
        pool = cls(add_connection_name(conninfo, purpose), place, max_size=max_size, wait=wait)
        try:
            first = await pool._connect(wait)
            try:
                await check_schema_version(first, place)
            except BaseException:
                await pool._drop(first)
                raise
        except Error as error:
            raise translate_psycopg_error(error, place, may_have_written=False) or error from error
        pool._idle.append((first, monotonic()))
        return pool

    async def connect_apart(self, purpose: str) -> AsyncConnection:
        """Open a connection to the same database that is not one of the pool."""
        conninfo = add_connection_name(self._conninfo, purpose)
        return await _Connection.connect(conninfo, **CONNECTION_OPTIONS)

    def borrow(self) -> BorrowedConnection:
        """Return a connection for an `async with` block. Errors of psycopg are translated."""
        return BorrowedConnection(self)

    async def fetch(self, query: bytes, parameters: Sequence[Any]) -> ResultRows:
        """Return the rows of a query in its own transaction."""
        async with self.borrow() as connection:
            return await (await connection.execute(query, parameters)).fetchall()

    def cursor(self, connection: AsyncConnection) -> AsyncCursor:
        """Return the connection's own cursor, for statements that return no rows."""
        return self._cursors[connection][0]

    async def close(self) -> None:
        """Close all connections. One that is in use is closed when it is given back."""
        self._open = False
        while self._idle:
            await self._drop(self._idle.pop()[0])

    def usage(self) -> PoolUsage:
        """Return how many connections are in use, allowed and awaited."""
        return PoolUsage(
            in_use=len(self._cursors) - len(self._idle),
            max_size=self._max_size,
            waiting=self._slots.waiters,
        )

    async def acquire(self) -> AsyncConnection:
        """Return a connection that has not reported that it is closed."""
        deadline = monotonic() + self._wait
        if not self._slots.try_acquire():
            try:
                async with asyncio.timeout(self._wait):
                    await self._slots.acquire()
            except TimeoutError:
                raise StoreUnavailable(
                    f"{self._place} gave no connection within {self._wait:g} seconds: all "
                    f"{self._max_size} are in use; allow more with max_size, if the server does"
                ) from None
        try:
            return await self._take(deadline)
        except BaseException:
            self._slots.release()
            raise

    async def give_back(self, connection: AsyncConnection) -> None:
        """Keep a connection for the next one who needs it."""
        now = monotonic()
        is_idle = connection.pgconn.transaction_status == TransactionStatus.IDLE
        try:
            if self._open and is_idle and now - self._cursors[connection][1] < MAX_AGE_S:
                self._idle.append((connection, now))
            else:
                await self._drop(connection)
            if self._idle and now - self._idle[0][1] > MAX_IDLE_S:
                await self._drop(self._idle.popleft()[0])
        finally:
            self._slots.release()

    def translate_error(self, error: Error) -> Exception:
        """Translate an error of psycopg by its cause."""
        return translate_psycopg_error(error, self._place) or error

    async def _take(self, deadline: float) -> AsyncConnection:
        """Return an idle connection, or a new one."""
        while True:
            if not self._open:
                raise StoreClosed
            try:
                connection, since = self._idle.pop()
            except IndexError:
                break
            if monotonic() - since < FRESH_CONNECTION_S or not has_unread_message(connection):
                return connection
            await self._drop(connection)
        while True:
            try:
                return await self._connect(deadline - monotonic())
            except OperationalError as error:
                if monotonic() + RECONNECT_INTERVAL_S >= deadline:
                    why = " ".join(str(error).split())
                    raise StoreUnavailable(
                        f"{self._place} gave no connection within {self._wait:g} seconds ({why}); "
                        "check that the server runs"
                    ) from error
            await asyncio.sleep(RECONNECT_INTERVAL_S)

    async def _connect(self, timeout_s: float) -> AsyncConnection:
        connection = await _Connection.connect(
            self._conninfo, connect_timeout=max(2, round(timeout_s)), **CONNECTION_OPTIONS
        )
        self._cursors[connection] = connection.cursor(), monotonic()
        # Statements for each partition, and no new plan for each use: none depends on its
        # parameters.
        connection.prepared_max = 500
        # Compiling a plan takes longer than every statement, and a plan for any limit looks
        # expensive.
        settings = "SET plan_cache_mode = force_generic_plan; SET jit = off"
        try:
            await connection.execute(settings, prepare=False)
        except BaseException:
            await self._drop(connection)
            raise
        return connection

    async def _drop(self, connection: AsyncConnection) -> None:
        self._cursors.pop(connection, None)
        await connection.close()

    def leave_to_parent(self) -> None:
        """Begin without the connections of the parent process."""
        for connection in self._cursors:
            detach_after_fork(connection)
        self._cursors, self._idle = {}, deque()


class SharedConnectionPool(ConnectionPool):
    """The open pool of an application, which uses its connections as well.

    So each one goes back at once, as it was, and the pool stays open. It belongs to an event loop.
    """

    def __init__(self, pool: PsycopgPool, conninfo: str) -> None:
        super().__init__(
            conninfo, describe_database(conninfo), max_size=pool.max_size, wait=pool.timeout
        )
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._settings: dict[AsyncConnection, tuple[Any, ...]] = {}

    @classmethod
    async def share(cls, pool: PsycopgPool) -> SharedConnectionPool:
        """Test the database with a connection of the pool."""
        shared_pool = cls(pool, await _resolve(pool.conninfo) or "")
        async with shared_pool.borrow() as connection:
            await check_schema_version(connection, shared_pool._place)
        return shared_pool

    async def connect_apart(self, purpose: str) -> AsyncConnection:
        """Open a connection as the application's pool does."""
        conninfo = add_connection_name(self._conninfo, purpose)
        options: dict[str, Any] = dict(await _resolve(self._pool.kwargs) or {})
        options |= {**CONNECTION_OPTIONS, "row_factory": tuple_row}
        return await self._pool.connection_class.connect(conninfo, **options)

    def cursor(self, connection: AsyncConnection) -> AsyncCursor:
        """Return a new cursor."""
        return connection.cursor()

    async def close(self) -> None:
        """Do nothing: the application closes its pool."""

    def usage(self) -> PoolUsage:
        """Return how many connections are in use, allowed and awaited."""
        stats = self._pool.get_stats()
        return PoolUsage(
            in_use=max(0, stats.get("pool_size", 0) - stats.get("pool_available", 0)),
            max_size=self._max_size,
            waiting=stats.get("requests_waiting", 0),
        )

    async def acquire(self) -> AsyncConnection:
        """Return a connection of the application, with our settings."""
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError(
                "this store shares a pool of psycopg, which works only in the event loop that "
                "opened it, and this is another one; open the store with the address of the "
                "database instead: then it works in every event loop"
            )
        connection = await self._pool.getconn()
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


def detach_after_fork(connection: AsyncConnection) -> None:
    """Take a connection of the parent process from this one, without a word to the server.

    Otherwise the server would not notice that the parent has ended: turns would stay locked.
    """
    if not connection.closed:
        with open(os.devnull, "rb") as nothing:  # noqa: PTH123 - a number is needed
            os.dup2(nothing.fileno(), connection.fileno(), inheritable=False)


def has_unread_message(connection: AsyncConnection) -> bool:
    """Whether the server has sent an unsolicited message, usually because it is shutting down."""
    if connection.closed:
        return True
    if not hasattr(select, "poll"):  # on Windows
        return bool(select.select([connection.fileno()], [], [], 0)[0])
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))
