"""All rows of one session: copied to another database, compared and deleted."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from importlib.resources import files

from psycopg import AsyncConnection, sql

from trimtab.stores.named_queries import parse_named_queries
from trimtab.stores.postgres.escaping import compute_session_uuid, escape_for_text_column

SHARD_QUERIES = parse_named_queries(
    files("trimtab_serve.shards").joinpath("queries.sql").read_text(encoding="utf-8")
)
TABLES_THAT_STAY = {
    "api_keys": "keys of a tenant, which are copied with the whole tenant",
    "erasure_jobs": "what is being erased in this database",
    "erasure_secret": "of the whole database",
    "erasures": "what was erased, and where",
    "interruptions": "processes of this database that vanished",
    "migrations": "of the whole database",
    "moves": "says where sessions are",
    "spending_per_day": "what calls from this database have cost",
    "spending_per_tenant": "what calls from this database have cost",
    "spending_reservations": "calls that are made from this database",
    "tenant_usage": "what tenants store in this database",
}
"""Tables without rows that move, and what they have instead."""

LARGE_TABLES = ("blobs", "events", "llm_calls", "snapshots", "words")
"""Tables of which nothing is copied again if the target has the same rows."""
APPENDED_TABLES = ("events", "words")
"""Tables to which rows are only added, as a rule."""

RowSums = dict[str, tuple[int, int]]
"""The number of rows and the sum of their hashes, by table."""
NO_ROWS = (0, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTable:
    """The rows of one session in one table."""

    name: str
    """The name of the table."""
    condition: sql.Composable
    """Selects the rows."""
    columns: tuple[str, ...]
    """The columns that are copied."""
    order: str | None
    """The column with the order of the rows, if they have one."""

    def select(self, after: int = 0) -> sql.Composed:
        """Return the query for all rows in their order, or for those after a position of the
        log."""
        order = sql.SQL(" ORDER BY {}").format(sql.Identifier(self.order)) if self.order else None
        newer = sql.SQL(" AND seq > {}").format(sql.Literal(after)) if after else None
        empty = sql.SQL("")
        return sql.SQL("SELECT {} FROM {} WHERE {}{}{}").format(
            self._column_list(), self._table(), self.condition, newer or empty, order or empty
        )

    def delete(self) -> sql.Composed:
        """Return the statement that deletes all rows."""
        return sql.SQL("DELETE FROM {} WHERE {}").format(self._table(), self.condition)

    def insert(self) -> sql.Composed:
        """Return the statement that reads rows from the client."""
        return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT binary)").format(
            self._table(), self._column_list()
        )

    def sum(self) -> sql.Composed:
        """Return the query for the number of rows and the sum of their hashes."""
        number = sql.SQL("row_number() OVER ()") if self.order else sql.SQL("0")
        return sql.SQL(
            "SELECT {}, count(*), coalesce(sum(hashtextextended(hashed.*::text, 0)::numeric), 0) "
            "FROM (SELECT {} AS place, copied.* FROM ({}) AS copied) AS hashed"
        ).format(sql.Literal(self.name), number, self.select())

    def last_position(self) -> sql.Composed:
        """Return the query for the last position of the log that the table has."""
        return sql.SQL("SELECT coalesce(max(seq), 0) FROM {} WHERE {}").format(
            self._table(), self.condition
        )

    def _table(self) -> sql.Identifier:
        return sql.Identifier("trimtab", self.name)

    def _column_list(self) -> sql.Composed:
        return sql.SQL(", ").join(map(sql.Identifier, self.columns))


async def list_session_tables(connection: AsyncConnection, session: str) -> list[SessionTable]:
    """Return the rows of a session by table. A table comes after those that it refers to."""
    key = compute_session_uuid(session)
    name = escape_for_text_column(session)
    by_name = sql.SQL("session = {}").format(sql.Literal(name))
    by_id = sql.SQL("session = {}").format(sql.Literal(key))
    schedules = sql.SQL("SELECT id FROM {} WHERE {}").format(
        sql.Identifier("trimtab", "schedules"), by_name
    )
    conditions: dict[str, sql.Composable] = {
        "sessions": sql.SQL("id = {}").format(sql.Literal(key)),
        "schedule_runs": sql.SQL("schedule IN ({})").format(schedules),
    }
    cursor = await connection.execute(SHARD_QUERIES["session_tables"])
    tables = [
        SessionTable(
            name=table,
            condition=conditions.get(table, by_id if has_id else by_name),
            columns=tuple(columns),
            order=order,
        )
        for table, has_id, columns, order in await cursor.fetchall()
        if table not in TABLES_THAT_STAY
    ]
    first = {"sessions": 0, "schedule_runs": 2}
    return sorted(tables, key=lambda table: first.get(table.name, 1))


async def copy_rows(
    source: AsyncConnection,
    target: AsyncConnection,
    tables: list[SessionTable],
    *,
    whole: bool = False,
) -> None:
    """Replace the rows of the target by those of the source.

    Without `whole`, large tables are left as they are if they are equal, and logs get what is new.
    """
    source_sums, present = await asyncio.gather(sum_rows(source, tables), sum_rows(target, tables))
    for table in tables:
        after = 0
        is_equal = source_sums[table.name] == present[table.name]
        if is_equal and source_sums[table.name] == NO_ROWS:
            continue
        if table.name in LARGE_TABLES and not whole:
            if is_equal:
                continue
            if table.name in APPENDED_TABLES:
                row = await (await target.execute(table.last_position())).fetchone()
                after = 0 if row is None else row[0]
        if not after:
            await target.execute(table.delete())
        query = sql.SQL("COPY ({}) TO STDOUT (FORMAT binary)").format(table.select(after))
        async with (
            source.cursor() as reader,
            target.cursor() as writer,
            reader.copy(query) as rows,
            writer.copy(table.insert()) as copies,
        ):
            async for block in rows:
                await copies.write(block)


async def sum_rows(connection: AsyncConnection, tables: list[SessionTable]) -> RowSums:
    """Return what tells two copies of the same rows from different ones."""
    query = sql.SQL(" UNION ALL ").join(table.sum() for table in tables)
    cursor = await connection.execute(query)
    return {name: (count, total) for name, count, total in await cursor.fetchall()}


async def delete_rows(connection: AsyncConnection, tables: list[SessionTable]) -> None:
    """Delete rows, those that refer to others first."""
    for table in reversed(tables):
        await connection.execute(table.delete())
