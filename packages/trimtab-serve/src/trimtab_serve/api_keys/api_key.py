"""An API key: its name, tenant, agents, role and expiry. Only its hash is stored."""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from trimtab.errors import TrimtabError
from trimtab_serve.queue.address import DEFAULT_TENANT, is_valid_name


class ApiKeyExists(TrimtabError, ValueError):
    """A key with this name exists."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"there already is a key called {name}; to replace it, create a key with another name, "
            "let its users switch, then revoke this one"
        )


KEY_PREFIX = "tt_"
"""Lets scanners for leaked secrets, and people, recognise a key."""

KeyRole = Literal["metrics", "read", "talk", "admin"]
"""What a key may do.

`read`, `talk` and `admin` each include the one before. `metrics` reads `/metrics`, which counts all
tenants. The other roles do not include it, because they belong to one tenant.
"""
INCLUDED_ROLES: Mapping[KeyRole, frozenset[KeyRole]] = MappingProxyType(
    {
        "metrics": frozenset[KeyRole]({"metrics"}),
        "read": frozenset[KeyRole]({"read"}),
        "talk": frozenset[KeyRole]({"read", "talk"}),
        "admin": frozenset[KeyRole]({"read", "talk", "admin"}),
    }
)
"""For each role of a key, the roles whose operations it may use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """The stored data of a key."""

    name: str
    """The name that its owner gave it. Logs contain it."""
    sha256: bytes
    """Hash of the whole key. A key has 256 random bits, so no salt is needed."""
    role: KeyRole
    """What it may do."""
    tenant: str = DEFAULT_TENANT
    """The tenant whose sessions it can use. Without meaning for a key that reads metrics."""
    agents: tuple[str, ...] | None = None
    """Agents that it may use. None for all."""
    created: float = 0.0
    """When it was created, in seconds since the epoch."""
    expires: float | None = None
    """When it expires, in seconds since the epoch. None for never."""
    last_used: float | None = None
    """When it was last used, to the minute, in seconds since the epoch. None for never."""

    def has_expired(self, now: float) -> bool:
        """Whether it has expired, at a time in seconds since the epoch."""
        # Written so that a time that is not a number has expired.
        return self.expires is not None and not now < self.expires


def hash_api_key(text: str) -> bytes:
    """Return the stored hash of a key."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()


def create_api_key(
    key_name: str,
    *,
    tenant: str = DEFAULT_TENANT,
    agents: tuple[str, ...] | None = None,
    role: KeyRole,
    expires: float | None = None,
) -> tuple[str, ApiKey]:
    """Create a key. Return its text, to be shown once, and its stored data."""
    if role == "metrics" and (agents or tenant != DEFAULT_TENANT):
        raise ValueError(
            "a key for metrics cannot use sessions, so it has neither a tenant nor agents: omit "
            "these, or create two keys"
        )
    for what, word in (
        ("key", key_name),
        ("tenant", tenant),
        *(("agent", a) for a in agents or ()),
    ):
        if not is_valid_name(word):
            raise ValueError(f"invalid {what} name {word!r}: use letters, digits and . _ - : @ + =")
    text = f"{KEY_PREFIX}{secrets.token_urlsafe(32)}"
    key = ApiKey(
        name=key_name,
        sha256=hash_api_key(text),
        tenant=tenant,
        agents=agents,
        role=role,
        created=time.time(),
        expires=expires,
    )
    return text, key
