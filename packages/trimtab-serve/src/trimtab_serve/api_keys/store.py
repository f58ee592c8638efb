"""API keys in the database of the queue, so that every process sees the same."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

from trimtab.stores.named_queries import split_named_queries
from trimtab_serve.api_keys.api_key import ApiKey, ApiKeyExists
from trimtab_serve.queue.transactions import Transaction, Transactions

_QUERIES = split_named_queries(
    files("trimtab_serve.api_keys").joinpath("queries.sql").read_text(encoding="utf-8")
)
ALL_KEYS = 1_000_000_000


class ApiKeyStore:
    """Stores keys by their hashes. A change is in force at the next lookup, in every process.

    Every method may raise `StoreUnavailable`.
    """

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions

    async def add(self, key: ApiKey) -> None:
        """Add a key. Raises `ApiKeyExists` if its name is taken."""
        agents = None if key.agents is None else [*key.agents]
        row = [key.sha256, key.name, key.tenant, agents, key.role, key.created, key.expires]
        if not await self._execute("add", *row):
            raise ApiKeyExists(key.name)

    async def find(self, sha256: bytes) -> ApiKey | None:
        """Return the key with this hash, even if it has expired."""
        return (await self.find_many([sha256])).get(sha256)

    async def find_many(self, hashes: Sequence[bytes]) -> dict[bytes, ApiKey]:
        """Return the keys with these hashes, by hash, with one query."""
        rows = await self._transactions.fetch(_QUERIES["find"], [*hashes])
        keys = [_key_from_row(row) for row in rows]
        return {key.sha256: key for key in keys}

    async def revoke(self, name: str) -> bool:
        """Remove a key. Return False if it does not exist."""
        return bool(await self._execute("revoke", name))

    async def list(self, *, tenant: str | None = None, limit: int = ALL_KEYS) -> list[ApiKey]:
        """Return the keys of a tenant, or of all, oldest first."""
        rows = await self._transactions.fetch(_QUERIES["list"], tenant, limit, many=True)
        return [_key_from_row(row) for row in rows]

    async def list_expiring(self, now: float, *, limit: int) -> list[ApiKey]:
        """Return the keys that expire next."""
        rows = await self._transactions.fetch(_QUERIES["expiring"], now, limit, many=True)
        return [_key_from_row(row) for row in rows]

    async def is_empty(self) -> bool:
        """Whether there is no key."""
        return not await self._transactions.fetch(_QUERIES["any"])

    async def save_last_use(self, last_used: Mapping[bytes, float]) -> None:
        """Store when keys were last used, by their hashes. An earlier time changes nothing."""

        async def save(transaction: Transaction) -> None:
            # In the order of the hashes, because another process may write the same keys.
            await transaction.execute_many(_QUERIES["save_last_use"], sorted(last_used.items()))

        await self._transactions.transact(save)

    async def _execute(self, query_name: str, *values: object) -> int:
        async def execute(transaction: Transaction) -> int:
            return await transaction.execute(_QUERIES[query_name], *values)

        return await self._transactions.transact(execute)


def _key_from_row(row: tuple[Any, ...]) -> ApiKey:
    sha256, name, tenant, agents, role, created_at, expires, last_used = row
    if isinstance(agents, str):  # SQLite has no lists
        agents = json.loads(agents)
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
