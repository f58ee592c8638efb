"""Delete sessions that are older than their retention period.

The age of a session is that of its last event. A session with waiting messages, a running turn or a
future schedule is not deleted. A session with dead letters is as old as these.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from trimtab.errors import StoreError, StoreNotWritable, StoreUnavailable
from trimtab_serve.agent.config.spec import age_in_seconds
from trimtab_serve.metrics.recording import count_retention_deletion
from trimtab_serve.queue.address import SessionAddress, parse_session_address
from trimtab_serve.service.erasure_records import BY_RETENTION, ErasureRecord
from trimtab_serve.service.service import AgentService

RETENTION_INTERVAL_S = 3_600.0
"""Seconds between two searches through all sessions."""
RETENTION_PAGE_SIZE = 100
"""Sessions that one query returns."""
RETENTION_PAUSE_S = 0.05
"""Seconds between two deletions, so that turns are not slowed down."""
FOREVER = "forever"
NO_OWNER_IS_NEWER = 2**62
"""An epoch higher than that of any turn, because no turn owns what is removed here."""

log = logging.getLogger("trimtab.server")

HoldLock = Callable[[], AbstractAsyncContextManager[bool]]
"""Yields whether this process may delete. The answer holds inside the block."""


@asynccontextmanager
async def hold_no_lock() -> AsyncGenerator[bool]:
    """Take no lock, for a process that is alone."""
    yield True


@dataclass(slots=True, kw_only=True)
class RetentionRunner:
    """Deletes old sessions. Only one of the processes that serve a store does it at a time."""

    service: AgentService
    """The agents with their retention periods, and the sessions."""
    tenant_ages: Mapping[str, str]
    """Retention period by tenant, which overrides that of the agents: `90d`, or `forever`."""
    hold_lock: HoldLock = hold_no_lock
    """Chooses one of several processes."""
    clock: Callable[[], float] = time.time
    """Seconds since the epoch."""
    interval_s: float = RETENTION_INTERVAL_S
    """Seconds between two searches."""

    async def run(self) -> None:
        """Search now and every `interval_s` seconds, until cancelled. Failed deletions are
        retried."""
        task = asyncio.current_task()
        # Python 3.11 may lose a cancellation inside wait_for, which connection pools use.
        while task is None or not task.cancelling():
            try:
                await self.delete_expired()
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look comes
                log.warning("deleting old sessions failed; retrying later: %r", error)
            await asyncio.sleep(self.interval_s)

    async def delete_expired(self) -> int:
        """Delete the sessions that are too old now. Return how many were deleted."""
        if not self._is_needed():
            return 0
        async with self.hold_lock() as is_mine:
            return await self._delete_expired() if is_mine else 0

    def _is_needed(self) -> bool:
        ages = [agent.spec.session.retain_for for agent in self.service.agents.values()]
        return any(ages) or any(age != FOREVER for age in self.tenant_ages.values())

    async def _delete_expired(self) -> int:
        start_time = self.clock()
        counts = Counter[tuple[str, str]]()
        try:
            await self._forget_dead_letters(counts)
            await self._delete_expired_sessions(counts)
        finally:
            await self._record(counts, start_time)
        return sum(counts.values())

    async def _delete_expired_sessions(self, gone: Counter[tuple[str, str]]) -> None:
        store = self.service.store
        last = ""
        while page := await store.sessions(after=last, limit=RETENTION_PAGE_SIZE):
            for one in page:
                last = one.session
                address = parse_session_address(one.session)
                if address is None or not self._is_expired(address, one.updated):
                    continue
                try:
                    is_deleted = await self._delete_if_idle(one.session, one.position)
                except StoreError as error:
                    if isinstance(error, StoreUnavailable) and not isinstance(
                        error, StoreNotWritable
                    ):
                        raise  # none of the others could be deleted now
                    # One damaged session must not keep all later ones alive.
                    log.warning("could not delete the old session %s: %s", one.session, error)
                    continue
                if is_deleted:
                    _count(gone, address)
                    await asyncio.sleep(RETENTION_PAUSE_S)

    async def _forget_dead_letters(self, gone: Counter[tuple[str, str]]) -> None:
        """Remove old dead letters from the queue. Their sessions are then treated like all
        others."""
        queue = self.service.queue
        for one in await queue.list_dead_letters(limit=1_000_000):
            address = parse_session_address(one.session)
            if address is None or not one.messages or not self._is_expired(address, one.at):
                continue
            resting = await queue.pending(one.session, limit=one.messages)
            if await queue.dead_letter_reason(one.session) is None:
                continue  # the session was revived
            # Erase the texts first: removing a message alone may leave its bytes on disk.
            await queue.erase_messages(one.session, (), [message.key for message in resting])
            numbers = [message.number for message in resting]
            # Remove by number, so that a message that arrives meanwhile stays.
            await queue.finish_turn(one.session, NO_OWNER_IS_NEWER, numbers, [])
            if not await self.service.store.position(one.session):
                _count(gone, address)

    def _is_expired(self, address: SessionAddress, last_event_at: float) -> bool:
        age = self.tenant_ages.get(address.tenant)
        if age is None and (agent := self.service.agents.get(address.agent)) is not None:
            age = agent.spec.session.retain_for
        if age is None or age == FOREVER:
            return False
        return last_event_at < self.clock() - age_in_seconds(age)

    async def _delete_if_idle(self, session: str, position: int) -> bool:
        service = self.service
        if service.is_turn_running(session) or await service.queue.pending(session, limit=1):
            return False
        if service.schedules is not None:
            to_come = await service.schedules.find(session=session)
            if any(one.next_run_at is not None for one in to_come):
                return False
        if await service.store.position(session) != position:
            return False  # an event was added after the listing
        await service.delete_idle_session(session)
        return True

    async def _record(self, gone: Counter[tuple[str, str]], begun: float) -> None:
        for (tenant, agent), count in sorted(gone.items()):
            log.info(
                "retention deleted %d old sessions of agent %s, tenant %s",
                *(count, agent, tenant),
                extra={"event": "retention", "agent": agent, "tenant": tenant, "sessions": count},
            )
            record = ErasureRecord(
                at=begun,
                by=BY_RETENTION,
                kind="session",
                tenant=tenant,
                agent=agent,
                outcome="done",
                sessions=count,
                duration_s=round(self.clock() - begun, 3),
            )
            await self.service.erasure_records.add(record)


def _count(gone: Counter[tuple[str, str]], address: SessionAddress) -> None:
    """Count a deleted session at once, because a pass may take hours."""
    gone[address.tenant, address.agent] += 1
    count_retention_deletion(address.agent)
