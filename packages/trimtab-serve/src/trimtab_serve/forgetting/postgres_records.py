"""Records of erasures in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from psycopg.types.numeric import Int8

from trimtab_serve.queue.postgres.queries import SERVER_QUERIES
from trimtab_serve.schedules.postgres import BorrowConnection
from trimtab_serve.service.erasure_records import (
    ErasureRecord,
    compute_target_digest,
    decode_erasure_record,
    encode_erasure_record,
)

RETENTION_LOCK_ID = 0x74745F72657461
"""`tt_reta` as a number: the lock of the one process that deletes old sessions."""


class PostgresErasureRecords:
    """Stores the records through borrowed connections."""

    def __init__(self, borrow_connection: BorrowConnection) -> None:
        self._borrow_connection = borrow_connection
        self._secret: bytes | None = None

    async def add(self, record: ErasureRecord) -> None:
        values = [record.tenant, record.target, encode_erasure_record(record)]
        async with self._borrow_connection() as connection:
            await connection.execute(SERVER_QUERIES["record_erasure"], values)

    async def newest(
        self, tenant: str | None, *, target: str | None = None, limit: int = 100
    ) -> list[ErasureRecord]:
        async with self._borrow_connection() as connection:
            cursor = await connection.execute(
                SERVER_QUERIES["newest_erasures"], [tenant, target, Int8(limit)]
            )
            return [decode_erasure_record(body) for (body,) in await cursor.fetchall()]

    async def digest(self, text: str) -> str:
        if self._secret is None:
            async with self._borrow_connection() as connection:
                cursor = await connection.execute(SERVER_QUERIES["erasure_secret"])
                row = await cursor.fetchone()
            assert row is not None  # noqa: S101 - the migration has made it
            self._secret = bytes(row[0])
        return compute_target_digest(self._secret, text)


@asynccontextmanager
async def hold_retention_lock(borrow_connection: BorrowConnection) -> AsyncGenerator[bool]:
    """Yield whether this process is the one that deletes old sessions. It is valid inside the
    block."""
    async with borrow_connection() as connection:
        cursor = await connection.execute(
            SERVER_QUERIES["take_retention"], [Int8(RETENTION_LOCK_ID)]
        )
        row = await cursor.fetchone()
        is_mine = bool(row and row[0])
        try:
            yield is_mine
        finally:
            if is_mine:
                await connection.execute(
                    SERVER_QUERIES["leave_retention"], [Int8(RETENTION_LOCK_ID)]
                )
