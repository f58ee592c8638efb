"""Where a text is found in a store: byte by byte, whatever is compressed taken apart."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

from tests.stores.places import Files, Place, Postgres
from trimtab.stores.base import Store


async def places_of(needle: str, place: Place, store: Store) -> list[str]:
    """Files, tables or logs that hold a text, in any case."""
    if isinstance(place, Files):
        return _in_files(place.root, needle.lower().encode())
    if isinstance(place, Postgres):
        return await _in_tables(place.conninfo, needle.lower().encode())
    logs: dict[str, Any] = getattr(store, "_logs")  # noqa: B009 - of the store in memory alone
    return [name for name, log in logs.items() if needle.lower() in repr(log).lower()]


def _in_files(root: Path, needle: bytes) -> list[str]:
    paths: list[str] = []
    for path in sorted(root.rglob("*")):
        content = path.read_bytes() if path.is_file() else b""
        if needle in (path.name.encode() + _apart(content)).lower():
            paths.append(str(path.relative_to(root)))
    return paths


async def _in_tables(conninfo: str, needle: bytes) -> list[str]:
    import psycopg
    from psycopg import sql

    tables = (
        "SELECT table_schema, table_name FROM information_schema.tables "
        "WHERE table_schema NOT IN ('pg_catalog', 'information_schema')"
    )
    tables_found: list[str] = []
    async with await psycopg.AsyncConnection.connect(conninfo) as connection:
        table_names = await (await connection.execute(tables)).fetchall()
        assert len(table_names) > 3
        for schema, table in sorted(table_names):
            query = sql.SQL("SELECT t.*, t::text FROM {} AS t").format(
                sql.Identifier(schema, table)
            )
            for row in await (await connection.execute(query)).fetchall():
                raw_values = [_apart(value) for value in row if isinstance(value, bytes)]
                raw_values += [value.encode() for value in row if isinstance(value, str)]
                if needle in b"\n".join(raw_values).lower():
                    tables_found.append(f"{schema}.{table}")
    return sorted(set(tables_found))


def _apart(held: bytes) -> bytes:
    """What is there as it is, and what it is once unpacked."""
    try:
        return held + zlib.decompress(held)
    except zlib.error:
        return held
