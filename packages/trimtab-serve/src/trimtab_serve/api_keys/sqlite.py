"""API keys of one machine, in the database of the queue."""

from __future__ import annotations

import json
from collections.abc import Mapping
from sqlite3 import Connection, IntegrityError
from typing import Any

from trimtab_serve.api_keys.api_key import ApiKey, ApiKeyExists
from trimtab_serve.queue.sqlite.database import Database
from trimtab_serve.queue.sqlite.queries import SQLITE_QUERIES


class SqliteApiKeys:
    """The `ApiKeyStore` that shares the database of a queue. It does not close it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, key: ApiKey) -> None:
        row = [
            *(key.sha256, key.name, key.tenant),
            None if key.agents is None else json.dumps(key.agents),
            *(key.role, key.created, key.expires),
        ]

        def insert(connection: Connection) -> None:
            try:
                connection.execute(SQLITE_QUERIES["add_api_key"], row)
            except IntegrityError:
                raise ApiKeyExists(key.name) from None

        await self._database.write(insert)

    async def find(self, sha256: bytes) -> ApiKey | None:
        row = await self._database.read(
            lambda reader: reader.execute(SQLITE_QUERIES["find_api_key"], [sha256]).fetchone()
        )
        return None if row is None else _key_from_row(row)

    async def revoke(self, name: str) -> bool:
        def remove(connection: Connection) -> bool:
            return bool(connection.execute(SQLITE_QUERIES["revoke_api_key"], [name]).rowcount)

        return await self._database.write(remove)

    async def list(self) -> list[ApiKey]:
        rows = await self._database.scan(
            lambda reader: reader.execute(SQLITE_QUERIES["list_api_keys"]).fetchall()
        )
        return [_key_from_row(row) for row in rows]

    async def list_expiring(self, now: float, *, limit: int) -> list[ApiKey]:
        rows = await self._database.scan(
            lambda reader: reader.execute(
                SQLITE_QUERIES["list_expiring_api_keys"], [now, limit]
            ).fetchall()
        )
        return [_key_from_row(row) for row in rows]

    async def is_empty(self) -> bool:
        row = await self._database.read(
            lambda reader: reader.execute(SQLITE_QUERIES["any_api_key"]).fetchone()
        )
        return row is None

    async def save_last_use(self, last_used: Mapping[bytes, float]) -> None:
        rows = [(at, sha256) for sha256, at in last_used.items()]

        def save(connection: Connection) -> None:
            connection.executemany(SQLITE_QUERIES["save_api_key_last_use"], rows)

        await self._database.write(save)


def _key_from_row(row: tuple[Any, ...]) -> ApiKey:
    sha256, name, tenant, agents, role, created_at, expires, last_used = row
    return ApiKey(
        sha256=sha256,
        name=name,
        tenant=tenant,
        agents=None if agents is None else tuple(json.loads(agents)),
        role=role,
        created=created_at,
        expires=expires,
        last_used=last_used,
    )
