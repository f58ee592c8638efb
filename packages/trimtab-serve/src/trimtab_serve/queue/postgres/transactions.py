"""Transactions on borrowed connections."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from psycopg import AsyncConnection, Error

from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.queue.transactions import ResultRows, Transaction

T = TypeVar("T")
BorrowConnection = Callable[[], AbstractAsyncContextManager[AsyncConnection]]
"""Borrows a connection of the queue's pool, outside a transaction: `ConnectionPool.borrow`."""
PostInTransaction = Callable[[InboundMessage, AsyncConnection], Awaitable[bool]]
"""Stores a message, and the turn that it requires, in the transaction of a connection."""


async def _refuse_to_post(*_: object) -> bool:
    raise AssertionError("there is no queue to post to")


class PostgresTransactions:
    """The `Transactions` of a database. Without `post`, they post no messages."""

    def __init__(
        self, borrow_connection: BorrowConnection, post: PostInTransaction = _refuse_to_post
    ) -> None:
        self._borrow_connection = borrow_connection
        self._post = post
        self.errors: tuple[type[Exception], ...] = (Error,)

    async def transact(
        self,
        work: Callable[[Transaction], Coroutine[Any, Any, T]],
        *,
        erases: bool = False,  # noqa: ARG002 - a database has no file that we could compact
    ) -> T:
        async with self._borrow_connection() as connection, connection.transaction():
            return await work(_PostgresTransaction(connection, self._post))

    async def fetch(
        self,
        sql: str,
        *values: object,
        many: bool = False,  # noqa: ARG002 - the database reads, so nobody here is blocked
    ) -> ResultRows:
        async with self._borrow_connection() as connection:
            return await _PostgresTransaction(connection, self._post).fetch(sql, *values)


@dataclass(slots=True)
class _PostgresTransaction:
    _connection: AsyncConnection
    _post: PostInTransaction

    async def fetch(self, sql: str, *values: object) -> ResultRows:
        return await (await self._connection.execute(sql.encode(), values)).fetchall()

    async def execute(self, sql: str, *values: object) -> int:
        return (await self._connection.execute(sql.encode(), values)).rowcount

    async def execute_many(self, sql: str, rows: Sequence[Sequence[object]]) -> None:
        await self._connection.cursor().executemany(sql.encode(), rows)

    async def post(self, messages: Sequence[InboundMessage]) -> None:
        for one in messages:
            await self._post(one, self._connection)
