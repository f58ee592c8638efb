"""What is deleted or erased leaves the mail in PostgreSQL; the queue of turns is not needed."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import Self

from psycopg import AsyncConnection
from psycopg.types.numeric import Int8

from trimtab.core.edits import erased_message
from trimtab.stores.postgres.names import read, written
from trimtab.stores.postgres.pool import Borrowed, Connections
from trimtab.worker.letters import Inbound
from trimtab.worker.mail import without_details
from trimtab.worker.postgres.queries import QUERIES
from trimtab.worker.postgres.rows import letter_body, letter_of, reply_of


class PostgresLetters:
    """The `Letters` of a database that others serve. Made by `connect`, given back by `close`."""

    def __init__(self, connections: Connections) -> None:
        self._connections = connections

    @classmethod
    async def connect(cls, conninfo: str, *, wait: float = 10.0) -> Self:
        """Open a connection to a migrated database."""
        return cls(await Connections.open(conninfo, min_size=1, max_size=1, wait=wait))

    async def pending(self, session: str, *, after: int = 0, limit: int = 100) -> list[Inbound]:
        values = [written(session), Int8(after), Int8(limit)]
        rows = await self._connections.fetch(QUERIES["pending"], values)
        return [letter_of(row) for row in rows]

    async def forget(self, session: str) -> None:
        async with self.lend() as connection, connection.transaction():
            for query in ("forget_inbox", "forget_waiting", "forget_done", "forget_dead"):
                await connection.execute(QUERIES[query], [written(session)])

    async def erase(self, session: str, positions: Collection[int], keys: Collection[str]) -> None:
        async with self.lend() as connection, connection.transaction():
            await _erase_letters(connection, session, keys)
            await _erase_replies(connection, session, positions)

    def lend(self) -> Borrowed:
        """A connection for the length of an `async with`."""
        return self._connections.borrow()

    async def close(self) -> None:
        """Close the connection."""
        await self._connections.close()


async def _erase_letters(connection: AsyncConnection, session: str, keys: Collection[str]) -> None:
    name = written(session)
    cursor = await connection.execute(QUERIES["said_in_letters"], [name, [*map(written, keys)]])
    for row in await cursor.fetchall():
        letter = letter_of(row)
        blank = replace(letter, message=erased_message(letter.message, None))
        values = [name, Int8(letter.number), letter_body(blank)]
        await connection.execute(QUERIES["rewrite_letter"], values)
    cursor = await connection.execute(QUERIES["said_of_dead"], [name])
    for (why,) in await cursor.fetchall():
        await connection.execute(QUERIES["rewrite_dead"], [name, _blank(why)])


async def _erase_replies(
    connection: AsyncConnection, session: str, positions: Collection[int]
) -> None:
    for query in ("said_in_waiting", "said_in_done"):
        cursor = await connection.execute(QUERIES[query], [written(session)])
        for number, body, why in await cursor.fetchall():
            if body and reply_of((number, body, 0)).seq in positions:
                await connection.execute(QUERIES["erase_reply"], [Int8(number)])
            elif why:
                await connection.execute(QUERIES["rewrite_why"], [Int8(number), _blank(why)])


def _blank(why: str) -> str:
    return written(without_details(read(why)))
