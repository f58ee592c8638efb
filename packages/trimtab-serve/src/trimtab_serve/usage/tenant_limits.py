"""Limits of what a tenant may store. They are checked in memory, and counted in the background.

The tenant `default` is the operator's own: chats, callers on this machine and the schedules of
agent.yaml belong to it. It has no limits.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Literal
from weakref import WeakValueDictionary

from trimtab.errors import StoreError, TrimtabError
from trimtab_serve.agent.config.spec import TenantLimitsSpec
from trimtab_serve.queue.address import DEFAULT_TENANT, SessionAddress, parse_session_address
from trimtab_serve.usage.protocol import FullStorage, UsageCounters

COUNT_INTERVAL_S = 5.0
"""Seconds between two counts."""
MAX_COUNTED_AT_ONCE = 500
"""Sessions that one statement counts."""

LimitName = Literal["sessions", "session_bytes", "bytes"]

log = logging.getLogger("trimtab.server")


class TenantLimitReached(TrimtabError, RuntimeError):
    """A tenant or a session stores as much as it may."""

    def __init__(self, name: LimitName, owner: str, used: int, limit: int, advice: str) -> None:
        self.name = name
        """The setting under `serve.tenant_limits`."""
        self.used = used
        """How much is stored."""
        self.limit = limit
        """How much may be stored."""
        unit = "sessions" if name == "sessions" else "bytes"
        super().__init__(
            f"{owner} stores {used:,} {unit}, and the limit is {limit:,} "
            f"(`serve.tenant_limits.{name}`): {advice}"
        )


class TenantLimits:
    """What has reached a limit, as of the last count."""

    def __init__(self, counters: UsageCounters, limits: TenantLimitsSpec) -> None:
        self._counters = counters
        self._limits = limits
        self._full = FullStorage()
        self._changed: set[SessionAddress] = set()
        self._forks = WeakValueDictionary[str, asyncio.Lock]()
        # A count that began before a session was deleted must not save its name after that.
        self._counting = asyncio.Lock()

    def note_change(self, session: str) -> None:
        """Count a session soon, because it has grown."""
        address = parse_session_address(session)
        if address is not None and address.tenant != DEFAULT_TENANT:
            self._changed.add(address)

    def check_message(self, session: str) -> None:
        """Raise `TenantLimitReached` if a session may not grow."""
        limit = self._limits.session_bytes
        session_bytes = self._full.session_bytes.get(session)
        if session_bytes is not None:
            advice = "continue in a new session, or delete this one"
            raise TenantLimitReached("session_bytes", "this session", session_bytes, limit, advice)
        self._check_tenant_bytes(session.partition("/")[0])

    def check_new_session(self, tenant: str) -> None:
        """Raise `TenantLimitReached` if a tenant may have no more sessions."""
        totals = self._full.tenants.get(tenant)
        limit = self._limits.sessions
        if totals is not None and totals.sessions >= limit:
            raise _tenant_limit_reached("sessions", tenant, totals.sessions, limit)
        self._check_tenant_bytes(tenant)

    @asynccontextmanager
    async def fork(self, tenant: str, fork: str) -> AsyncGenerator[None]:
        """Make a fork in the block, and count it. Forks of one tenant wait for each other, because
        each may copy as much as a session may hold. Raises `TenantLimitReached`."""
        if tenant == DEFAULT_TENANT:
            yield
            return
        lock = self._forks.setdefault(tenant, asyncio.Lock())
        async with lock:
            self.check_new_session(tenant)
            yield
            self.note_change(fork)
            await self.count()

    async def forget(self, session: str) -> None:
        """Stop counting a session that is deleted."""
        address = parse_session_address(session)
        if address is not None and address.tenant != DEFAULT_TENANT:
            async with self._counting:
                self._changed.discard(address)
                await self._counters.forget(address)

    async def recount(self, session: str) -> None:
        """Count a session again, because a part of it was erased."""
        address = parse_session_address(session)
        if address is not None and address.tenant != DEFAULT_TENANT:
            async with self._counting:
                await self._counters.recount(address)

    async def count(self) -> None:
        """Count the sessions that have changed, and read what has reached a limit."""
        async with self._counting:
            sessions = [*self._changed]
            self._changed = set()
            for start in range(0, len(sessions), MAX_COUNTED_AT_ONCE):
                try:
                    await self._counters.measure(sessions[start : start + MAX_COUNTED_AT_ONCE])
                except BaseException:
                    self._changed.update(sessions[start:])
                    raise
        limits = self._limits
        self._full = await self._counters.find_full(
            session_bytes=limits.session_bytes,
            tenant_sessions=limits.sessions,
            tenant_bytes=limits.bytes,
        )

    async def run(self) -> None:
        """Count every few seconds, until cancelled."""
        while True:
            try:
                await self.count()
            except StoreError as error:
                log.warning("counting what tenants store failed; retrying: %s", error)
            await asyncio.sleep(COUNT_INTERVAL_S)

    def _check_tenant_bytes(self, tenant: str) -> None:
        totals = self._full.tenants.get(tenant)
        limit = self._limits.bytes
        if totals is not None and totals.stored_bytes >= limit:
            raise _tenant_limit_reached("bytes", tenant, totals.stored_bytes, limit)


def _tenant_limit_reached(
    name: LimitName, tenant: str, used: int, limit: int
) -> TenantLimitReached:
    advice = "delete sessions that are no longer needed, or ask the operator"
    return TenantLimitReached(name, f"tenant {tenant}", used, limit, advice)
