"""What a job of the fleet does: one turn, or one summary.

A job ends only when what follows from it is in the queue or in the mail. Until then it is there for
whoever takes it over.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace

from trimtab.observe import when_watched
from trimtab.observe.serving import store_failed, turn_put_off
from trimtab.session import Session
from trimtab.session.summarise import in_background
from trimtab.stores.errors import StaleOwner, StoreUnavailable
from trimtab.worker.fleet_slots import Slots
from trimtab.worker.naming import address_of
from trimtab.worker.postgres.mail import PostgresMail
from trimtab.worker.postgres.queue import SUMMARIES, Due
from trimtab.worker.retries import Retries
from trimtab.worker.service import NoAgent, Service
from trimtab.worker.turns import Attempt

SOON = 1.0
"""Seconds before a turn is tried again that failed because the database was away."""
CROWDED, LONGEST = 0.5, 15.0
"""Seconds before a turn whose tenant is at its limit comes back: at first, and at most."""
HANDING_OVER = 5.0
"""Seconds that a turn that is cut off has to queue itself again; else it is taken over later."""

log = logging.getLogger("trimtab.worker")


class Jobs:
    """What this process does for the fleet."""

    def __init__(self, service: Service, mail: PostgresMail, slots: Slots) -> None:
        self._service = service
        self._mail = mail
        self._slots = slots
        self.cut_off = 0
        """Turns that were cancelled and handed over."""

    async def turn(self, due: Due) -> None:
        """Answer what waits in a session."""
        attempt = Attempt()
        try:
            await self._mail.pass_gate(due.session)
            address = address_of(due.session)
            async with self._slots.taken(address.tenant if address else due.session) as free:
                if not free:
                    await self._surely(lambda: self._crowded(due))
                    return
                fresh = not (due.tries or due.taken or due.put_off)
                await self._service.answer(due.session, gather=fresh, attempt=attempt)
            if attempt.full and await self._mail.pending(due.session, limit=1):
                # More than one turn takes: behind all others who wait. Whatever came while it ran
                # has a job of its own.
                await self._mail.defer(Due(session=due.session))
        except asyncio.CancelledError:
            self.cut_off += 1
            await self._hand_over(due)
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the letters must not be lost
            await self._failed(due, error, attempt)

    async def summary(self, due: Due) -> None:
        """Make the summary that a session's policy wants, beside its turns."""
        try:
            agent = self._service.agent_of(due.session)
            if agent.summariser is None or not await self._service.store.position(due.session):
                return  # deleted, and not to be begun anew by this
            async with self._service.using(due.session) as session:
                await in_background(
                    session,
                    agent.summariser,
                    when_watched(
                        lambda happening: self._service.live.tell(due.session, happening),
                        agent=agent.spec.name,
                    ),
                )
        except (NoAgent, StoreUnavailable) as error:
            # The next turn wants it again.
            log.warning("no summary of %s was made: %s", due.session, error)

    async def summarise_later(self, session: Session) -> None:
        """Let the fleet make a session's summary: for `run_turn`."""
        try:
            await self._mail.defer(Due(session=session.id, kind=SUMMARIES))
        except StoreUnavailable as error:
            log.warning("no summary of %s is queued: %s", session.id, error)

    async def _failed(self, due: Due, error: Exception, attempt: Attempt) -> None:
        """Try again later, or give up; ends when that is certain."""
        match error:
            case StaleOwner():
                # Another one's turn by now. If it is none of the fleet's, ours still has to run.
                log.info("turn of %s was taken over: %s", due.session, error)
                await self._surely(lambda: self._go_on(due))
            case StoreUnavailable():
                store_failed(error)
                log.warning("turn of %s waits for the database: %s", due.session, error)
                await self._surely(lambda: self._mail.defer_instead(due, wait=SOON))
            case _:
                retries = Retries(due.tries, alone=False)
                wait = retries.after(error)
                if wait is None:
                    await self._surely(lambda: self._give_up(due, retries, error, attempt))
                    return
                turn_put_off()
                log.warning("turn of %s failed, again in %.1f s: %r", due.session, wait, error)
                again = replace(due, tries=due.tries + 1)
                await self._surely(lambda: self._mail.defer_instead(again, wait=wait))

    async def _give_up(
        self, due: Due, retries: Retries, error: Exception, attempt: Attempt
    ) -> None:
        if not await retries.give_up(self._mail, due.session, error, attempt.epoch):
            await self._go_on(due)

    async def _go_on(self, due: Due) -> None:
        if await self._mail.pending(due.session, limit=1):
            await self._mail.defer(due, wait=SOON)

    async def _crowded(self, due: Due) -> None:
        wait = min(LONGEST, CROWDED * 1.5**due.put_off) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
        await self._mail.defer_instead(replace(due, put_off=due.put_off + 1), wait=wait)

    async def _hand_over(self, due: Due) -> None:
        log.info("turn of %s is handed over", due.session)
        try:
            async with asyncio.timeout(HANDING_OVER):
                await self._mail.defer(due)
        except (StoreUnavailable, TimeoutError) as error:
            log.warning("turn of %s is left to be taken over: %r", due.session, error)

    async def _surely(self, step: Callable[[], Awaitable[object]]) -> None:
        """Do it, however long the database is away: the job must not end before."""
        wait = 0.2
        while True:
            try:
                await step()
            except StoreUnavailable as error:
                log.debug("waiting for the database: %s", error)
                await asyncio.sleep(wait)
                wait = min(2.0, wait * 2)
            else:
                return
