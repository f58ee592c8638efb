"""The stores of all conversations of this process: each location is opened once.

Two agents with the same folder then continue each other's conversations, and neither locks the
other out.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from trimtab.stores.base import Store
from trimtab.stores.factory import is_database_address, open_store
from trimtab.stores.files.disk import resolve_folder


@dataclass(slots=True)
class _SharedStore:
    """A store and those who use it."""

    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held while it is opened or closed."""
    store: Store | None = None
    """The store, while it is open."""
    users: int = 0
    """How often it was opened and not closed."""


class SharedStores:
    """The open stores by their locations. They belong to one event loop, and to no fork of it."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._by_location: dict[str, _SharedStore] = {}

    async def open(self, location: str) -> Store:
        """Return the store at a location. `close` it as often as it was opened."""
        place = _resolve(location)
        shared = self._get(place)
        async with shared.lock:
            if shared.store is None:
                shared.store = await open_store(place)
            shared.users += 1
            return shared.store

    async def close(self, location: str) -> None:
        """Close the store at a location, unless somebody else still uses it."""
        shared = self._get(_resolve(location))
        async with shared.lock:
            shared.users -= 1
            if shared.users == 0 and shared.store is not None:
                store, shared.store = shared.store, None
                await store.close()

    def _get(self, place: str) -> _SharedStore:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # in a forked process there is a new one
            self._loop, self._by_location = loop, {}
        return self._by_location.setdefault(place, _SharedStore())


def _resolve(location: str) -> str:
    """Return the same text for the same place. A program may change its working directory."""
    return location if is_database_address(location) else str(resolve_folder(location).resolve())
