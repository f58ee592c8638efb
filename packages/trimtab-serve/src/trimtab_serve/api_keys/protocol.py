"""The interface of a key store. A change is in force at the next lookup, in every process."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from trimtab.errors import TrimtabError
from trimtab_serve.api_keys.api_key import ApiKey


class ApiKeyExists(TrimtabError, ValueError):
    """A key with this name exists."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there already is a key called {name}; to replace it, create a key with another name, "
            "let its users switch, then revoke this one"
        )


class ApiKeyStore(Protocol):
    """Stores keys by their hashes. Every method may raise `StoreUnavailable`."""

    async def add(self, key: ApiKey) -> None:
        """Add a key. Raises `ApiKeyExists` if its name is taken."""
        ...

    async def find(self, sha256: bytes) -> ApiKey | None:
        """Return the key with this hash, even if it has expired."""
        ...

    async def revoke(self, name: str) -> bool:
        """Remove a key. Return False if it does not exist."""
        ...

    async def list(self) -> list[ApiKey]:
        """Return all keys, oldest first."""
        ...

    async def list_expiring(self, now: float, *, limit: int) -> list[ApiKey]:
        """Return the keys that expire next."""
        ...

    async def is_empty(self) -> bool:
        """Whether there is no key."""
        ...

    async def save_last_use(self, last_used: Mapping[bytes, float]) -> None:
        """Store when keys were last used, by their hashes. An earlier time changes nothing."""
        ...
