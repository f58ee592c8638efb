"""Counters in PostgreSQL, for all processes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.resources import files
from typing import Any

from psycopg.types.numeric import Int8

from trimtab.stores.named_queries import parse_named_queries
from trimtab.stores.postgres.escaping import compute_session_uuid
from trimtab_serve.queue.address import SessionAddress
from trimtab_serve.queue.postgres.transactions import BorrowConnection
from trimtab_serve.usage.protocol import FullStorage, TenantTotals

MAX_FULL = 10_000
"""Number of sessions or tenants at a limit that are read."""

USAGE_QUERIES = parse_named_queries(
    files("trimtab_serve.usage").joinpath("queries.sql").read_text(encoding="utf-8")
)


class PostgresUsageCounters:
    """The `UsageCounters` on borrowed connections."""

    def __init__(self, borrow_connection: BorrowConnection) -> None:
        self._borrow_connection = borrow_connection

    async def measure(self, sessions: Collection[SessionAddress]) -> None:
        names = [str(session) for session in sessions]
        tenants = [session.tenant for session in sessions]
        ids = [*map(compute_session_uuid, names)]
        async with self._borrow_connection() as connection, connection.transaction():
            await connection.execute(USAGE_QUERIES["lock_measured"], [ids])
            await connection.execute(USAGE_QUERIES["measure"], [ids, names, tenants])
            await connection.execute(USAGE_QUERIES["forget_absent"], [ids])

    async def recount(self, session: SessionAddress) -> None:
        await self._execute("recount", [compute_session_uuid(str(session))])
        await self.measure([session])

    async def forget(self, session: SessionAddress) -> None:
        await self._execute("forget", [compute_session_uuid(str(session))])

    async def reserve(self, session: SessionAddress, size: int, *, limit: int) -> int | None:
        name = str(session)
        values = [compute_session_uuid(name), name, session.tenant, Int8(size), Int8(limit)]
        async with self._borrow_connection() as connection:
            cursor = await connection.execute(USAGE_QUERIES["reserve"], values)
            if cursor.rowcount:
                return None
        totals = (await self.find_totals([session.tenant])).get(session.tenant)
        return 0 if totals is None else totals.stored_bytes

    async def find_totals(self, tenants: Collection[str]) -> Mapping[str, TenantTotals]:
        async with self._borrow_connection() as connection:
            cursor = await connection.execute(USAGE_QUERIES["totals"], [[*tenants]])
            return _read_totals(await cursor.fetchall())

    async def find_full(
        self, *, session_bytes: int, tenant_sessions: int, tenant_bytes: int
    ) -> FullStorage:
        sessions_query = _write_numbers("full_sessions", session_bytes, MAX_FULL)
        tenants_query = _write_numbers("full_tenants", tenant_sessions, tenant_bytes, MAX_FULL)
        async with self._borrow_connection() as connection:
            sessions = await (await connection.execute(sessions_query)).fetchall()
            tenants = await (await connection.execute(tenants_query)).fetchall()
        return FullStorage(
            session_bytes=dict(sessions),
            tenants=_read_totals(tenants),
        )

    async def _execute(self, query_name: str, parameters: Sequence[Any]) -> None:
        async with self._borrow_connection() as connection:
            await connection.execute(USAGE_QUERIES[query_name], parameters)


def _read_totals(rows: Sequence[tuple[Any, ...]]) -> dict[str, TenantTotals]:
    return {
        tenant: TenantTotals(sessions=count, stored_bytes=total_bytes)
        for tenant, count, total_bytes in rows
    }


def _write_numbers(query_name: str, *numbers: int) -> bytes:
    """Return a query with its numbers written out. For a parameter, the planner would assume that a
    third of all rows reach a limit, and read the whole table."""
    query = USAGE_QUERIES[query_name]
    for place, number in enumerate(numbers, 1):
        query = query.replace(b"$%d" % place, b"%d" % number)
    return query
