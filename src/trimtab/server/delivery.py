"""Replies leave through their doors: in order, each once as far as the platform lets us know."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from trimtab.errors import StoreError
from trimtab.observe.server_metrics import count_delivery_attempt, count_store_error
from trimtab.server.queue.messages import OutboundMessage
from trimtab.server.queue.protocol import MessageQueue

DeliverReply = Callable[[OutboundMessage], Awaitable[None]]
"""Sends one reply. Raises `RetryDelivery` or `Undeliverable`; whatever else is raised leaves it
unknown whether it arrived, and the next attempt sees `attempts` raised."""

DELIVERY_LEASE_S = 60.0
"""Seconds that a delivery may take before another process begins it again."""
MAX_CONCURRENT_DELIVERIES = 16
"""Replies that are sent side by side through one door, each of another session."""
MAX_DELIVERY_ATTEMPTS = 8
"""Attempts of unknown outcome before a reply is given up."""
FIRST_DELIVERY_RETRY_S, MAX_DELIVERY_RETRY_S = 1.0, 300.0
"""Seconds before the second attempt, and at most before any."""
DELIVERY_SHUTDOWN_GRACE_S = 5.0
"""Seconds that those under way have to end when `run` is cancelled."""

log = logging.getLogger("trimtab.delivery")


class RetryDelivery(Exception):
    """The platform asks to wait; nothing was sent."""

    def __init__(self, delay_s: float, why: str) -> None:
        self.delay_s = delay_s
        """How long."""
        super().__init__(why)


class Undeliverable(Exception):
    """It will not arrive however often it is sent: the chat is gone, the bot was blocked."""


def compute_delivery_retry_delay(attempts_before: int) -> float:
    """Seconds before the next attempt where so many were made before this one."""
    return min(MAX_DELIVERY_RETRY_S, FIRST_DELIVERY_RETRY_S * 2**attempts_before)


class ReplyDelivery:
    """Sends what is outgoing, as long as it runs. Each door has a loop of its own: a slow one
    holds nobody else up."""

    def __init__(self, queue: MessageQueue, senders: Mapping[str, DeliverReply]) -> None:
        self._queue = queue
        self._senders = senders
        self._wake_events = {door: asyncio.Event() for door in senders}

    def wake(self) -> None:
        """Something new may be outgoing."""
        for more in self._wake_events.values():
            more.set()

    async def run(self, *, poll_s: float = 1.0) -> None:
        """Until cancelled; looks by itself `every` so many seconds."""
        async with asyncio.TaskGroup() as group:
            for door in self._senders:
                group.create_task(self._deliver_channel(door, poll_s))

    async def deliver_due(self) -> int:
        """Send what is outgoing now; returns how many attempts were made."""
        made = 0
        for door in self._senders:
            found = await self._queue.lease_replies(
                [door], limit=MAX_CONCURRENT_DELIVERIES, lease_s=DELIVERY_LEASE_S
            )
            await asyncio.gather(*(self._deliver_reply(reply) for reply in found))
            made += len(found)
        return made

    async def _deliver_channel(self, channel: str, poll_s: float) -> None:
        """Send what goes through one door, so many at a time."""
        more, sending = self._wake_events[channel], set[asyncio.Task[None]]()
        try:
            while True:
                more.clear()
                room = MAX_CONCURRENT_DELIVERIES - len(sending)
                for reply in await self._lease_replies(channel, room) if room else ():
                    task = asyncio.create_task(self._deliver_reply(reply))
                    sending.add(task)
                    task.add_done_callback(sending.discard)
                    # What stands behind it in its session may go now.
                    task.add_done_callback(lambda _: more.set())
                try:
                    async with asyncio.timeout(poll_s):
                        await more.wait()
                except TimeoutError:
                    pass
        finally:
            if sending:
                _, left = await asyncio.wait(sending, timeout=DELIVERY_SHUTDOWN_GRACE_S)
                for task in left:
                    task.cancel()

    async def _lease_replies(self, channel: str, limit: int) -> list[OutboundMessage]:
        try:
            return await self._queue.lease_replies([channel], limit=limit, lease_s=DELIVERY_LEASE_S)
        except StoreError as error:
            count_store_error(error)
            log.warning("replies for %s wait: %s", channel, error)
            return []

    async def _deliver_reply(self, reply: OutboundMessage) -> None:
        try:
            await self._attempt_delivery(reply)
        except StoreError as error:
            # It stays lent, and is sent again when that ends, marked as an attempt of unknown end.
            count_store_error(error)
            log.warning("what became of a reply of %s was not kept: %s", reply.session, error)

    async def _attempt_delivery(self, reply: OutboundMessage) -> None:
        door, since = reply.route.channel, time.perf_counter()
        try:
            async with asyncio.timeout(DELIVERY_LEASE_S / 2):
                await self._senders[door](reply)
        except RetryDelivery as later:
            count_delivery_attempt(door, "put_off")
            why, wait = str(later), max(0.0, later.delay_s)
            await self._queue.postpone_reply(reply.number, delay_s=wait, why=why, maybe_sent=False)
        except Undeliverable as never:
            count_delivery_attempt(door, "refused")
            log.warning("a reply of %s will not arrive: %s", reply.session, never)
            await self._queue.mark_undeliverable(reply.number, str(never))
        except Exception as error:  # noqa: BLE001 - whatever it is, the reply must not be lost
            await self._handle_unknown_outcome(reply, error)
        else:
            count_delivery_attempt(door, "sent", time.perf_counter() - since)
            await self._queue.mark_delivered(reply.number)

    async def _handle_unknown_outcome(self, reply: OutboundMessage, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        given_up = reply.attempts + 1 >= MAX_DELIVERY_ATTEMPTS
        count_delivery_attempt(reply.route.channel, "given_up" if given_up else "unknown")
        if given_up:
            log.error("a reply of %s is given up: %s", reply.session, why)
            await self._queue.mark_undeliverable(reply.number, why)
            return
        wait = compute_delivery_retry_delay(reply.attempts)
        log.warning(
            "a reply of %s may not have arrived, again in %g s: %s", reply.session, wait, why
        )
        await self._queue.postpone_reply(reply.number, delay_s=wait, why=why, maybe_sent=True)
