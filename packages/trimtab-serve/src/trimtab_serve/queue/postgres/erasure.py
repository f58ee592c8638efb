"""Erase messages in the PostgreSQL queue. This needs no job queue."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Self

from psycopg import AsyncConnection
from psycopg.types.numeric import Int8

from trimtab.engine.log.edits import erase_message_payload
from trimtab.stores.postgres.connection_pool import BorrowedConnection, ConnectionPool
from trimtab.stores.postgres.escaping import escape_for_text_column, unescape_from_text_column
from trimtab_serve.queue.messages import InboundMessage
from trimtab_serve.queue.postgres.queries import SERVER_QUERIES
from trimtab_serve.queue.postgres.transactions import PostgresTransactions
from trimtab_serve.queue.protocol import erase_failure_details
from trimtab_serve.queue.rows import (
    encode_inbound_body,
    inbound_from_row,
    inbound_from_rows,
    outbound_from_row,
)
from trimtab_serve.queue.transactions import Transactions

FORGET_QUERIES = (
    "forget_inbox",
    "forget_waiting",
    "forget_done",
    "forget_dead",
    "forget_interruptions",
)
"""The queries that remove everything of a session."""


class PostgresErasableQueue:
    """The `ErasableQueue` of a database that other processes serve.

    Created by `connect`, released by `close`.
    """

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections
        self.transactions: Transactions = PostgresTransactions(connections.borrow)

    @classmethod
    async def connect(cls, conninfo: str, *, wait: float = 10.0) -> Self:
        """Open a connection to a migrated database."""
        return cls(await ConnectionPool.open(conninfo, max_size=1, wait=wait, purpose="erasure"))

    async def pending(
        self, session: str, *, after: int = 0, limit: int = 100
    ) -> list[InboundMessage]:
        values = [escape_for_text_column(session), Int8(after), Int8(limit)]
        rows = await self._connections.fetch(SERVER_QUERIES["pending"], values)
        return await inbound_from_rows(rows)

    async def forget_session(self, session: str) -> None:
        async with self.borrow_connection() as connection, connection.transaction():
            for query in FORGET_QUERIES:
                await connection.execute(SERVER_QUERIES[query], [escape_for_text_column(session)])

    async def erase_messages(
        self, session: str, positions: Collection[int], keys: Collection[str]
    ) -> None:
        async with self.borrow_connection() as connection, connection.transaction():
            await _erase_inbound(connection, session, keys)
            await _erase_replies(connection, session, positions)

    def borrow_connection(self) -> BorrowedConnection:
        """Return a connection for an `async with` block."""
        return self._connections.borrow()

    async def close(self) -> None:
        """Close the connection."""
        await self._connections.close()


async def _erase_inbound(connection: AsyncConnection, session: str, keys: Collection[str]) -> None:
    name = escape_for_text_column(session)
    cursor = await connection.execute(
        SERVER_QUERIES["said_in_messages"], [name, [*map(escape_for_text_column, keys)]]
    )
    for row in await cursor.fetchall():
        inbound = inbound_from_row(row)
        blank = replace(inbound, message=erase_message_payload(inbound.message, None))
        values = [name, Int8(inbound.number), encode_inbound_body(blank)]
        await connection.execute(SERVER_QUERIES["rewrite_message"], values)
    cursor = await connection.execute(SERVER_QUERIES["said_of_dead"], [name])
    for (why,) in await cursor.fetchall():
        await connection.execute(SERVER_QUERIES["rewrite_dead"], [name, _redact_stored_reason(why)])


async def _erase_replies(
    connection: AsyncConnection, session: str, positions: Collection[int]
) -> None:
    for query in ("said_in_waiting", "said_in_done"):
        cursor = await connection.execute(SERVER_QUERIES[query], [escape_for_text_column(session)])
        for number, body, why in await cursor.fetchall():
            if body and outbound_from_row((number, body, 0)).seq in positions:
                await connection.execute(SERVER_QUERIES["erase_reply"], [Int8(number)])
            elif why:
                await connection.execute(
                    SERVER_QUERIES["rewrite_why"], [Int8(number), _redact_stored_reason(why)]
                )


def _redact_stored_reason(reason: str) -> str:
    return escape_for_text_column(erase_failure_details(unescape_from_text_column(reason)))
