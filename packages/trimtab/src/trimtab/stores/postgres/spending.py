"""The costs of model calls in PostgreSQL, shared by many processes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from psycopg import AsyncConnection

from trimtab.stores.postgres.connection_pool import ConnectionPool
from trimtab.stores.postgres.escaping import compute_session_uuid, escape_for_text_column
from trimtab.stores.spending import (
    SPENDING_QUERIES,
    CallReservation,
    CostCeilings,
    list_ceiling_queries,
    list_days_to_forget,
    refuse_above_ceiling,
)

SPENDING_LOCK_ID = 0x7370656E64696E67
"""`spending` as a number: the lock that reservations wait for."""


class PostgresSpendingLedger:
    """The `SpendingLedger` in a database."""

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections
        self._last_day = ""

    async def reserve(self, call: CallReservation, ceilings: CostCeilings) -> int:
        key = compute_session_uuid(call.session)
        agent, tenant = escape_for_text_column(call.agent), escape_for_text_column(call.tenant)
        async with self._connections.borrow() as connection, connection.transaction():
            # A statement of its own: what follows must see all that was committed before it.
            await connection.execute(SPENDING_QUERIES["lock"], [SPENDING_LOCK_ID])
            if call.day != self._last_day:
                totals, reservations = list_days_to_forget(call.day)
                await connection.execute(SPENDING_QUERIES["forget_days"], [totals])
                await connection.execute(SPENDING_QUERIES["forget_reservations"], [reservations])
                self._last_day = call.day
            if ceilings.session is not None:
                log = [key, call.session_log_micros]
                await connection.execute(SPENDING_QUERIES["raise_session_to_log"], log)
            for name, most, query, given in list_ceiling_queries(call, ceilings, key):
                texts = [escape_for_text_column(v) if isinstance(v, str) else v for v in given]
                counted = await _fetch_number(connection, query, texts)
                refuse_above_ceiling(name, most, counted, call.micros)
            until = call.now + call.expires_after_s
            row = [agent, call.day, tenant, key, call.micros, until]
            return await _fetch_number(connection, "reserve", row)

    async def settle(self, reservation: int, micros: int) -> None:
        async with self._connections.borrow() as connection, connection.transaction():
            cursor = await connection.execute(SPENDING_QUERIES["release"], [reservation])
            row = await cursor.fetchone()
            if row is not None:
                agent, day, tenant, key = row
                await connection.execute(
                    SPENDING_QUERIES["add_to_day"], [agent, day, tenant, micros]
                )
                await connection.execute(SPENDING_QUERIES["add_to_session"], [key, micros])


async def _fetch_number(connection: AsyncConnection, query: str, given: Sequence[Any]) -> int:
    rows = await (await connection.execute(SPENDING_QUERIES[query], given)).fetchall()
    return rows[0][0]
