"""API keys in PostgreSQL, for all processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from psycopg.types.numeric import Float8, Int8

from trimtab.stores.named_queries import parse_named_queries
from trimtab_serve.api_keys.api_key import ApiKey, ApiKeyExists
from trimtab_serve.queue.postgres.transactions import BorrowConnection

API_KEY_QUERIES = parse_named_queries(
    files("trimtab_serve.api_keys").joinpath("queries.sql").read_text(encoding="utf-8")
)


class PostgresApiKeys:
    """The `ApiKeyStore` on borrowed connections."""

    def __init__(self, borrow_connection: BorrowConnection) -> None:
        self._borrow_connection = borrow_connection

    async def add(self, key: ApiKey) -> None:
        agents = None if key.agents is None else [*key.agents]
        expires = None if key.expires is None else Float8(key.expires)
        row = [
            *(key.sha256, key.name, key.tenant, agents),
            *(key.role, Float8(key.created), expires),
        ]
        async with self._borrow_connection() as connection:
            if not (await connection.execute(API_KEY_QUERIES["add"], row)).rowcount:
                raise ApiKeyExists(key.name)

    async def find(self, sha256: bytes) -> ApiKey | None:
        rows = await self._fetch("find", [sha256])
        return _key_from_row(rows[0]) if rows else None

    async def revoke(self, name: str) -> bool:
        async with self._borrow_connection() as connection:
            return bool((await connection.execute(API_KEY_QUERIES["revoke"], [name])).rowcount)

    async def list(self) -> list[ApiKey]:
        return [_key_from_row(row) for row in await self._fetch("list", [])]

    async def list_expiring(self, now: float, *, limit: int) -> list[ApiKey]:
        rows = await self._fetch("expiring", [Float8(now), Int8(limit)])
        return [_key_from_row(row) for row in rows]

    async def is_empty(self) -> bool:
        return (await self._fetch("is_empty", []))[0][0]

    async def save_last_use(self, last_used: Mapping[bytes, float]) -> None:
        async with self._borrow_connection() as connection:
            await connection.execute(
                API_KEY_QUERIES["save_last_use"],
                [[*last_used], [*map(Float8, last_used.values())]],
            )

    async def _fetch(self, query_name: str, parameters: Sequence[Any]) -> list[tuple[Any, ...]]:
        async with self._borrow_connection() as connection:
            return await (
                await connection.execute(API_KEY_QUERIES[query_name], parameters)
            ).fetchall()


def _key_from_row(row: tuple[Any, ...]) -> ApiKey:
    sha256, name, tenant, agents, role, created_at, expires, last_used = row
    return ApiKey(
        sha256=bytes(sha256),
        name=name,
        tenant=tenant,
        agents=None if agents is None else tuple(agents),
        role=role,
        created=created_at,
        expires=expires,
        last_used=last_used,
    )
