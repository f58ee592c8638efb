"""Records of erasures in PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from psycopg.types.numeric import Float8, Int8

from trimtab_serve.queue.postgres.queries import SERVER_QUERIES
from trimtab_serve.queue.postgres.transactions import BorrowConnection
from trimtab_serve.service.erasure_records import (
    JOB_RETENTION_S,
    ErasureJob,
    ErasureRecord,
    compute_target_digest,
    decode_erasure_job,
    decode_erasure_record,
    encode_erasure_job,
    encode_erasure_record,
)

RETENTION_LOCK_ID = 0x74745F72657461
"""`tt_reta` as a number: the lock of the one process that deletes old sessions."""

JOBS_LOCK_ID = 0x74745F65726173
"""`tt_eras` as a number: the lock of the process that leases a job."""


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

    async def save_job(self, job: ErasureJob, *, lease_s: float = 0.0) -> None:
        values = [job.id, job.tenant, encode_erasure_job(job), job.finished_at, Float8(lease_s)]
        async with self._borrow_connection() as connection:
            await connection.execute(SERVER_QUERIES["save_erasure_job"], values)
            if job.finished_at is not None:
                await connection.execute(
                    SERVER_QUERIES["forget_erasure_jobs"], [Float8(JOB_RETENTION_S)]
                )

    async def claim_job(self, job_id: str | None, *, lease_s: float) -> ErasureJob | None:
        async with self._borrow_connection() as connection, connection.transaction():
            # Two processes must not lease two jobs of one tenant.
            await connection.execute(SERVER_QUERIES["lock_erasure_jobs"], [Int8(JOBS_LOCK_ID)])
            cursor = await connection.execute(
                SERVER_QUERIES["claim_erasure_job"], [job_id, Float8(lease_s)]
            )
            row = await cursor.fetchone()
        return decode_erasure_job(row[0]) if row is not None else None

    async def list_jobs(self, tenant: str | None = None) -> list[ErasureJob]:
        async with self._borrow_connection() as connection:
            cursor = await connection.execute(SERVER_QUERIES["erasure_jobs"], [tenant])
            return [decode_erasure_job(body) for (body,) in await cursor.fetchall()]

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
