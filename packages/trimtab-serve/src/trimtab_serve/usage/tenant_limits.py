"""Limits of what a tenant may store and send. They are checked in memory, and counted in the
background.

Messages that wait count as well. Close to the limit they are counted before they are stored,
because a tenant can send many more in the seconds until the next count.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from math import ceil
from typing import Literal
from weakref import WeakValueDictionary

from trimtab.errors import StoreError, TrimtabError
from trimtab_serve.agent.config.spec import TenantLimitsSpec
from trimtab_serve.queue.address import SessionAddress, parse_session_address
from trimtab_serve.queue.bounded_dict import BoundedDict
from trimtab_serve.queue.rate_limit import CallerRateLimiter
from trimtab_serve.usage.protocol import FullStorage, TenantTotals, UsageCounters

COUNT_INTERVAL_S = 5.0
"""Seconds between two counts."""
MAX_COUNTED_AT_ONCE = 500
"""Sessions that one statement counts."""

ALLOWANCE_DIVISOR = 16
"""Part of what is free that a process lets in between two counts without a reservation, which is a
write. So far from the limit a message costs no query, and close to it each is counted at once."""
MAX_TRACKED_TENANTS = 10_000
"""Tenants whose allowances are remembered."""

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


class MessageRateExceeded(TrimtabError, RuntimeError):
    """A tenant sends messages too fast."""

    def __init__(self, tenant: str, messages_per_minute: int, retry_after_s: int) -> None:
        self.messages_per_minute = messages_per_minute
        """The limit."""
        self.retry_after_s = retry_after_s
        """Seconds until the next message is accepted."""
        super().__init__(
            f"tenant {tenant} sends too fast: the limit is {messages_per_minute:,} messages a "
            f"minute (`serve.tenant_limits.messages_per_minute`); try again in {retry_after_s} s"
        )


class TenantLimits:
    """What has reached a limit, as of the last count."""

    def __init__(
        self,
        counters: UsageCounters,
        limits: TenantLimitsSpec,
        by_tenant: Mapping[str, TenantLimitsSpec] | None = None,
    ) -> None:
        self._counters = counters
        self._limits = limits
        self._by_tenant = {
            tenant: limits.replace_with(own) for tenant, own in (by_tenant or {}).items()
        }
        rates = {every.messages_per_minute for every in (limits, *self._by_tenant.values())}
        self._rate_limiters = {rate: CallerRateLimiter(rate) for rate in rates if rate is not None}
        self._allowances = BoundedDict[str, tuple[int, int]](MAX_TRACKED_TENANTS)
        """Bytes that may wait without a reservation until the next count, and how many do."""
        self._posting: Counter[SessionAddress] = Counter()
        self._full = FullStorage()
        self._changed: set[SessionAddress] = set()
        self._forks = WeakValueDictionary[str, asyncio.Lock]()
        # A count that began before a session was deleted must not save its name after that.
        self._counting = asyncio.Lock()

    def note_change(self, session: str) -> None:
        """Count a session soon, because it has grown."""
        address = parse_session_address(session)
        if address is not None:
            self._changed.add(address)

    def limits_of(self, tenant: str) -> TenantLimitsSpec:
        """Return the limits of a tenant."""
        return self._by_tenant.get(tenant, self._limits)

    def schedule_limit(self, tenant: str) -> int:
        """Return the schedules that a tenant may have."""
        return self.limits_of(tenant).schedules

    async def find_totals(self, tenant: str) -> TenantTotals:
        """Return what a tenant stores, as of the last count."""
        totals = await self._counters.find_totals([tenant])
        return totals.get(tenant, TenantTotals(sessions=0, stored_bytes=0))

    def check_message(self, session: str) -> None:
        """Raise `TenantLimitReached` if a session may not grow."""
        tenant = session.partition("/")[0]
        limit = self.limits_of(tenant).session_bytes
        session_bytes = self._full.session_bytes.get(session, 0)
        if session_bytes >= limit:
            advice = "continue in a new session, or delete this one"
            raise TenantLimitReached("session_bytes", "this session", session_bytes, limit, advice)
        self._check_tenant_bytes(tenant)

    @asynccontextmanager
    async def admit(self, session: str, size: int) -> AsyncGenerator[None]:
        """Store a message of this many bytes in the block, and count it. Raises
        `TenantLimitReached` and `MessageRateExceeded`."""
        self.check_message(session)
        address = parse_session_address(session)
        if address is None:
            yield
            return
        self._check_message_rate(address.tenant)
        # A count that begins before the message is stored would undo its reservation.
        self._posting[address] += 1
        try:
            await self._count_waiting(address, size)
            yield
        finally:
            self._posting[address] -= 1
            if not self._posting[address]:
                del self._posting[address]
            self.note_change(session)

    def check_new_session(self, tenant: str) -> None:
        """Raise `TenantLimitReached` if a tenant may have no more sessions."""
        totals = self._full.tenants.get(tenant)
        limit = self.limits_of(tenant).sessions
        if totals is not None and totals.sessions >= limit:
            raise _tenant_limit_reached("sessions", tenant, totals.sessions, limit)
        self._check_tenant_bytes(tenant)

    @asynccontextmanager
    async def fork(self, tenant: str, fork: str) -> AsyncGenerator[None]:
        """Make a fork in the block, and count it. Forks of one tenant wait for each other, because
        each may copy as much as a session may hold. Raises `TenantLimitReached`."""
        lock = self._forks.setdefault(tenant, asyncio.Lock())
        async with lock:
            self.check_new_session(tenant)
            yield
            self.note_change(fork)
            await self.count()

    async def forget(self, session: str) -> None:
        """Stop counting a session that is deleted."""
        address = parse_session_address(session)
        if address is not None:
            async with self._counting:
                self._changed.discard(address)
                await self._counters.forget(address)

    async def recount(self, session: str) -> None:
        """Count a session again, because a part of it was erased."""
        address = parse_session_address(session)
        if address is not None:
            async with self._counting:
                await self._counters.recount(address)

    async def count(self) -> None:
        """Count the sessions that have changed, and read what has reached a limit."""
        async with self._counting:
            sessions = [session for session in self._changed if not self._posting[session]]
            self._changed.difference_update(sessions)
            for start in range(0, len(sessions), MAX_COUNTED_AT_ONCE):
                try:
                    await self._counters.measure(sessions[start : start + MAX_COUNTED_AT_ONCE])
                except BaseException:
                    self._changed.update(sessions[start:])
                    raise
            self._allowances.clear()
        limits = self._limits
        every_limit = (limits, *self._by_tenant.values())
        full = await self._counters.find_full(
            session_bytes=min(one.session_bytes for one in every_limit),
            tenant_sessions=limits.sessions,
            tenant_bytes=limits.bytes,
        )
        own_totals: Mapping[str, TenantTotals] = {}
        if self._by_tenant:
            own_totals = await self._counters.find_totals(self._by_tenant)
        self._full = replace(full, tenants={**full.tenants, **own_totals})

    async def run(self) -> None:
        """Count every few seconds, until cancelled."""
        while True:
            try:
                await self.count()
            except StoreError as error:
                log.warning("counting what tenants store failed; retrying: %s", error)
            await asyncio.sleep(COUNT_INTERVAL_S)

    async def _count_waiting(self, session: SessionAddress, size: int) -> None:
        """Count a message before it is stored. Raises `TenantLimitReached`."""
        tenant = session.tenant
        limit = self.limits_of(tenant).bytes
        if tenant not in self._allowances:
            free_bytes = limit - (await self.find_totals(tenant)).stored_bytes
            self._allowances[tenant] = max(0, free_bytes) // ALLOWANCE_DIVISOR, 0
        allowance, uncounted_bytes = self._allowances[tenant]
        uncounted_bytes += size
        if uncounted_bytes <= allowance:
            self._allowances[tenant] = allowance, uncounted_bytes
            return
        # Zero, so that another message meanwhile does not count the same bytes again.
        self._allowances[tenant] = 0, 0
        used_bytes = await self._counters.reserve(session, uncounted_bytes, limit=limit)
        if used_bytes is not None:
            self._allowances[tenant] = 0, uncounted_bytes - size
            raise _tenant_limit_reached("bytes", tenant, used_bytes, limit)

    def _check_message_rate(self, tenant: str) -> None:
        rate = self.limits_of(tenant).messages_per_minute
        if rate is None:
            return
        if wait_s := self._rate_limiters[rate].take_or_retry_after_s(tenant):
            raise MessageRateExceeded(tenant, rate, ceil(wait_s))

    def _check_tenant_bytes(self, tenant: str) -> None:
        totals = self._full.tenants.get(tenant)
        limit = self.limits_of(tenant).bytes
        if totals is not None and totals.stored_bytes >= limit:
            raise _tenant_limit_reached("bytes", tenant, totals.stored_bytes, limit)


def _tenant_limit_reached(
    name: LimitName, tenant: str, used: int, limit: int
) -> TenantLimitReached:
    advice = "delete sessions that are no longer needed, or ask the operator"
    return TenantLimitReached(name, f"tenant {tenant}", used, limit, advice)
