"""The interface of the counters: the bytes of each session, and the totals of each tenant."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from trimtab_serve.queue.address import SessionAddress


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantTotals:
    """What a tenant stores."""

    sessions: int
    """Number of sessions, including forks."""
    stored_bytes: int
    """Bytes of all of them, with the messages that wait and the dead letters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FullStorage:
    """What has reached a limit."""

    session_bytes: Mapping[str, int] = field(default_factory=dict[str, int])
    """Bytes by the id of the session."""
    tenants: Mapping[str, TenantTotals] = field(default_factory=dict[str, TenantTotals])
    """Totals by tenant."""


class UsageCounters(Protocol):
    """Counts what is stored. Every method may raise `StoreUnavailable`."""

    async def measure(self, sessions: Collection[SessionAddress]) -> None:
        """Count these sessions again, with the messages that wait in them. One that does not exist
        is not counted."""
        ...

    async def recount(self, session: SessionAddress) -> None:
        """Count all of a session again, because a part of it was erased."""
        ...

    async def forget(self, session: SessionAddress) -> None:
        """Stop counting a session that is deleted."""
        ...

    async def reserve(self, session: SessionAddress, size: int, *, limit: int) -> int | None:
        """Count bytes of messages that will wait in a session, until it is measured again.

        If its tenant would exceed `limit`, count nothing and return what the tenant stores.
        """
        ...

    async def find_full(
        self, *, session_bytes: int, tenant_sessions: int, tenant_bytes: int
    ) -> FullStorage:
        """Return which sessions and tenants have reached one of these limits."""
        ...

    async def find_totals(self, tenants: Collection[str]) -> Mapping[str, TenantTotals]:
        """Return what these tenants store. A tenant that stores nothing may be missing."""
        ...
