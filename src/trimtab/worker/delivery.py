"""Replies leave through their doors: in order, each once as far as the platform lets us know."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from trimtab.observe.serving import delivery_ended, store_failed
from trimtab.stores.errors import StoreError
from trimtab.worker.letters import Outbound
from trimtab.worker.mail import Mail

Deliver = Callable[[Outbound], Awaitable[None]]
"""Sends one reply. Raises `Later` or `Never`; whatever else is raised leaves it unknown whether it
arrived, and the next attempt sees `attempts` raised."""

LEASE = 60.0
"""Seconds that a delivery may take before another process begins it again."""
AT_ONCE = 16
"""Replies that are sent side by side through one door, each of another session."""
TRIES = 8
"""Attempts of unknown outcome before a reply is given up."""
FIRST, LONGEST = 1.0, 300.0
"""Seconds before the second attempt, and at most before any."""
PATIENCE = 5.0
"""Seconds that those under way have to end when `run` is cancelled."""

log = logging.getLogger("trimtab.delivery")


class Later(Exception):
    """The platform asks to wait; nothing was sent."""

    def __init__(self, seconds: float, why: str) -> None:
        self.seconds = seconds
        """How long."""
        super().__init__(why)


class Never(Exception):
    """It will not arrive however often it is sent: the chat is gone, the bot was blocked."""


def wait_after(attempts: int) -> float:
    """Seconds before the next attempt where so many were made before this one."""
    return min(LONGEST, FIRST * 2**attempts)


class Delivery:
    """Sends what is outgoing, as long as it runs. Each door has a loop of its own: a slow one
    holds nobody else up."""

    def __init__(self, mail: Mail, doors: Mapping[str, Deliver]) -> None:
        self._mail = mail
        self._doors = doors
        self._more = {door: asyncio.Event() for door in doors}

    def due(self) -> None:
        """Something new may be outgoing."""
        for more in self._more.values():
            more.set()

    async def run(self, *, every: float = 1.0) -> None:
        """Until cancelled; looks by itself `every` so many seconds."""
        async with asyncio.TaskGroup() as group:
            for door in self._doors:
                group.create_task(self._through(door, every))

    async def once(self) -> int:
        """Send what is outgoing now; returns how many attempts were made."""
        made = 0
        for door in self._doors:
            found = await self._mail.outgoing([door], limit=AT_ONCE, lease=LEASE)
            await asyncio.gather(*(self._one(reply) for reply in found))
            made += len(found)
        return made

    async def _through(self, door: str, every: float) -> None:
        """Send what goes through one door, so many at a time."""
        more, sending = self._more[door], set[asyncio.Task[None]]()
        try:
            while True:
                more.clear()
                room = AT_ONCE - len(sending)
                for reply in await self._lent(door, room) if room else ():
                    task = asyncio.create_task(self._one(reply))
                    sending.add(task)
                    task.add_done_callback(sending.discard)
                    # What stands behind it in its session may go now.
                    task.add_done_callback(lambda _: more.set())
                try:
                    async with asyncio.timeout(every):
                        await more.wait()
                except TimeoutError:
                    pass
        finally:
            if sending:
                _, left = await asyncio.wait(sending, timeout=PATIENCE)
                for task in left:
                    task.cancel()

    async def _lent(self, door: str, room: int) -> list[Outbound]:
        try:
            return await self._mail.outgoing([door], limit=room, lease=LEASE)
        except StoreError as error:
            store_failed(error)
            log.warning("replies for %s wait: %s", door, error)
            return []

    async def _one(self, reply: Outbound) -> None:
        try:
            await self._attempt(reply)
        except StoreError as error:
            # It stays lent, and is sent again when that ends, marked as an attempt of unknown end.
            store_failed(error)
            log.warning("what became of a reply of %s was not kept: %s", reply.session, error)

    async def _attempt(self, reply: Outbound) -> None:
        door, since = reply.route.door, time.perf_counter()
        try:
            async with asyncio.timeout(LEASE / 2):
                await self._doors[door](reply)
        except Later as later:
            delivery_ended(door, "put_off")
            why, wait = str(later), max(0.0, later.seconds)
            await self._mail.put_off(reply.number, seconds=wait, why=why, sent=False)
        except Never as never:
            delivery_ended(door, "refused")
            log.warning("a reply of %s will not arrive: %s", reply.session, never)
            await self._mail.refused(reply.number, str(never))
        except Exception as error:  # noqa: BLE001 - whatever it is, the reply must not be lost
            await self._unknown(reply, error)
        else:
            delivery_ended(door, "sent", time.perf_counter() - since)
            await self._mail.delivered(reply.number)

    async def _unknown(self, reply: Outbound, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        given_up = reply.attempts + 1 >= TRIES
        delivery_ended(reply.route.door, "given_up" if given_up else "unknown")
        if given_up:
            log.error("a reply of %s is given up: %s", reply.session, why)
            await self._mail.refused(reply.number, why)
            return
        wait = wait_after(reply.attempts)
        log.warning(
            "a reply of %s may not have arrived, again in %g s: %s", reply.session, wait, why
        )
        await self._mail.put_off(reply.number, seconds=wait, why=why, sent=True)
