"""Look up keys that may be guesses: all that wait share a query."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from trimtab_serve.api_keys.api_key import ApiKey
from trimtab_serve.api_keys.store import ApiKeyStore

LOOKUP_INTERVAL_S = 0.02
"""Seconds between the starts of two queries. The first of them starts at once."""


class ApiKeyLookup:
    """Finds keys with one query at a time, and at most fifty a second.

    A limit that refuses a lookup would refuse valid keys, because nobody knows which are valid
    before the lookup. Here a flood of guesses costs the database no more queries, and a valid key
    among them waits for the next one.
    """

    def __init__(self, keys: ApiKeyStore) -> None:
        self._keys = keys
        self._waiting: set[bytes] = set()
        """The hashes that the next query looks up."""
        self._next_query: asyncio.Task[Mapping[bytes, ApiKey]] | None = None
        self._one_at_a_time = asyncio.Lock()
        self._earliest_start = 0.0

    async def find(self, sha256: bytes) -> ApiKey | None:
        """Return the key with this hash, even if it has expired."""
        if self._next_query is None:
            self._next_query = asyncio.create_task(self._look_up())
        self._waiting.add(sha256)
        # A caller that goes away does not end the query of the others.
        keys = await asyncio.shield(self._next_query)
        return keys.get(sha256)

    async def _look_up(self) -> Mapping[bytes, ApiKey]:
        async with self._one_at_a_time:
            await asyncio.sleep(self._earliest_start - time.monotonic())
            self._earliest_start = time.monotonic() + LOOKUP_INTERVAL_S
            hashes = [*self._waiting]
            self._waiting.clear()
            self._next_query = None
            return await self._keys.find_many(hashes)
