"""The costs of model calls in PostgreSQL, shared by many processes.

A reservation is one call of a procedure of the database. It locks the rows of its own totals, and
none of them while the disk is waited for.
"""

from __future__ import annotations

from psycopg.types.numeric import Float8, Int8

from trimtab.stores.postgres.connection_pool import ConnectionPool
from trimtab.stores.postgres.escaping import compute_session_uuid, escape_for_text_column
from trimtab.stores.postgres.queries import QUERIES
from trimtab.stores.spending import CallReservation, CostCeilings, refuse_above_ceiling


class PostgresSpendingLedger:
    """The `SpendingLedger` in a database."""

    def __init__(self, connections: ConnectionPool) -> None:
        self._connections = connections
        self._last_day = ""

    async def reserve(self, call: CallReservation, ceilings: CostCeilings) -> int:
        if call.day != self._last_day:
            for name in ("forget_days", "forget_tenants", "forget_reservations"):
                async with self._connections.borrow() as connection:
                    await connection.execute(QUERIES[name])
            self._last_day = call.day
        amounts = (ceilings.session, ceilings.tenant_per_day, ceilings.day)
        rows = await self._connections.fetch(
            QUERIES["reserve_spending"],
            [
                call.day,
                escape_for_text_column(call.agent),
                escape_for_text_column(call.tenant),
                compute_session_uuid(call.session),
                Int8(call.micros),
                Int8(call.session_log_micros),
                Float8(call.now),
                Float8(call.now + call.expires_after_s),
                *(None if amount is None else Int8(amount) for amount in amounts),
            ],
        )
        reservation, refused_by, total = rows[0]
        if refused_by is not None:
            ceiling = getattr(ceilings, refused_by)
            refuse_above_ceiling(refused_by, ceiling, total, call.micros)
        return reservation

    async def settle(self, reservation: int, micros: int) -> None:
        async with self._connections.borrow() as connection:
            await connection.execute(QUERIES["settle_spending"], [Int8(reservation), Int8(micros)])

    async def find_tenant_total(self, tenant: str, day: str) -> int:
        values = [day, escape_for_text_column(tenant)]
        rows = await self._connections.fetch(QUERIES["tenant_spending"], values)
        return rows[0][0] if rows else 0

    async def reset_session(self, session: str, session_log_micros: int) -> None:
        values = [compute_session_uuid(session), Int8(session_log_micros)]
        async with self._connections.borrow() as connection:
            await connection.execute(QUERIES["reset_spending"], values)
