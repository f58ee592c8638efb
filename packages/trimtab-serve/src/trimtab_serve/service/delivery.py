"""Deliver replies through their channels, in order, and once as far as the platform allows."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping

from trimtab.errors import StoreError
from trimtab_serve.metrics.recording import count_delivery_attempt
from trimtab_serve.queue.bounded_dict import BoundedDict
from trimtab_serve.queue.messages import OutboundMessage
from trimtab_serve.queue.protocol import MessageQueue
from trimtab_serve.service.retries import compute_backoff_s

DeliverReply = Callable[[OutboundMessage], Awaitable[None]]
"""Sends one reply.

Raises `RetryDelivery`, `ReplyInterrupted` or `Undeliverable`. After any other error it is unknown
whether the reply arrived, and the next attempt has a higher `attempts`.
"""

DELIVERY_LEASE_S = 60.0
"""Seconds that a delivery may take before another process tries again."""
MAX_CONCURRENT_DELIVERIES = 16
"""Replies that one channel sends at the same time, each of a different session."""
MAX_DELIVERY_ATTEMPTS = 8
"""Attempts with unknown outcome and without progress before a reply is abandoned."""
MAX_TRACKED_REPLIES = 10_000
"""Maximum number of replies whose partial delivery is remembered."""
FIRST_DELIVERY_RETRY_S = 1.0
MAX_DELIVERY_RETRY_S = 300.0
"""Seconds before the second attempt, and the maximum before any attempt."""
DELIVERY_SHUTDOWN_GRACE_S = 5.0
"""Seconds for running deliveries to end after `run` is cancelled."""

log = logging.getLogger("trimtab.delivery")


class RetryDelivery(Exception):
    """The platform asks to wait, and nothing was sent."""

    def __init__(self, delay_s: float, why: str) -> None:
        self.delay_s = delay_s
        """Seconds to wait."""
        super().__init__(why)


class ReplyInterrupted(Exception):
    """Some parts of a long reply have arrived in this attempt, and others have not.

    The reply is never abandoned for this reason, because each attempt makes progress.
    """

    def __init__(self, why: str, *, delay_s: float | None = None) -> None:
        self.delay_s = delay_s
        """Seconds that the platform asks to wait. None if it gave no time."""
        super().__init__(why)


class Undeliverable(Exception):
    """The reply can never arrive: the chat is gone, or the user blocked the bot."""


def compute_delivery_retry_delay(attempts_before: int) -> float:
    """Return the seconds before the next attempt, given the number of attempts before this one."""
    return compute_backoff_s(
        attempts_before + 1, first_s=FIRST_DELIVERY_RETRY_S, max_s=MAX_DELIVERY_RETRY_S
    )


class ReplyDelivery:
    """Sends the queued replies while it runs.

    Each channel has its own loop, so a slow channel does not delay the others.
    """

    def __init__(self, queue: MessageQueue, senders: Mapping[str, DeliverReply]) -> None:
        self._queue = queue
        self._senders = senders
        self._wake_events = {channel: asyncio.Event() for channel in senders}
        self._attempts_at_progress = BoundedDict[str, int](MAX_TRACKED_REPLIES)

    def wake(self) -> None:
        """Look for new replies now."""
        for more in self._wake_events.values():
            more.set()

    async def run(self, *, poll_s: float = 1.0) -> None:
        """Send replies until cancelled, and poll every `poll_s` seconds."""
        async with asyncio.TaskGroup() as group:
            for channel in self._senders:
                group.create_task(self._deliver_channel(channel, poll_s))

    async def deliver_due(self) -> int:
        """Send the replies that are due now. Return the number of attempts."""
        attempts = 0
        for channel in self._senders:
            replies = await self._queue.lease_replies(
                [channel], limit=MAX_CONCURRENT_DELIVERIES, lease_s=DELIVERY_LEASE_S
            )
            await asyncio.gather(*(self._deliver_reply(reply) for reply in replies))
            attempts += len(replies)
        return attempts

    async def _deliver_channel(self, channel: str, poll_s: float) -> None:
        """Send the replies of one channel, a limited number at a time."""
        more = self._wake_events[channel]
        sending = set[asyncio.Task[None]]()
        try:
            while True:
                more.clear()
                room = MAX_CONCURRENT_DELIVERIES - len(sending)
                for reply in await self._lease_replies(channel, room) if room else ():
                    task = asyncio.create_task(self._deliver_reply(reply))
                    sending.add(task)
                    task.add_done_callback(sending.discard)
                    # The next reply of the same session can go now.
                    task.add_done_callback(lambda _: more.set())
                try:
                    async with asyncio.timeout(poll_s):
                        await more.wait()
                except TimeoutError:
                    pass
        finally:
            if sending:
                _, unfinished_tasks = await asyncio.wait(sending, timeout=DELIVERY_SHUTDOWN_GRACE_S)
                for task in unfinished_tasks:
                    task.cancel()

    async def _lease_replies(self, channel: str, limit: int) -> list[OutboundMessage]:
        try:
            return await self._queue.lease_replies([channel], limit=limit, lease_s=DELIVERY_LEASE_S)
        except StoreError as error:
            log.warning(
                "the store failed, so replies for channel %s are delayed: %s", channel, error
            )
            return []

    async def _deliver_reply(self, reply: OutboundMessage) -> None:
        try:
            await self._attempt_delivery(reply)
        except StoreError as error:
            # The lease stays. When it expires, the reply is sent again as an attempt with unknown
            # outcome.
            log.warning(
                "storing the delivery outcome of a reply of session %s failed: %s",
                reply.session,
                error,
            )

    async def _attempt_delivery(self, reply: OutboundMessage) -> None:
        channel = reply.route.channel
        since = time.perf_counter()
        try:
            async with asyncio.timeout(DELIVERY_LEASE_S / 2):
                await self._senders[channel](reply)
        except RetryDelivery as later:
            count_delivery_attempt(channel, "deferred")
            why = str(later)
            wait = max(0.0, later.delay_s)
            await self._queue.postpone_reply(reply.number, delay_s=wait, why=why, maybe_sent=False)
        except ReplyInterrupted as interruption:
            await self._handle_interruption(reply, interruption)
        except Undeliverable as never:
            count_delivery_attempt(channel, "rejected")
            log.warning("reply of session %s cannot be delivered: %s", reply.session, never)
            await self._queue.mark_undeliverable(reply.number, str(never))
        except Exception as error:  # noqa: BLE001 - whatever it is, the reply must not be lost
            await self._handle_unknown_outcome(reply, error)
        else:
            count_delivery_attempt(channel, "sent", time.perf_counter() - since)
            await self._queue.mark_delivered(reply.number)

    async def _handle_interruption(
        self, reply: OutboundMessage, interrupted: ReplyInterrupted
    ) -> None:
        """Schedule the rest of a reply.

        Only the first interruption counts as an attempt. If this process ends, the next one must
        know that a part of the reply has arrived.
        """
        count_delivery_attempt(reply.route.channel, "deferred")
        self._attempts_at_progress[reply.key] = max(1, reply.attempts)
        wait = interrupted.delay_s
        if wait is None:
            wait = compute_delivery_retry_delay(0)
        log.info(
            "the rest of a reply of %s will be sent in %g s: %s", reply.session, wait, interrupted
        )
        await self._queue.postpone_reply(
            reply.number,
            delay_s=max(0.0, wait),
            why=str(interrupted),
            maybe_sent=reply.attempts == 0,
        )

    async def _handle_unknown_outcome(self, reply: OutboundMessage, error: Exception) -> None:
        why = f"{type(error).__name__}: {error}"
        in_vain = reply.attempts - self._attempts_at_progress.get(reply.key, 0)
        is_last_attempt = in_vain + 1 >= MAX_DELIVERY_ATTEMPTS
        count_delivery_attempt(reply.route.channel, "abandoned" if is_last_attempt else "unknown")
        if is_last_attempt:
            log.error(
                "delivery of a reply of session %s abandoned after %d attempts: %s",
                reply.session,
                reply.attempts + 1,
                why,
            )
            await self._queue.mark_undeliverable(reply.number, why)
            return
        wait = compute_delivery_retry_delay(reply.attempts)
        log.warning(
            "a reply of session %s may not have arrived; retrying in %g s: %s",
            reply.session,
            wait,
            why,
        )
        await self._queue.postpone_reply(reply.number, delay_s=wait, why=why, maybe_sent=True)
